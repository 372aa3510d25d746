"""PROCTIME(): when a row came, on streams whose time says just that.

    CREATE STREAM bid (bidder BIGINT, at TIMESTAMP) TIMESTAMP BY at AS PROCTIME()
    SELECT *, PROCTIME() AS p_time FROM bid              ->    SELECT *, bid.at AS p_time FROM bid
    ... JOIN rate FOR SYSTEM_TIME AS OF PROCTIME()       ->    ... JOIN rate
    ... GROUP BY TUMBLE(NOW(), INTERVAL '10' SECOND)     ->    ... GROUP BY TUMBLE(bid.at, INTERVAL '10' SECOND)

Nothing here looks at a clock: whoever hands a row over has stamped it when it came, so the same rows give the same
answer every time. On a stream with event time PROCTIME() is refused, for it would be another time than the one meant.
`FOR SYSTEM_TIME AS OF` it on a table says what every table here means: it is met as it is when the row comes.
The window that a row falls into by NOW() is settled when it comes, so as the time of a window NOW() is PROCTIME().
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from windrow.catalog import Catalog, StreamDef
from windrow.cql.builtins import names
from windrow.cql.dialect import StreamItems
from windrow.cql.scope import span_of
from windrow.cql.shapes import query_in, sources_of
from windrow.cql.source import ScriptText
from windrow.errors import UnsupportedError

_NAMES = ("proctime", "proc_time")
_CLOCKS = names(
    "now current_timestamp localtimestamp current_localtimestamp getdate sysdate sysdatetime mz_now utc_timestamp"
)
CLOCKS: frozenset[type | str] = frozenset((exp.CurrentTimestamp, exp.Localtimestamp, *_CLOCKS))
"""By what `is_clock` is met, and all that is done here."""
WANTED: frozenset[type | str] = CLOCKS.union((exp.Version, *_NAMES))
_WINDOWS = {
    f"{name}{end}" for name in ("tumble", "hop", "session") for end in ("", "_start", "_end", "_rowtime")
}  # fmt: skip


def place_proctime(tree: exp.Expr, catalog: Catalog, source: ScriptText) -> None:
    """Put the time of its stream in the place of every PROCTIME(), in the tree itself."""
    _respell_tables(tree, catalog)
    for call in [c for c in tree.walk() if is_proctime(c) or (is_clock(c) and _is_windowed(c))]:
        if call.name.lower() not in catalog.functions and call.name.lower() not in catalog.macros:
            _place(call, catalog, source)


def place_clock(select: exp.Select, name: str, stream: StreamDef) -> None:
    """Put the time of the stream that a SELECT reads in the place of a NOW() which it shows under a name."""
    for item in select.expressions if stream.proctime else ():
        if isinstance(item, exp.Alias) and item.alias.lower() == name.lower() and is_clock(item.this):
            item.set("this", exp.column(stream.time, quoted=True))


def is_clock(node: exp.Expr) -> bool:
    """Whether it is the time of the clock on the wall, in any spelling."""
    if isinstance(node, exp.CurrentTimestamp | exp.Localtimestamp):
        return True
    return isinstance(node, exp.Anonymous) and node.name.lower() in _CLOCKS and not node.expressions


def _is_windowed(clock: exp.Expr) -> bool:
    """Whether a window in GROUP BY, or what is said of one, has it for its time."""
    call = clock.parent
    return isinstance(call, exp.Anonymous) and call.name.lower() in _WINDOWS and call.expressions[0] is clock


def is_proctime(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in _NAMES and not node.expressions


def _place(call: exp.Expr, catalog: Catalog, source: ScriptText) -> None:
    select, shown = call.find_ancestor(exp.Select), call.name.upper() or "NOW"
    streams = list(_streams(select, catalog)) if isinstance(select, exp.Select) else []
    if len(streams) != 1:
        raise UnsupportedError(
            f"{shown}() where {'several streams are' if streams else 'no stream is'} read",
            detail="it is the time of one stream's row",
            hint="name the time column of the stream that is meant"
            if streams
            else "write it in the SELECT that has the stream in its FROM",
            span=span_of(call, source),
        )
    alias, stream = streams[0]
    if not stream.proctime:
        raise UnsupportedError(
            f'{shown}() of the stream "{stream.name}", whose time is that of its events',
            detail="no query looks at the clock, for an answer depends on the rows alone",
            hint=f"use its time column, {stream.time}; or, if that says when rows came, declare the stream with "
            f"TIMESTAMP BY {stream.time} AS PROCTIME()",
            span=span_of(call, source),
        )
    column = exp.column(stream.time, table=alias, quoted=True)
    column.meta.update(call.meta)
    bare = call.arg_key == "expressions" and (call.parent is select or isinstance(call.parent, StreamItems))
    call.replace(exp.alias_(column, call.name.lower()) if bare else column)


def _streams(select: exp.Select, catalog: Catalog) -> Iterator[tuple[str, StreamDef]]:
    """The streams that a SELECT itself reads, by their aliases."""
    for table in sources_of(select):
        stream = catalog.streams.get(table.name.lower()) if isinstance(table, exp.Table) else None
        if stream is not None and query_in(table) is None:
            yield table.alias or table.name, stream


def _respell_tables(tree: exp.Expr, catalog: Catalog) -> None:
    """Take `FOR SYSTEM_TIME AS OF PROCTIME()`, or the time of a stream's row, off tables.

    What only names PROCTIME() for it goes off select lists.
    """
    named = set()
    for table in tree.find_all(exp.Table):
        version = table.args.get("version")
        when = version.expression if isinstance(version, exp.Version) else None
        if isinstance(when, exp.Column) and _names_proctime(tree, when.name):
            named.add(when.name.lower())
            table.set("version", None)
        elif when is not None and (is_proctime(when) or _is_time(when, table, catalog)):
            table.set("version", None)
    for select in tree.find_all(exp.Select) if named else ():
        kept = [i for i in select.expressions if not (is_proctime(i.unalias()) and i.alias.lower() in named)]
        select.set("expressions", kept)


def _is_time(when: exp.Expr, table: exp.Table, catalog: Catalog) -> bool:
    """Whether it is the time of a stream beside the table, which is when every table is looked at."""
    select = table.find_ancestor(exp.Select)
    if (
        not isinstance(when, exp.Column)
        or not isinstance(select, exp.Select)
        or table.name.lower() not in catalog.tables
    ):
        return False
    return any(
        when.table.lower() in ("", alias.lower()) and when.name.lower() == stream.time.lower()
        for alias, stream in _streams(select, catalog)
    )


def _names_proctime(tree: exp.Expr, name: str) -> bool:
    aliases = (a for a in tree.find_all(exp.Alias) if a.alias.lower() == name.lower())
    return any(is_proctime(a.this) for a in aliases)
