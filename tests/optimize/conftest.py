"""Small plans to rewrite."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from windrow.optimize import Rule, RuleContext
from windrow.plan.nodes import Emit, Node, QueryPlan, StreamOp
from windrow.plan.words import sketch


@pytest.fixture
def apply() -> Callable[..., str]:
    """Apply a rule to a relation's plan; check that it is idempotent and keeps the schema; sketch the result."""

    def run(rule: Rule, node: Node, context: RuleContext | None = None, output: tuple[str, ...] | None = None) -> str:
        names = output if output is not None else tuple(node.schema)
        plan = QueryPlan("q", Emit(node, StreamOp.RELATION), tuple((n, n) for n in names), pa.int64())
        once = rule(plan, context or RuleContext())
        assert rule(once, context or RuleContext()) == once
        if output is None:
            assert once.root.schema == plan.root.schema
        return sketch(once.root.input)

    return run
