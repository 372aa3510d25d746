"""One-time queries: a SELECT with parameters, ORDER BY, LIMIT and OFFSET, over answers as of now or of another instant.

What a continuous query has no use for is taken off the tree before it is bound, and done to the answer: rows are
sorted by columns of the answer, or by expressions that are added to it and taken away again.

`FROM q AS OF TIMESTAMP '...'` (or AS OF 42) reads a query's kept answers: each instant of each query is a table of
its own, which the caller provides (`travels`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from sqlglot import exp

from windrow.catalog import Catalog
from windrow.cql.dialect import AS_OF
from windrow.cql.parameters import Parameters, with_values
from windrow.cql.scope import span_of
from windrow.cql.select import bind_select
from windrow.cql.statement_forms import RepeatedSelect, SelectStatement
from windrow.cql.statements import parse, whole
from windrow.errors import BindingError, UnsupportedError
from windrow.operators.aggregates.order import encode
from windrow.operators.elements import one
from windrow.plan.nodes import QueryPlan

HIDDEN = "order by "


@dataclass(frozen=True)
class AnswerSortKey:
    """A column of the answer, by its place, and how it is sorted."""

    column: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class OneTimeQuery:
    """A bound one-time query: a plan, and what is done to its answer."""

    plan: QueryPlan
    order: tuple[AnswerSortKey, ...] = ()
    limit: int | None = None
    offset: int = 0

    def finished(self, answer: pa.Table) -> pa.Table:
        """The answer, sorted and cut, without what was only there to sort by."""
        if self.order:
            answer = answer.take(pa.array(_sorted(answer, self.order)))
        if self.offset or self.limit is not None:
            answer = answer.slice(self.offset, self.limit)
        shown = [n for n in answer.column_names if not n.startswith(HIDDEN)]
        return answer if len(shown) == answer.num_columns else answer.select(range(len(shown)))


@dataclass
class OneTimeSelect:
    """A parsed one-time query. `travels`: (query, instant) by the name of the table that stands for it."""

    statement: SelectStatement
    order: list[exp.Ordered] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0
    travels: dict[str, tuple[str, int | datetime]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, parameters: Parameters | None = None) -> OneTimeSelect:
        """Parse one SELECT."""
        statements = parse(with_values(text, parameters))
        statement = statements[0] if len(statements) == 1 else None
        statement = whole(statement) if isinstance(statement, RepeatedSelect) else statement
        if not isinstance(statement, SelectStatement) or statement.keep is not None:
            raise BindingError(
                "expected one SELECT",
                hint="a one-time query is one SELECT; statements are for execute",
                span=statements[0].span if statements else None,
            )
        found = cls(statement)
        found._take_off()
        found._find_travels()
        return found

    @property
    def reads(self) -> set[str]:
        """The names in FROM, in lower case."""
        return {table.name.lower() for table in self.statement.tree.find_all(exp.Table)}

    def _take_off(self) -> None:
        tree = self.statement.tree
        order, limit, offset = (tree.args.get(k) for k in ("order", "limit", "offset"))
        self.order = list(order.expressions) if order is not None else []
        self.limit = self._count(limit, "LIMIT")
        self.offset = self._count(offset, "OFFSET") or 0
        for key in ("order", "limit", "offset"):
            tree.set(key, None)

    def _count(self, clause: exp.Expr | None, word: str) -> int | None:
        if clause is None:
            return None
        value = clause.args.get("expression")
        options = clause.args.get("limit_options")
        plain = isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdecimal()
        if not isinstance(clause, (exp.Limit, exp.Offset)) or not plain or (options and options.args.get("percent")):
            raise UnsupportedError(
                f"{word} is a whole number here", hint=f"write {word} 10", span=span_of(clause, self.statement.source)
            )
        return int(str(value.this))  # type: ignore[union-attr]

    def _find_travels(self) -> None:
        for table in self.statement.tree.find_all(exp.Table):
            alias = table.args.get("alias")
            if not isinstance(alias, exp.TableAlias) or AS_OF not in alias.meta:
                continue
            instant = self._instant(alias.meta.pop(AS_OF))
            name = f"{table.name} as of {instant}"
            self.travels[name] = (table.name, instant)
            if alias.args.get("this") is None:
                alias.set("this", exp.to_identifier(table.name, quoted=True))
            table.set("this", exp.to_identifier(name, quoted=True))

    def _instant(self, node: exp.Expr) -> int | datetime:
        value = node.this if isinstance(node, exp.Cast | exp.Neg) else node
        if isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdecimal():
            return -int(str(value.this)) if isinstance(node, exp.Neg) else int(str(value.this))
        if isinstance(value, exp.Literal) and value.is_string:
            try:
                found = datetime.fromisoformat(str(value.this))
                return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo is not None else found
            except ValueError:
                pass
        raise BindingError(
            "AS OF needs an instant",
            hint="write AS OF TIMESTAMP '2026-03-01 12:00:00', or AS OF 42 where time is counted",
            span=span_of(node, self.statement.source),
        )

    def bind(self, catalog: Catalog) -> OneTimeQuery:
        """Bind it to a catalog that has a table for each of `travels`."""
        if not self.order:
            return OneTimeQuery(self._plan(catalog), (), self.limit, self.offset)
        plan = self._plan(catalog)
        names = [shown.lower() for shown, _ in plan.output]
        keys, added = [], 0
        for item in self.order:
            place = self._place(item.this, names)
            if place is None:
                self._add(item.this, added)
                place, added = len(names) + added, added + 1
            keys.append(AnswerSortKey(place, bool(item.args.get("desc")), bool(item.args.get("nulls_first"))))
        return OneTimeQuery(self._plan(catalog) if added else plan, tuple(keys), self.limit, self.offset)

    def _plan(self, catalog: Catalog) -> QueryPlan:
        s = self.statement
        return bind_select(s.tree.copy(), catalog, s.source, "ask", s.text, s.span, True)

    def _place(self, key: exp.Expr, names: list[str]) -> int | None:
        """The column of the answer that a sort key names, or counts; None: it is an expression of its own."""
        span = span_of(key, self.statement.source)
        if isinstance(key, exp.Literal) and not key.is_string:
            place = int(str(key.this)) if str(key.this).isdecimal() else 0
            if not 1 <= place <= len(names):
                raise BindingError(f"ORDER BY {key.this}: the answer has {len(names)} columns", span=span)
            return place - 1
        if isinstance(key, exp.Var):
            raise UnsupportedError("ORDER BY ALL", hint="name the columns", span=span)
        if isinstance(key, exp.Column) and not key.table and names.count(key.name.lower()) == 1:
            return names.index(key.name.lower())
        return None

    def _add(self, key: exp.Expr, number: int) -> None:
        tree = self.statement.tree
        if not isinstance(tree, exp.Select) or tree.args.get("distinct"):
            raise UnsupportedError(
                "ORDER BY something that is not selected",
                hint="a set operation or DISTINCT is sorted by columns of its answer",
                span=span_of(key, self.statement.source),
            )
        tree.append("expressions", exp.alias_(key.copy(), f"{HIDDEN}{number}", quoted=True))


def _sorted(answer: pa.Table, keys: tuple[AnswerSortKey, ...]) -> np.ndarray:
    """The order of rows: NaN is the greatest number, texts compare by their bytes, equal rows keep their order."""
    columns: list[np.ndarray] = []
    for key in keys:
        column = one(answer.column(key.column))
        (codes,), _ = encode([column])
        codes = ~codes if key.descending else codes
        null = np.asarray(column.is_null())
        columns += [null != key.nulls_first, np.where(null, 0, codes)]
    return np.lexsort(columns[::-1]) if columns else np.arange(answer.num_rows)
