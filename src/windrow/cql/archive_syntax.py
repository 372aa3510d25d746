"""CREATE ARCHIVE: a query whose rows are kept on disk by key.

    CREATE ARCHIVE a AS SELECT ... KEY k [, ...] EVERY '10 minutes' [PARTITIONS 4 x 4] [REBUILD | NO REBUILD]

The clauses follow the SELECT. KEY may be a column's name too: the clause is the last KEY outside parentheses that names
and EVERY follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot.tokens import Token

from windrow.archive.keys import check_key
from windrow.archive.layout import ArchiveLayout
from windrow.catalog import ArchiveDef
from windrow.cql.scope import did_you_mean
from windrow.cql.source import Cursor, ScriptText
from windrow.cql.windows import Amount, Clock, parse_amount
from windrow.errors import BindingError, CQLSyntaxError, UnsupportedError
from windrow.plan.lifespan import greatest_lifetime
from windrow.plan.nodes import QueryPlan, StreamOp
from windrow.plan.patterns import Pattern, pattern

FORM = "CREATE ARCHIVE a AS SELECT ... KEY k EVERY '10 minutes' [PARTITIONS 4 x 4] [REBUILD | NO REBUILD]"


@dataclass(frozen=True)
class ArchiveSyntax:
    """The clauses behind the SELECT, as written; `layout` None: windrow chooses."""

    keys: tuple[tuple[str, int], ...]
    every: Amount
    layout: ArchiveLayout | None
    rebuild: bool | None


def split_archive(cursor: Cursor) -> tuple[list[Token], ArchiveSyntax]:
    """The tokens of the SELECT at the cursor, and the clauses behind it."""
    begin = cursor.index
    at = _clause_of(cursor.tokens[begin : cursor.end])
    if at is None:
        raise CQLSyntaxError(
            "an archive needs KEY and EVERY", hint=f"write {FORM}", span=cursor.source.span(cursor.offset)
        )
    select = list(cursor.tokens[begin : begin + at])
    cursor.index = begin + at
    return select, _clauses(cursor)


def _clause_of(tokens: Sequence[Token]) -> int | None:
    """Where the clauses begin."""
    depth, found = 0, None
    for i, word in enumerate(map(_word, tokens)):
        depth += (word in ("(", "[")) - (word in (")", "]"))
        if depth == 0 and word == "KEY" and _names_and_every(tokens[i + 1 :]):
            found = i
    return found


def _word(token: Token) -> str:
    return "" if token.token_type.name in ("STRING", "IDENTIFIER") else str(token.text).upper()


def _names_and_every(tokens: Sequence[Token]) -> bool:
    words = [_word(t) for t in tokens]
    i = 1
    while i + 1 < len(words) and words[i] == ",":
        i += 2
    return i < len(words) and words[i] == "EVERY"


def _clauses(cursor: Cursor) -> ArchiveSyntax:
    cursor.expect("KEY")
    keys = []
    while True:
        offset = cursor.offset
        keys.append((cursor.name("a column of the key"), offset))
        if not cursor.accept(","):
            break
    cursor.expect("EVERY", hint=f"write {FORM}")
    every = parse_amount(cursor, "EVERY")
    sides: tuple[int, int] | None = None
    rebuild: bool | None = None
    while cursor.current is not None:
        if sides is None and cursor.accept("PARTITIONS"):
            sides = _sides(cursor)
        elif rebuild is None and cursor.accept("NO"):
            cursor.expect("REBUILD", hint="write REBUILD or NO REBUILD")
            rebuild = False
        elif rebuild is None and cursor.accept("REBUILD"):
            rebuild = True
        else:
            raise cursor.unexpected("PARTITIONS, REBUILD or NO REBUILD", hint=f"write {FORM}")
    layout = None if sides is None else ArchiveLayout(*sides, rebuild=bool(rebuild))
    return ArchiveSyntax(tuple(keys), every, layout, rebuild)


def _sides(cursor: Cursor) -> tuple[int, int]:
    """`4 x 4`, `4x4` (which the tokenizer may have cut anywhere), or a square."""
    start, words = cursor.offset, []
    while cursor.current is not None and cursor.word not in ("REBUILD", "NO"):
        words.append(str(cursor.take().text))
    try:
        layout = ArchiveLayout.parse(" ".join(words).lower().replace("x", " x "))
    except BindingError as error:
        raise error.at(cursor.source.span(start)) from None
    return layout.insertions, layout.expirations


def bind_archive(plan: QueryPlan, syntax: ArchiveSyntax, source: ScriptText) -> ArchiveDef:
    """The definition of an archive over a bound query."""
    span = source.span(syntax.keys[0][1])
    if plan.root.op is not StreamOp.RELATION:
        raise UnsupportedError(
            "an archive keeps a relation", hint="remove the stream operator, or the SLIDE of the windows", span=span
        )
    if pattern(plan.root) is Pattern.STRICT:
        raise UnsupportedError(
            "the rows of this query cannot be archived",
            detail="its update pattern is strict: a row's end may depend on rows that have yet to come",
            hint="archive what is below its aggregates, negations and count windows; EXPLAIN shows the patterns",
            span=span,
        )
    lifetime = greatest_lifetime(plan.root)
    if lifetime is None:
        raise UnsupportedError(
            "the rows of this query never end",
            detail="an archive keeps rows until their lifetime is over",
            hint="bound the windows: [RANGE 1 DAY]",
            span=span,
        )
    columns = {shown: plan.root.schema[internal] for shown, internal in plan.output}
    keys = tuple(_column(name, offset, columns, source) for name, offset in syntax.keys)
    clock = Clock.TICKS if pa.types.is_integer(plan.time_type) else Clock.MICROSECONDS
    every = syntax.every.on(clock, source, "EVERY")
    if every < 1:
        raise BindingError("EVERY is too short", hint="write EVERY '10 minutes'", span=source.span(syntax.every.offset))
    try:
        check_key(keys, pa.schema(list(columns.items())))
    except BindingError as error:
        raise error.at(span) from None
    return ArchiveDef(plan.name, plan, columns, keys, every, lifetime, syntax.layout, syntax.rebuild)


def _column(name: str, offset: int, columns: Mapping[str, object], source: ScriptText) -> str:
    for column in columns:
        if column.lower() == name.lower():
            return column
    raise BindingError(
        f'the archive has no column "{name}"',
        hint=did_you_mean(name, list(columns)) or f"its columns are {', '.join(columns)}",
        span=source.span(offset),
    )
