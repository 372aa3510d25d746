"""The columns that a family's queries test, group by and aggregate: computed once for all of them.

Expressions are computed for all queries in one call of the scalar engine. If that raises, it is found which
expressions do; the plans of the queries that have them are followed in their own order, and those that reach the error
there are taken out. For the others the value is NULL on rows that they do not reach.

Cost: one call per advance; where something raises, one per expression, and one per query that has such an expression.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa

from windrow.errors import RuntimeFailure
from windrow.operators import scalar
from windrow.operators.aggregates.vectors import Int64s
from windrow.operators.conjunction import holds
from windrow.operators.elements import Elements
from windrow.operators.linear import CallOperator as CallOperator
from windrow.operators.linear import Formula
from windrow.sharing.member import Kind, Member, UserCall

Columns = Mapping[str, pa.Array]


class Expressions:
    """What must be computed for the members there are, and for whom."""

    def __init__(self, functions: Mapping[str, Callable[..., object]]) -> None:
        self.functions = functions
        self._kinds: Counter[Kind] = Counter()
        self._needed: tuple[dict[str, Formula], dict[str, UserCall]] | None = None  # by all kinds; None: not known now

    def add(self, kind: Kind, times: int = 1) -> None:
        """Compute what one more query of a kind needs, too; with -1, no longer."""
        before = self._kinds[kind]
        self._kinds[kind] += times
        if self._kinds[kind] <= 0:
            del self._kinds[kind]
        if not before or kind not in self._kinds:
            self._needed = None

    def _all(self) -> tuple[dict[str, Formula], dict[str, UserCall]]:
        """The formulas and calls of all kinds, found again when rows come after kinds have come or gone."""
        if self._needed is None:
            formulas = {sql: f for k in self._kinds for sql, f in k.formulas.items()}
            self._needed = formulas, {c.column: c for k in self._kinds for c in k.user_calls}
        return self._needed

    def computed(
        self, members: Iterable[Member], columns: Columns, rows: int, failed: dict[str, RuntimeFailure]
    ) -> dict[str, pa.Array]:
        """All attributes, arguments and keys; members whose expressions raise are named in `failed`."""
        formulas, calls = self._all()
        try:
            called = dict(columns)
            for call in calls.values():
                called[call.column] = self._call(call, columns, rows)
            return _computed(formulas, called, rows)
        except RuntimeFailure:
            return self._apart(members, columns, rows, failed)

    def _call(self, call: UserCall, columns: Columns, rows: int) -> pa.Array:
        given = _computed({f.sql: f for f in call.arguments}, columns, rows)
        named = {f"a{i}": given[f.sql] for i, f in enumerate(call.arguments)}
        operator = CallOperator(call.column, call.function, self.functions[call.function], list(named), call.type)
        batch = Elements.positive(np.zeros(rows, np.int64), 1, named)
        return operator.advance([batch], 0).columns[call.column]

    def _apart(
        self, members: Iterable[Member], columns: Columns, rows: int, failed: dict[str, RuntimeFailure]
    ) -> dict[str, pa.Array]:
        """Something raised: follow the plans of those that have it, and use NULL for the rest.

        A row on which an expression raises fails an earlier predicate of every query that is left, so NULL there does
        no harm.
        """
        formulas, calls = self._all()
        raising = _raising(formulas, columns, rows)
        results: dict[str, pa.Array] = dict(columns)
        touched = {k for k in self._kinds if k.user_calls or not raising.isdisjoint(k.formulas)}
        for member in members:
            if member.kind not in touched:
                continue
            try:
                called = self._alone(member, columns, rows)
            except RuntimeFailure as error:
                failed[member.name] = error.kept()
            else:
                for column, (at, values) in called.items():
                    results[column] = _over(results.get(column), at, values, rows)
        for call in calls.values():
            results.setdefault(call.column, pa.nulls(rows, call.type))
        return _computed(formulas, results, rows, attempt=True)

    def _alone(self, member: Member, columns: Columns, rows: int) -> dict[str, tuple[Int64s, pa.Array]]:
        """A plan followed step by step; what its users' functions returned, at which rows."""
        at = np.arange(rows)
        mine = dict(columns)
        called: dict[str, tuple[Int64s, pa.Array]] = {}
        for step in member.steps:
            if isinstance(step, UserCall):
                mine[step.column] = self._call(step, mine, len(at))
                called[step.column] = (at, mine[step.column])
                continue
            keep = np.flatnonzero(holds({c: mine[c] for c in step.reads}, len(at), [step.sql]))
            if len(keep) < len(at):
                picks = pa.array(keep)
                at, mine = at[keep], {c: a.take(picks) for c, a in mine.items()}
        kind = member.kind
        wanted = {*kind.keys, *(c.column for c in kind.calls if c.column is not None)}
        _computed({s: f for s, f in kind.formulas.items() if s in wanted}, mine, len(at))
        return called


def _raising(formulas: Mapping[str, Formula], columns: Columns, rows: int) -> set[str]:
    """The expressions that raise on these rows; those over users' functions are not asked."""
    found = set()
    for sql, formula in formulas.items():
        if formula.copies is None and all(c in columns for c in formula.reads):
            try:
                _computed({sql: formula}, columns, rows)
            except RuntimeFailure:
                found.add(sql)
    return found


def _computed(
    formulas: Mapping[str, Formula], columns: Columns, rows: int, attempt: bool = False
) -> dict[str, pa.Array]:
    """Every formula by its SQL; `attempt`: NULL where it raises."""
    found = {sql: columns[f.copies] for sql, f in formulas.items() if f.copies is not None}
    computed = [(sql, f) for sql, f in formulas.items() if f.copies is None]
    if computed:
        reads = {c: columns[c] for _, f in computed for c in f.reads}
        asked = [(f"TRY({f.sql})" if attempt else f.sql, f.type) for _, f in computed]
        found |= zip((sql for sql, _ in computed), scalar.evaluate(reads, rows, asked), strict=True)
    return found


def _over(known: pa.Array | None, at: Int64s, values: pa.Array, rows: int) -> pa.Array:
    """Values at some rows, over what is known elsewhere."""
    picks = np.full(rows, -1, np.int64) if known is None else np.arange(rows)
    base = 0 if known is None else rows
    picks[at] = base + np.arange(len(at))
    source = values if known is None else pa.concat_arrays([known, values])
    return source.take(pa.array(picks, mask=picks < 0))


__all__ = ["Expressions"]
