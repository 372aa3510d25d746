"""The statements of a script as written, one class for each form; what they ask for is `binding`'s to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.catalog import SinkDef
from windrow.cql import prepared
from windrow.cql.alter import AlterSyntax
from windrow.cql.archive_syntax import ArchiveSyntax
from windrow.cql.ddl import DeclarationSyntax
from windrow.cql.source import ScriptText
from windrow.cql.sql_functions import FunctionSyntax
from windrow.cql.template_syntax import QueriesSyntax, TemplateSyntax
from windrow.cql.walks import nodes
from windrow.cql.windows import Amount
from windrow.errors import Span

if TYPE_CHECKING:
    from sqlglot import exp

StatementPlace = tuple[Span, str, ScriptText]


@dataclass(frozen=True)
class Statement:
    """One statement: its place, its text, and the script it stands in."""

    span: Span
    text: str
    source: ScriptText


def let_go(statement: Statement) -> None:
    """Take the tree of a statement apart that nobody needs any more: its nodes know each other, both ways, so it would
    stay until the garbage collector looks for it."""
    tree = getattr(statement, "tree", None)
    for node in nodes(tree) if tree is not None else ():
        node.parent = None


@dataclass(frozen=True)
class Declaration(Statement):
    """CREATE STREAM or CREATE TABLE; `if_missing`: nothing happens if it is there."""

    syntax: DeclarationSyntax
    if_missing: bool = False


@dataclass(frozen=True)
class SelectStatement(Statement):
    """CREATE QUERY name AS SELECT [KEEP ...], or a bare SELECT with the name its position gives.

    `if_missing`: nothing happens if it is there; `replaces`: one that is there is dropped first.
    """

    name: str
    tree: exp.Query
    name_span: Span
    keep: Amount | None = None
    if_missing: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class RepeatedSelect(Statement):
    """CREATE QUERY that differs in literals only from one that has been parsed."""

    name: str
    offset: int
    repeated: prepared.Repeated

    @property
    def name_span(self) -> Span:
        return self.source.span(self.offset + self.repeated.cut.name_offset)


@dataclass(frozen=True)
class CreateArchiveStatement(Statement):
    """CREATE ARCHIVE name AS SELECT ... KEY ... EVERY ..."""

    name: str
    tree: exp.Query
    name_span: Span
    syntax: ArchiveSyntax


@dataclass(frozen=True)
class CreateTemplateStatement(Statement):
    """CREATE TEMPLATE name (parameters) AS SELECT ..."""

    name: str
    name_span: Span
    syntax: TemplateSyntax


@dataclass(frozen=True)
class CreateQueriesStatement(Statement):
    """CREATE QUERIES name FROM TEMPLATE name VALUES ... | USING TABLE name."""

    name: str
    name_span: Span
    syntax: QueriesSyntax


@dataclass(frozen=True)
class CreateSinkStatement(Statement):
    """CREATE SINK name FOR query TO kind (options)."""

    definition: SinkDef
    name_span: Span
    query_span: Span


@dataclass(frozen=True)
class DropStatement(Statement):
    """DROP kind [IF EXISTS] name; of queries from a template, those WHERE a condition holds."""

    kind: str
    name: str
    if_exists: bool
    name_span: Span
    where: str | None = None
    cascade: bool = False


@dataclass(frozen=True)
class ExplainStatement(Statement):
    """EXPLAIN of a SELECT (`tree`), of a registered query (`name`), or of a CREATE QUERY (both)."""

    format: str
    tree: exp.Query | None
    name: str | None
    name_span: Span
    replaces: bool = False


@dataclass(frozen=True)
class CreateViewStatement(Statement):
    """CREATE [OR REPLACE] VIEW name AS SELECT ..."""

    name: str
    tree: exp.Query
    name_span: Span
    if_missing: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class CreateFunctionStatement(Statement):
    """CREATE [OR REPLACE] FUNCTION name(parameters) AS expression."""

    syntax: FunctionSyntax
    name_span: Span
    if_missing: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class AlterStatement(Statement):
    """ALTER STREAM | TABLE | QUERY | SINK name ..."""

    syntax: AlterSyntax
    name_span: Span


def created_by(statement: Statement) -> tuple[str, str] | None:
    """The kind and the name of what a statement creates if it is not there; None for all other statements, those that
    look for themselves (IF NOT EXISTS, OR REPLACE) included."""
    if getattr(statement, "if_missing", False) or getattr(statement, "replaces", False):
        return None
    match statement:
        case Declaration(syntax=syntax):
            return syntax.kind, syntax.name
        case SelectStatement(name=name) | RepeatedSelect(name=name):
            return "query", name
        case CreateViewStatement(name=name):
            return "view", name
        case CreateFunctionStatement(syntax=function):
            return "function", function.name
        case CreateArchiveStatement(name=name):
            return "archive", name
        case CreateTemplateStatement(name=name):
            return "template", name
        case CreateQueriesStatement(name=name):
            return "queries", name
        case CreateSinkStatement(definition=definition):
            return "sink", definition.name
    return None


@dataclass(frozen=True)
class ShowStatement(Statement):
    """SHOW STREAMS | TABLES | ... [LIKE pattern]."""

    kind: str
    like: str | None = None


@dataclass(frozen=True)
class DescribeStatement(Statement):
    """DESCRIBE name."""

    name: str
    name_span: Span
