"""The chain of one-input nodes above a join, which grows as expressions are bound at its top.

A call of a user's function adds the nodes that compute it, so that the rest of the expression sees a column; so do the
bounds of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from windrow.cql.bounds import EvaluationGrid, symbols, with_bounds
from windrow.cql.expressions import BindingContext, has_user_function
from windrow.cql.scope import resolved
from windrow.plan.expr import Expr, column
from windrow.plan.nodes import Call, Filter, Node, Project


@dataclass
class Pipeline:
    """A node that grows upwards, and the user-function calls it has computed."""

    context: BindingContext
    node: Node
    calls: dict[tuple[exp.Expr | str, ...], str] = field(default_factory=dict)
    grid: EvaluationGrid | None = None

    def expr(self, tree: exp.Expr) -> Expr:
        """Bind a resolved tree at the top of the pipeline."""
        self.provide(tree)
        return self.context.expr(self.hoist(tree))

    def provide(self, tree: exp.Expr) -> None:
        """Compute the bounds of the window that a tree reads; without a grid no name means one."""
        if self.grid is not None:
            self.node = with_bounds(self.node, symbols(tree), self.grid)

    def filter(self, tree: exp.Expr, clause: str) -> None:
        """Keep the rows for which the condition holds."""
        self.provide(tree)
        predicate = self.context.predicate(self.hoist(tree), clause)
        self.node = Filter(self.node, predicate)

    def hoist(self, tree: exp.Expr) -> exp.Expr:
        """The tree with every call of a user function replaced by the column that a `Call` computes."""
        if not has_user_function(tree, self.context.catalog):
            return tree
        return tree.copy().transform(self._hoist_call, copy=False)

    def _is_user(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Anonymous) and node.name.lower() in self.context.catalog.functions

    def _hoist_call(self, node: exp.Expr) -> exp.Expr:
        if not self._is_user(node):
            return node
        function = self.context.catalog.functions[node.name.lower()]
        arguments = [self.hoist(a) for a in node.expressions]
        key: tuple[exp.Expr | str, ...] = (function.name, *arguments)
        if key not in self.calls:
            names = tuple(self.materialise(a) for a in arguments)
            output = self.context.fresh(f"{function.name}({', '.join(names)})", function.returns)
            self.node = Call(self.node, output, function.name, names, function.returns)
            self.calls[key] = output
        return resolved(self.calls[key], node)

    def materialise(self, tree: exp.Expr) -> str:
        """The name of a column that holds the tree's value, added by a `Project` if there is none."""
        expr = self.context.expr(tree)
        if expr.column is not None and expr.column in self.node.schema:
            return expr.column
        name = self.context.computed(expr)
        self.node = extend(self.node, {name: expr})
        return name


def extend(node: Node, added: Mapping[str, Expr]) -> Node:
    """The node's columns and more."""
    kept = tuple((n, column(n, t)) for n, t in node.schema.items())
    return Project(node, kept + tuple(added.items()))
