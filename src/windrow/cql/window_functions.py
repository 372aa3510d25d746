"""TUMBLE, HOP, SESSION and CUMULATE in FROM: windows as functions, as clauses on the stream that they name.

    TUMBLE(bid, ts, '10 min' [, offset])    HOP(bid, ts, '2 min', '10 min' [, offset])
    CUMULATE(bid, ts, '2 min', '10 min' [, offset])
    SESSION(bid PARTITION BY k, ts, '5 min')    TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTE))

Arguments may have names: `SIZE => INTERVAL '10' MINUTE`.

The stream stands in the tree as a table whose meta has the clause, as if its window were written in brackets.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from windrow.cql.source import Cursor
from windrow.cql.windows import Amount, WindowClause, parse_amount
from windrow.errors import BindingError, CQLSyntaxError
from windrow.plan.nodes import WindowKind

FUNCTIONS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
FORMS = {
    "TUMBLE": "TUMBLE(s, ts, '10 min')",
    "HOP": "HOP(s, ts, '2 min', '10 min')",
    "SESSION": "SESSION(s PARTITION BY k, ts, '5 min')",
    "CUMULATE": "CUMULATE(s, ts, '2 min', '10 min')",
}
_LENGTHS = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
}


@dataclass
class WindowCall:
    """A window function as written: the stream, its time column, and lengths by name."""

    function: str
    offset: int
    stream: str = ""
    quoted: bool = False
    time: tuple[str, int] | None = None
    partition: tuple[tuple[str, int], ...] = ()
    lengths: dict[str, Amount] = field(default_factory=dict)


def at_window_function(cursor: Cursor) -> bool:
    """Is the cursor at TUMBLE(, HOP(, SESSION( or CUMULATE(, alone or within TABLE( )?"""
    words = [str(t.text).upper() for t in cursor.tokens[cursor.index : cursor.index + 4]]
    if words[:2] == ["TABLE", "("]:
        words = words[2:]
    return len(words) >= 2 and words[0] in FUNCTIONS and words[1] == "("


def parse_window_function(cursor: Cursor) -> tuple[WindowCall, WindowClause]:
    """Parse one call, whatever stands around it."""
    start = cursor.offset
    wrapped = cursor.accept("TABLE")
    if wrapped:
        cursor.expect("(")
    call = WindowCall(cursor.word, cursor.offset)
    cursor.take()
    cursor.expect("(")
    _arguments(cursor, call)
    if wrapped:
        cursor.expect(")")
    text = cursor.source.text[start : cursor.tokens[cursor.index - 1].end + 1]
    return call, clause_of(
        call.function, call.lengths, cursor, start, " ".join(text.split()), call.partition, call.time
    )


def _arguments(cursor: Cursor, call: WindowCall) -> None:
    wanted = ["DATA", "TIMECOL", *_LENGTHS[call.function]]
    while True:
        name = _argument_name(cursor) or (wanted[0] if wanted else "")
        if name not in wanted:
            raise cursor.unexpected(")", hint=f"write {FORMS[call.function]}")
        wanted.remove(name)
        if name == "DATA":
            _data(cursor, call)
        elif name == "TIMECOL":
            call.time = _descriptor(cursor)
        else:
            call.lengths[name] = parse_amount(cursor, name)
        if not cursor.accept(","):
            break
    cursor.expect(")", hint=f"write {FORMS[call.function]}")
    missing = [name for name in wanted if name != "OFFSET"]
    if missing:
        raise CQLSyntaxError(
            f"{call.function} has no {missing[0]}",
            hint=f"write {FORMS[call.function]}",
            span=cursor.source.span(call.offset),
        )


def _argument_name(cursor: Cursor) -> str:
    """Consume `NAME =>`; "" when the argument has no name."""
    index, name = cursor.index, cursor.word
    if name:
        cursor.take()
        if cursor.accept("=>") or cursor.accept("=", ">"):
            return name
        cursor.index = index
    return ""


def _data(cursor: Cursor, call: WindowCall) -> None:
    cursor.accept("TABLE")
    call.quoted = cursor.kind == "IDENTIFIER"
    call.stream = cursor.name("the name of a stream", hint=f"write {FORMS[call.function]}")
    if cursor.accept("PARTITION BY") or cursor.accept("PARTITION", "BY"):
        wrapped = cursor.accept("(")
        columns = [_descriptor(cursor)]
        while (wrapped or call.function == "SESSION") and _more_columns(cursor, wrapped):
            columns.append(_descriptor(cursor))
        if wrapped:
            cursor.expect(")")
        call.partition = tuple(columns)
    if call.partition and call.function != "SESSION":
        raise CQLSyntaxError(
            f"PARTITION BY in {call.function}",
            hint=f"write {FORMS[call.function]} and GROUP BY the columns",
            span=cursor.source.span(call.partition[0][1]),
        )


def _more_columns(cursor: Cursor, wrapped: bool) -> bool:
    """After a column to partition by: does another one follow, and not yet the time?

    `SESSION(s PARTITION BY a, b, ts, '5 min')`: the last name before a length is the time.
    """
    if cursor.word != "," or wrapped:
        return cursor.accept(",")
    following = cursor.tokens[cursor.index + 1 : cursor.index + 4]
    if len(following) == 3 and str(following[0].text).upper() != "DESCRIPTOR" and str(following[1].text) == ",":
        names_follow = following[2].token_type.name in ("VAR", "IDENTIFIER")
        return names_follow and cursor.accept(",")
    return False


def _descriptor(cursor: Cursor) -> tuple[str, int]:
    """A column, alone or as DESCRIPTOR(column); an alias before the dot can only be this stream's."""
    wrapped = cursor.accept("DESCRIPTOR")
    if wrapped:
        cursor.expect("(")
    offset = cursor.offset
    name = cursor.name("a column")
    if cursor.accept("."):
        name = cursor.name("a column")
    if wrapped:
        cursor.expect(")")
    return name, offset


def clause_of(
    function: str,
    lengths: dict[str, Amount],
    cursor: Cursor,
    offset: int,
    text: str,
    partition: tuple[tuple[str, int], ...] = (),
    time: tuple[str, int] | None = None,
) -> WindowClause:
    """The window that a call makes: `lengths` has SIZE, SLIDE or STEP and OFFSET, or GAP."""
    for name, amount in lengths.items():
        if name != "OFFSET" and amount.value <= 0:
            raise BindingError(
                f"{name} {amount.text} is not positive",
                hint=f"write {FORMS[function]} with lengths greater than zero",
                span=cursor.source.span(amount.offset),
            )
    if function == "SESSION":
        return WindowClause(WindowKind.SESSION, text, offset, lengths["GAP"], partition=partition, time=time)
    kind, size = WindowKind.RANGE, lengths["SIZE"]
    if function == "CUMULATE":
        kind, step = WindowKind.CUMULATE, lengths["STEP"]
        if size.value % step.value:
            raise BindingError(
                f"SIZE {size.text} is not a multiple of STEP {step.text}",
                hint=f"write {FORMS[function]}: the last window ends where the next ones begin",
                span=cursor.source.span(size.offset),
            )
    slide = lengths.get("SLIDE", lengths.get("STEP", size))
    clause = WindowClause(kind, text, offset, size, slide, time=time, aligned=True)
    return replace(clause, shift=lengths.get("OFFSET"))
