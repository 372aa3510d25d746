"""Plans for the instances of templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from windrow.catalog import Catalog, Instance, QueriesDef, TemplateDef
from windrow.catalog.names import Names
from windrow.errors import BindingError, WindrowError
from windrow.optimize import optimize
from windrow.plan.nodes import QueryPlan
from windrow.runtime.instances import without_collector


class TemplatePlanner:
    """Plans instances as an engine runs queries: with its rules and its strategy."""

    def __init__(self, off: Iterable[str], strategy: str) -> None:
        self.off, self.strategy = frozenset(off), strategy

    def plans(self, template: TemplateDef, instances: Iterable[Instance], catalog: Catalog) -> dict[str, QueryPlan]:
        """The plan of every instance, by its name."""
        from windrow.cql.templates import writer

        write = writer(template)
        with without_collector():
            found = {i.name: self._plan(i, write.text(i.literals), catalog) for i in instances}
        shown = {(tuple([n for n, _ in plan.output]), plan.has_op): name for name, plan in found.items()}
        if len(shown) > 1:
            one, other, *_ = shown.values()
            raise BindingError(
                f"{one} and {other} differ in the columns of their answers",
                hint="name every column of the SELECT list with AS",
            )
        return found

    def _plan(self, instance: Instance, text: str, catalog: Catalog) -> QueryPlan:
        from windrow import cql

        try:
            plan = cql.compile_instance(text, catalog, instance.name)
        except WindrowError as error:
            raise BindingError(f"{instance.name}: {error.primary}", detail=error.detail, hint=error.hint) from None
        return optimize(plan, catalog, off=self.off, strategy=self.strategy)

    def like(self, template: TemplateDef, catalog: Catalog) -> QueryPlan:
        """The plan of some instance, for the columns of the answers."""
        from windrow.cql.templates import sample

        return optimize(sample(template, catalog), catalog, off=self.off, strategy=self.strategy)

    def wanted(self, queries: QueriesDef, template: TemplateDef, rows: pa.Table) -> dict[str, Instance]:
        """The instances that the rows of a table ask for."""
        from windrow.cql.templates import rows_of, with_rows

        bare = replace(queries, instances=Names())
        return dict(with_rows(bare, rows_of(rows, template)).instances)


def instances_of(
    catalog: Catalog, tables: Mapping[str, pa.Table], planner: TemplatePlanner
) -> dict[str, Mapping[str, Instance]]:
    """The instances of all groups of a catalog, tables holding what they hold."""
    found: dict[str, Mapping[str, Instance]] = {}
    for key, queries in catalog.groups.items():
        template = catalog.templates[queries.template.lower()]
        if queries.table is None:
            found[key] = queries.instances
        else:
            found[key] = planner.wanted(queries, template, tables[queries.table.lower()])
    return found
