"""Views and queries in FROM: each is the SELECT that it names, put into a WITH before everything else.

    CREATE VIEW v AS SELECT a FROM s [RANGE 5];
    SELECT COUNT(*) FROM v     ->     WITH v AS (SELECT a FROM s [RANGE 5]) SELECT COUNT(*) FROM v

Law: the plan is that of the text with the SELECT in the place of the name. A name that a WITH of the query itself gives
is that WITH's; the text of a view sees no WITH but its own. Texts are appended to that of the script, so that every
offset has its text. Cost: each text is parsed once for each query that reads it, however often it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from windrow.catalog import Catalog
from windrow.cql.nesting import DEPTH, CommonTable, common_table, put_common_table, too_deep
from windrow.cql.scope import span_of
from windrow.cql.source import ScriptText
from windrow.cql.statement_forms import CreateViewStatement, SelectStatement
from windrow.cql.statements import parsed
from windrow.cql.walks import find_all
from windrow.errors import BindingError


@dataclass
class Composition:
    """A query with what it reads put into its WITH: the text of all of it, the tree, and the names."""

    source: ScriptText
    tree: exp.Expr
    over: tuple[str, ...] = ()


def composed(tree: exp.Expr, catalog: Catalog, source: ScriptText, name: str) -> Composition:
    """The query called `name` with all the views and queries that it reads."""
    if not catalog.views and not catalog.queries:
        return Composition(source, tree)
    reader = _Reader(catalog, source)
    reader.read(tree, name.lower())
    if not reader.found:
        return Composition(source, tree)
    _put_first(tree, [one.as_common_table() for one in reader.found.values()])
    return Composition(reader.source, tree, tuple(one.name for one in reader.found.values()))


@dataclass
class _Named:
    """A view or query that is read, with its tree."""

    name: str
    tree: exp.Query

    def as_common_table(self) -> exp.CTE:
        return exp.CTE(this=self.tree, alias=exp.TableAlias(this=exp.to_identifier(self.name, quoted=True)))


@dataclass
class _Reader:
    """Finds what a query reads, what that reads, and so on; `found` has what is read before its reader."""

    catalog: Catalog
    source: ScriptText
    found: dict[str, _Named] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)

    def read(self, tree: exp.Expr, name: str) -> None:
        """Put every table that is a view or a query in touch with its tree."""
        self.inside.append(name)
        for table in self._tables(tree):
            key = table.name.lower()
            if key not in self.found:
                self._find(key, table)
            put_common_table(table, CommonTable(self.found[key].tree))
        self.inside.pop()

    def _tables(self, tree: exp.Expr) -> Iterator[exp.Table]:
        catalog = self.catalog
        for table in find_all(tree, exp.Table):
            key = table.name.lower()
            if common_table(table) is not None or table.args.get("db") or key in catalog.streams:
                continue
            if key in catalog.tables:
                continue
            if key in catalog.views or key in catalog.queries:
                yield table
            elif key == self.inside[-1]:
                raise BindingError(f'"{table.name}" reads itself', span=span_of(table, self.source))

    def _find(self, key: str, table: exp.Table) -> None:
        if key in self.inside:
            raise BindingError(f'"{table.name}" reads itself', span=span_of(table, self.source))
        if len(self.inside) > DEPTH:
            raise too_deep(span_of(table, self.source))
        view = self.catalog.views.get(key)
        plan = view.plan if view is not None else self.catalog.queries[key]
        begin = len(self.source.text) + 1
        self.source = self.source.with_more(plan.text, plan.name)
        statement = parsed(self.source, begin, len(self.source.text), 1)
        assert isinstance(statement, SelectStatement | CreateViewStatement)
        self.read(statement.tree, key)
        self.found[key] = _Named(plan.name, statement.tree)


def _put_first(tree: exp.Expr, tables: list[exp.CTE]) -> None:
    """Put queries into the WITH of a query, before those that are there."""
    while isinstance(tree, exp.Subquery | exp.Paren):
        tree = tree.this
    with_ = tree.args.get("with_")
    if with_ is None:
        tree.set("with_", exp.With(expressions=tables))
    else:
        with_.set("expressions", [*tables, *with_.expressions])
