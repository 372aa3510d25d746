"""Windows that stand in GROUP BY, as Spark and older Flink write them, rewritten into windows on the stream.

    SELECT window.start, COUNT(*) FROM s GROUP BY window(ts, '10 minutes', '5 minutes')
    SELECT TUMBLE_START(ts, INTERVAL '1' HOUR), COUNT(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)
    SELECT COUNT(*) FROM s GROUP BY k, TumblingWindow(minute, 10)
    SELECT tumble(INTERVAL '10 minutes') AS w, COUNT(*) FROM s GROUP BY w
    ->  SELECT window_start, COUNT(*) FROM TUMBLE(s, ts, ...) GROUP BY window_start, window_end

Spark's `window(time, size [, slide [, offset]])` and `session_window(time, gap)`, and TUMBLE, HOP and SESSION with
their `_START`, `_END` and `_ROWTIME` (a millisecond before the end). The stream is the one of FROM whose time column is
named; what else GROUP BY names has sessions of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from windrow.cql.dialect import DIALECT, WINDOW, tokenize
from windrow.cql.ksql_windows import GRACE
from windrow.cql.scope import INSTANT, offset_of, span_of
from windrow.cql.shapes import query_in, sources_of, window_of
from windrow.cql.source import Cursor, ScriptText
from windrow.cql.window_functions import clause_of
from windrow.cql.windowed_selects import put_window
from windrow.cql.windows import Amount, Clock, WindowClause, parse_amount
from windrow.cql.within import check_grace
from windrow.errors import BindingError, UnsupportedError, WindrowError
from windrow.plan.nodes import WindowKind

if TYPE_CHECKING:
    from windrow.cql.select import Binder

_CALLS = {
    "window": ("TUMBLE", ("SIZE", "SLIDE", "OFFSET")),
    "session_window": ("SESSION", ("GAP",)),
    "tumble": ("TUMBLE", ("SIZE", "OFFSET")),
    "hop": ("HOP", ("SLIDE", "SIZE", "OFFSET")),
    "session": ("SESSION", ("GAP",)),
}
_STRUCTS = ("window", "session_window")
_BY_UNIT = {"tumblingwindow": "tumble", "hoppingwindow": "hop", "sessionwindow": "session"}
"""Windows of Azure Stream Analytics, whose first argument is the unit of the others."""
WANTED: frozenset[type | str] = frozenset((*_CALLS, *_BY_UNIT))
_BOUNDS = {
    f"{name}_{end}": f"window_{end}" for name in ("tumble", "hop", "session") for end in ("start", "end")
}  # fmt: skip
_LAST = ("tumble_rowtime", "hop_rowtime", "session_rowtime")


def expand_group_windows(tree: exp.Expr, binder: Binder) -> exp.Expr:
    """The query with every window in a GROUP BY put on its stream."""
    for select in list(tree.find_all(exp.Select)):
        group = select.args.get("group")
        if not isinstance(group, exp.Group):
            continue
        _write_out(select, group)
        for key in group.expressions:
            _respell(key)
        calls = [k for k in group.expressions if _call(k) is not None]
        if calls:
            _expand(select, group, calls[0], binder)
    return tree


def _write_out(select: exp.Select, group: exp.Group) -> None:
    """Put windows that GROUP BY names by their alias or their place in the select list into it."""
    items = select.expressions
    for key in list(group.expressions):
        found = None
        if isinstance(key, exp.Column) and not key.table:
            found = next(
                (i.this for i in items if isinstance(i, exp.Alias) and i.alias.lower() == key.name.lower()), None
            )
        elif isinstance(key, exp.Literal) and key.name.isdigit() and 1 <= int(key.name) <= len(items):
            found = items[int(key.name) - 1].unalias()
        if found is not None and _call(found) is not None:
            key.replace(found.copy())


def _respell(key: exp.Expr) -> None:
    """HoppingWindow(minute, 10, 5) as hop(INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)."""
    if not (isinstance(key, exp.Anonymous) and key.name.lower() in _BY_UNIT and len(key.expressions) > 1):
        return
    unit, *counts = key.expressions
    if isinstance(unit, exp.Column) and all(isinstance(c, exp.Literal) for c in counts):
        lengths = [exp.Interval(this=exp.Literal.string(c.name), unit=exp.var(unit.name.upper())) for c in counts]
        key.set("this", _BY_UNIT[key.name.lower()])
        key.set("expressions", lengths[::-1])


def _call(node: exp.Expr) -> tuple[str, list[exp.Expr]] | None:
    """The name and arguments of a call that makes a window."""
    if isinstance(node, exp.Anonymous) and node.name.lower() in _CALLS and node.expressions:
        return node.name.lower(), node.expressions
    return None


def _expand(select: exp.Select, group: exp.Group, call: exp.Expr, binder: Binder) -> None:
    source = binder.context.source
    found = _call(call)
    assert found is not None
    name, arguments = found
    grace = next((a.pop() for a in arguments if isinstance(a, exp.Anonymous) and a.name == GRACE), None)
    arguments = call.expressions
    if not isinstance(arguments[0], exp.Column):  # of the time of rows, whatever it is called
        arguments = [_column(INSTANT, call), *arguments]
    time, *lengths = arguments
    if not isinstance(time, exp.Column):
        raise BindingError(
            f"{name} needs the time column of a stream",
            hint=f"write {name}(ts, '10 minutes')",
            span=span_of(call, source),
        )
    kept = [k for k in group.expressions if k is not call]
    clause = _clause(call, name, time, lengths, source)
    stream = _stream(select, time, binder)
    if stream is None and not any(put_window(s, clause, binder.catalog) for s in _queries(select, time)):
        computed = any(_computes(s, time) for s in _queries(select, time))
        when = "; when rows came is PROCTIME(), on a stream that is declared TIMESTAMP BY ... AS PROCTIME()"
        raise BindingError(
            f'"{time.name}" is not the time of a stream in FROM',
            hint=f"{name} takes the time column of a stream that has no other window{when * computed}",
            span=span_of(time, source),
        )
    if grace is not None:
        length = length_of(grace.expressions[0], GRACE, source)
        _check_grace(replace(length, text=length.text.strip("'")), stream, binder)
    if stream is not None:
        if clause.kind is WindowKind.SESSION:
            clause = replace(clause, partition=_keys(kept, stream, source))
        stream.meta[WINDOW] = clause
    bounds = [_column("window_start", call), _column("window_end", call)]
    group.set("expressions", [*kept, *bounds])
    for key in ("expressions", "having", "qualify", "order"):
        part = select.args.get(key)
        if isinstance(part, list):
            select.set(key, [_named(_shown(item.copy(), name), item) for item in part])
        elif part is not None:
            select.set(key, _shown(part, name))


def _stream(select: exp.Select, time: exp.Column, binder: Binder) -> exp.Table | None:
    """The stream of FROM that has the time column."""
    for table in sources_of(select):
        if not isinstance(table, exp.Table) or query_in(table) is not None or window_of(table):
            continue
        definition = binder.catalog.streams.get(table.name.lower())
        if (
            definition is not None
            and _is_named(table, time)
            and time.name.lower() in (definition.time.lower(), INSTANT)
        ):
            return table
    return None


def _check_grace(grace: Amount, stream: exp.Table | None, binder: Binder) -> None:
    """Refuse a grace period that the stream under a window does not grant."""
    source = binder.context.source
    if stream is None:
        raise UnsupportedError(
            f"GRACE PERIOD {grace.text} on a window of a query",
            detail="how late rows may be is a property of a stream",
            hint="leave it out, and declare the streams that the query reads with WITHIN",
            span=source.span(grace.offset),
        )
    definition = binder.catalog.streams[stream.name.lower()]
    clock = Clock.TICKS if pa.types.is_integer(definition.time_type) else Clock.MICROSECONDS
    check_grace(grace, "a window of", [definition], clock, source)


def _queries(select: exp.Select, time: exp.Column) -> list[exp.Expr]:
    """The views and subqueries of FROM whose column the time may be."""
    found = [s for s in sources_of(select) if query_in(s) is not None and window_of(s) is None]
    return [s for s in found if _is_named(s, time)]


def _computes(source: exp.Expr, time: exp.Column) -> bool:
    """Whether a query shows under the name of the time what reads no column, such as NOW()."""
    query = query_in(source)
    items = query.expressions if isinstance(query, exp.Select) else []
    return any(i.alias.lower() == time.name.lower() and i.find(exp.Column) is None for i in items)


def _is_named(source: exp.Expr, time: exp.Column) -> bool:
    return not time.table or time.table.lower() == (source.alias or source.name).lower()


def _keys(keys: list[exp.Expr], stream: exp.Table, source: ScriptText) -> tuple[tuple[str, int], ...]:
    """What else a GROUP BY with a session names: each of these has sessions of its own."""
    found = []
    for key in keys:
        own = isinstance(key, exp.Column) and key.table.lower() in ("", (stream.alias or stream.name).lower())
        if not own:
            raise BindingError(
                "a session in GROUP BY beside what is no column of its stream",
                hint=f"write FROM SESSION({stream.name} PARTITION BY k, ts, '10 minutes')",
                span=span_of(key, source),
            )
        found.append((key.name, offset_of(key) or 0))
    return tuple(found)


def _clause(call: exp.Expr, name: str, time: exp.Column, lengths: list[exp.Expr], source: ScriptText) -> WindowClause:
    function, names = _CALLS[name]
    offset = offset_of(call) or 0
    if not lengths or len(lengths) > len(names):
        raise BindingError(
            f"{name} takes {len(names) + 1} arguments at most, and a length at least",
            hint=f"write {name}(ts, '10 minutes')",
            span=source.span(offset),
        )
    amounts = {key: length_of(tree, key, source) for key, tree in zip(names, lengths, strict=False)}
    if function == "TUMBLE" and "SLIDE" in amounts:
        function = "HOP"
    cursor = Cursor(source, [])
    text = " ".join(call.sql(dialect=DIALECT).replace("\ue000", "").replace("\ue001", "").split())
    return clause_of(function, amounts, cursor, offset, text, time=(time.name, offset_of(time) or offset))


def length_of(tree: exp.Expr, what: str, source: ScriptText) -> Amount:
    """A length of time given as an expression: '10 minutes', INTERVAL '10' MINUTE or a number of ticks."""
    offset = offset_of(tree) or 0
    text = str(tree.sql(dialect=DIALECT))
    cursor = Cursor(ScriptText(text), tokenize(text))
    try:
        amount = parse_amount(cursor, what)
    except WindrowError:
        amount = None
    if amount is None or cursor.current is not None:
        raise BindingError(
            f"{text} is not a length of time",
            hint="write '10 minutes', or a plain number of ticks",
            span=source.span(offset),
        )
    return Amount(amount.value, amount.has_unit, amount.text, offset)


def _column(name: str, at: exp.Expr) -> exp.Column:
    column = exp.column(name)
    column.meta["start"] = offset_of(at) or 0
    return column


def _shown(item: exp.Expr, name: str) -> exp.Expr:
    """The item with what it says of the window in terms of its bounds."""
    return item.transform(lambda node: _bound(node, name), copy=False)


def _named(shown: exp.Expr, item: exp.Expr) -> exp.Expr:
    """`window`, `window.start` and `window(ts, ...)` keep their last name."""
    if shown == item or not (isinstance(item, exp.Column) or _call(item)):
        return shown
    return exp.alias_(shown, item.name)


def _bound(node: exp.Expr, name: str) -> exp.Expr:
    if isinstance(node, exp.Anonymous) and node.name.lower() in _BOUNDS:
        return _column(_BOUNDS[node.name.lower()], node)
    if isinstance(node, exp.Anonymous) and node.name.lower() in _LAST:
        return _column("window_end", node) - exp.Interval(this=exp.Literal.string("1"), unit=exp.var("MILLISECOND"))
    if name not in _STRUCTS and not (isinstance(node, exp.Anonymous) and node.name.lower() == name):
        return node
    if isinstance(node, exp.Column) and node.table.lower() == name and node.name.lower() in ("start", "end"):
        return _column(f"window_{node.name.lower()}", node)
    whole = isinstance(node, exp.Column) and not node.table and node.name.lower() == name
    if whole or (isinstance(node, exp.Anonymous) and node.name.lower() == name):
        pairs = [
            exp.PropertyEQ(this=exp.to_identifier(k), expression=_column(f"window_{k}", node)) for k in ("start", "end")
        ]
        return exp.Struct(expressions=pairs)
    return node
