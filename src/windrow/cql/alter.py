"""ALTER: what can be changed of a declaration while everything goes on, and why the rest cannot.

    ALTER STREAM s SET WITHIN 10 SECONDS IDLE AFTER 1 MINUTE      clauses that judge rows to come
    ALTER STREAM s SET (max_bytes => 1000000)                     options of its source, opened anew where it was
    ALTER TABLE t SET (refresh => '1 minute')                     the same of a table, which is read again
    ALTER SINK k SET (dsn => '...')                               what waits for the sink goes to the new one
    ALTER QUERY q SET KEEP 7 DAYS | SET KEEP NONE                 how long its answers last
    ALTER STREAM s ADD COLUMN c BIGINT | DROP COLUMN c            also of tables (`alter_columns`)

What a change would take back (history, names under which rows come, and state and answers are kept) is refused with
the reason and a way around it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from windrow.catalog import Catalog, Declared, SinkDef, StreamDef, TableDef
from windrow.cql.alter_columns import parse_column, with_column, without_column
from windrow.cql.ddl import ColumnSyntax, DeclarationSyntax, bind_clauses, parse_clause, parse_options
from windrow.cql.keep_syntax import bind_keep, split_keep
from windrow.cql.source import Cursor, ScriptText
from windrow.cql.windows import Amount, parse_amount
from windrow.errors import UnsupportedError
from windrow.plan.nodes import QueryPlan
from windrow.scalar_engine import quote

KINDS = ("stream", "table", "query", "sink")
_PLACE = frozenset(("source", "path", "topic", "table", "query", "format", "starting"))
"""Options that say what is read: with another, where the source was left would mean something else."""
_REASONS = {
    "RENAME": (
        "what belongs to a {kind} cannot be renamed",
        "rows come, and what is kept (state, offsets, answers, what waits for sinks) is kept, under its name",
        "read it under another name: CREATE VIEW new AS SELECT a AS b FROM {name}",
    ),
}


@dataclass(frozen=True)
class AlterSyntax:
    """An ALTER as written: clauses of a stream, options, a column that comes or goes, or how long answers are kept
    (None: no longer)."""

    kind: str
    name: str
    clauses: DeclarationSyntax | None = None
    options: dict[str, str] = field(default_factory=dict)
    keep: Amount | None = None
    add: ColumnSyntax | None = None
    drop: ColumnSyntax | None = None


def parse_alter(cursor: Cursor) -> AlterSyntax:
    """Parse what follows ALTER."""
    kind = cursor.word.lower()
    if kind not in KINDS:
        raise cursor.unexpected("STREAM, TABLE, QUERY or SINK", hint="write ALTER STREAM s SET WITHIN 10 SECONDS")
    cursor.take()
    name = cursor.name(f"the name of the {kind}")
    if (refusal := _REASONS.get(cursor.word)) is not None:
        primary, detail, hint = (part.format(kind=kind, name=name) for part in refusal)
        raise UnsupportedError(primary, detail=detail, hint=hint, span=cursor.source.span(cursor.offset))
    if kind in ("stream", "table") and cursor.accept("ADD"):
        return AlterSyntax(kind, name, add=parse_column(cursor, adds=True))
    if kind in ("stream", "table") and cursor.accept("DROP"):
        return AlterSyntax(kind, name, drop=parse_column(cursor, adds=False))
    cursor.expect("SET", hint=f"write ALTER {kind.upper()} {name} SET ...")
    if kind == "query":
        cursor.expect("KEEP", hint=f"write ALTER QUERY {name} SET KEEP 7 DAYS; anything else: CREATE OR REPLACE QUERY")
        keep = None if cursor.accept("NONE") else parse_amount(cursor, "KEEP")
        return AlterSyntax(kind, name, keep=keep)
    if cursor.word == "(":
        return AlterSyntax(kind, name, options=parse_options(cursor))
    if kind != "stream":
        raise cursor.unexpected("options", hint=f"write ALTER {kind.upper()} {name} SET (option => 'value')")
    clauses = DeclarationSyntax(kind, name, cursor.offset)
    while cursor.current is not None:
        clause, span = parse_clause(cursor, clauses), cursor.source.span(cursor.offset)
        if clause in ("RETAIN", "TIMESTAMP BY"):
            why = "what it has kept so far" if clause == "RETAIN" else "the time of every row that came"
            raise UnsupportedError(
                f"{clause} cannot be changed",
                detail=f"it decides about {why}",
                hint="declare another stream with it",
                span=span,
            )
    return AlterSyntax(kind, name, clauses)


def bind_alter(syntax: AlterSyntax, catalog: Catalog, source: ScriptText) -> Declared:
    """The declaration after an ALTER."""
    item = catalog.kinds()[syntax.kind][syntax.name.lower()]
    match item:
        case StreamDef() | TableDef() if syntax.add is not None:
            return with_column(item, syntax.add, source)
        case StreamDef() | TableDef() if syntax.drop is not None:
            return without_column(item, syntax.drop, source)
        case StreamDef() if syntax.clauses is not None:
            return bind_clauses(item, syntax.clauses, source)
        case StreamDef() | TableDef():
            _check_options(syntax, bool(item.options.get("source")))
            return replace(item, options={**item.options, **syntax.options})
        case SinkDef():
            return replace(item, options={**item.options, **syntax.options})
        case QueryPlan():
            keep = bind_keep(syntax.keep, item.time_type, source)
            return replace(item, keep=keep, text=_kept(item, syntax.keep), made=None, root=item.root)
    raise TypeError(f"not to be altered: {item!r}")


def _check_options(syntax: AlterSyntax, has_source: bool) -> None:
    if not has_source:
        raise UnsupportedError(
            f'{syntax.kind} "{syntax.name}" has no source', hint="its rows come from the program, which has the options"
        )
    if taken := _PLACE & {k.lower() for k in syntax.options}:
        raise UnsupportedError(
            f'the option "{min(taken)}" cannot be changed',
            detail="it says what is read, and the source would not be where it was left",
            hint=f"declare another {syntax.kind}",
        )


def _kept(plan: QueryPlan, keep: Amount | None) -> str:
    """The text of a query with another KEEP."""
    from windrow.cql.dialect import tokenize

    tokens = tokenize(plan.text)
    cursor = Cursor(ScriptText(plan.text), tokens)
    text = plan.text
    if split_keep(cursor) is not None:
        text = text[: int(tokens[cursor.end].start)].rstrip()
    if str(tokens[0].text).upper() != "CREATE":
        text = f"CREATE QUERY {quote(plan.name)} AS {text}"
    return text if keep is None else f"{text}\nKEEP {keep.text}"
