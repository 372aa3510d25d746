"""Aggregates that can be scaled: the plan of a query whose streams may be shed before they are processed.

A kept row comes with a weight, the inverse of the probability with which it was kept (`runtime/admission.py`); rows
that were certain to be kept weigh 1. Here the weights are carried from the scans up to every aggregate that can use
them, and the aggregate gets further columns beside its own:

    COUNT(*)  sum(w)              SUM(x)  sum(w x)          AVG(x)  sum(w x) / sum(w)
    variance of a sum of y        sum(y^2 (w^2 - w))        (Poisson sampling, estimated from the kept rows)

Above it a projection shows the estimate while sum(w^2 - w) > 0, and otherwise the aggregate's own value: exact, to the
bit, as soon as the last row of weight above 1 has left. Beside each plain aggregate of the SELECT list comes a column
`_error_<name>`: half the width of a 95 % interval, 0 while exact, NULL where no bound is known.

Carried through: time windows, selections, projections, calls, UNION ALL, joins (weights multiply; results that share a
row are not independent, so a sum over a join has an estimate but no bound). Not through: count windows, DISTINCT,
EXISTS, EXCEPT, stream operators inside; aggregates above them, and MIN, MAX, quantiles, TOP_K and DISTINCT ones, are
those of the rows that were kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from windrow.plan.expr import Expr, Ref, column
from windrow.plan.nodes import (
    Aggregate,
    AggregateCall,
    Append,
    Call,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Quantise,
    QueryPlan,
    Scan,
    StarJoin,
    StreamOp,
    TableScan,
    Union,
    Window,
    WindowBounds,
    WindowKind,
    walk,
)

WEIGHT = "~weight"
"""The column of a stream's rows that holds their weight; no user can name one so."""

Z = 1.96
DOUBLE = pa.float64()


def weighed(plan: QueryPlan) -> QueryPlan:
    """The plan with scaled aggregates; the same plan when it has none."""
    rewriting = _Rewriting()
    above, chain = _chain(plan.root)
    found = rewriting.node(above)
    errors = rewriting.errors.get(id(above), {})
    for node in reversed(chain):
        if isinstance(node, Project):
            known = {n: errors[e.column] for n, e in node.outputs if e.column in errors}
            found = Project(found, (*node.outputs, *((f"_error {n}", column(c, DOUBLE)) for n, c in known.items())))
            errors = {n: f"_error {n}" for n in known}
        else:
            found = node.with_inputs(found)
    shown = [errors[c] for _, c in plan.output if c in errors]
    root = plan.root.with_inputs(_only(found, (*plan.root.input.schema, *dict.fromkeys(shown))))
    assert isinstance(root, Emit)
    output = plan.output + tuple((f"_error_{name}", errors[c]) for name, c in plan.output if c in errors)
    return plan if root == plan.root else replace(plan, root=root, output=output, made=None)


def _chain(root: Emit) -> tuple[Node, list[Node]]:
    """The topmost node that is no selection or projection, and those above it, from the top."""
    node: Node = root.input
    chain: list[Node] = []
    while isinstance(node, Filter | Project | Call | WindowBounds):
        chain.append(node)
        node = node.input
    return node, chain


def reach(plan: QueryPlan) -> int | None:
    """How long after its own time a row may still matter to the answer, in ticks of the clock; None: not known, or for
    ever."""
    if plan.root.op is StreamOp.ISTREAM and _stateless(plan.root.input):
        return 1
    length = None if _unwindowed_scan(plan.root.input) else _reach(plan.root.input)
    if length is None:
        return None
    # looking at Q(t) alone; the others also compare it with the answer before
    periodic = plan.root.op is StreamOp.RSTREAM and plan.root.period is not None
    return length if periodic else length + (plan.root.period or 1)


def _reach(node: Node) -> int | None:
    match node:
        case Scan():
            return 0
        case TableScan():
            return 0
        case Window(spec=spec):
            below = _reach(node.input)
            if spec.kind is WindowKind.NOW:
                return None if below is None else below + 1
            if spec.kind is not WindowKind.RANGE or spec.size is None:
                return None
            if below is None and isinstance(node.input, Append | Emit):
                below = _reach(node.input.inputs[0])  # a derived stream: its rows come while its own windows last
            return None if below is None else below + spec.size
        case Append() | Emit():
            return None
        case Quantise(before=True):
            below = _reach(node.input)
            return None if below is None else below + 1
    found = [_reach(i) for i in node.inputs]
    return None if any(f is None for f in found) else max(f for f in found if f is not None)


def _unwindowed_scan(node: Node) -> bool:
    """Whether a stream is read that no window stands above: its rows are never forgotten."""
    if isinstance(node, Scan | Window):
        return isinstance(node, Scan)
    return any(_unwindowed_scan(i) for i in node.inputs)


def _stateless(node: Node) -> bool:
    """Whether every row is looked at by itself."""
    if isinstance(node, Window) and node.spec.kind is not WindowKind.UNBOUNDED:
        return False
    return isinstance(node, Scan | Filter | Project | Call | Union | Window) and all(map(_stateless, node.inputs))


@dataclass
class _Rewriting:
    """Rewrites nodes, each once, so that what was shared stays shared."""

    made: dict[int, Node] = field(default_factory=dict)
    carried: dict[int, tuple[Node, str] | None] = field(default_factory=dict)
    errors: dict[int, dict[str, str]] = field(default_factory=dict)  # of a rewritten aggregate: output -> its error
    names: int = 0

    def node(self, node: Node) -> Node:
        """The node with every aggregate below it scaled, and the columns it had (an aggregate has more)."""
        if id(node) not in self.made:
            scaled = self.aggregate(node) if isinstance(node, Aggregate) else None
            self.made[id(node)] = scaled or self.over(node, [self.node(i) for i in node.inputs])
        return self.made[id(node)]

    def over(self, node: Node, inputs: list[Node]) -> Node:
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        if same:
            return node
        # where rows are compared whole, errors must not take part
        narrow = [_only(new, tuple(old.schema)) for new, old in zip(inputs, node.inputs, strict=True)]
        return node.with_inputs(*narrow)

    def weight(self, node: Node) -> tuple[Node, str] | None:
        """The node with a column of weights more, and its name; None where weights cannot be carried."""
        if id(node) not in self.carried:
            self.carried[id(node)] = self._weight(node)
        return self.carried[id(node)]

    def _weight(self, node: Node) -> tuple[Node, str] | None:
        match node:
            case Scan(alias=alias, columns=columns):
                name = f"{alias}.{WEIGHT}"
                return replace(node, columns=(*columns, (name, WEIGHT, DOUBLE))), name
            case Window(spec=spec) if spec.kind is not WindowKind.ROWS and not node.derived:
                return self._unary(node)
            case Filter() | Call() | Quantise() | WindowBounds():
                return self._unary(node)
            case Project(outputs=outputs):
                below = self.weight(node.input)
                if below is None:
                    return None
                name = self.fresh()
                return Project(below[0], (*outputs, (name, column(below[1], DOUBLE)))), name
            case Union(parts=parts):
                found = [self.weight(p) for p in parts]
                name = self.fresh()
                made = []
                for part, carried in zip(parts, found, strict=True):
                    if carried is None:
                        return None
                    outputs = (*((c, column(c, t)) for c, t in part.schema.items()), (name, column(carried[1], DOUBLE)))
                    made.append(Project(carried[0], outputs))
                return Union(tuple(made)), name
            case Join(parts=parts) | StarJoin(parts=parts):
                return self._join(node, parts)
        return None

    def _unary(self, node: Window | Filter | Call | Quantise | WindowBounds) -> tuple[Node, str] | None:
        below = self.weight(node.input)
        return None if below is None else (node.with_inputs(below[0]), below[1])

    def _join(self, node: Node, parts: tuple[Node, ...]) -> tuple[Node, str] | None:
        inputs, weights = [], []
        for part in parts:
            if not any(isinstance(n, Scan) for n in walk(part)):
                inputs.append(part)
                continue
            found = self.weight(part)
            if found is None:
                return None
            inputs.append(found[0])
            weights.append(found[1])
        joined = node.with_inputs(*inputs)
        if len(weights) == 1:
            return joined, weights[0]
        name = self.fresh()
        product: list[str | Ref] = ["("]
        for i, w in enumerate(weights):
            product += [" * ", Ref(w)] if i else [Ref(w)]
        outputs = [(c, column(c, t)) for c, t in node.schema.items()]
        return Project(joined, (*outputs, (name, Expr((*product, ")"), DOUBLE)))), name

    def fresh(self) -> str:
        self.names += 1
        return f"{WEIGHT} {self.names}"

    def aggregate(self, node: Aggregate) -> Node | None:
        """The aggregate with scaled columns in place of those it can scale."""
        scaled = [c for c in node.calls if c.kind in ("count", "sum", "avg") and not c.distinct]
        carried = self.weight(node.input) if scaled else None
        if carried is None:
            return None
        below, weight = carried
        lanes = _Lanes(weight, node.input.schema, any(isinstance(n, Join | StarJoin) for n in walk(node.input)))
        shown = {c.output: lanes.show(c) for c in scaled}
        project = Project(below, (*((c, column(c, t)) for c, t in node.input.schema.items()), *lanes.inputs.items()))
        whole = Aggregate(project, node.keys, (*node.calls, *lanes.calls.values()), node.grid)
        outputs = [(n, shown[n][0] if n in shown else column(n, t)) for n, t in node.schema.items()]
        errors = [(f"_error {n}", bound) for n, (_, bound) in shown.items()]
        self.errors[id(node)] = {n: f"_error {n}" for n in shown}
        return Project(whole, (*outputs, *errors))


@dataclass
class _Lanes:
    """The sums that scaled aggregates need, each once."""

    weight: str
    types: Mapping[str, pa.DataType]
    joined: bool
    inputs: dict[str, Expr] = field(default_factory=dict)
    calls: dict[str, AggregateCall] = field(default_factory=dict)

    def sum(self, what: str, x: str | None = None) -> Ref:
        """The sum of an expression in w (the weight) and x (a column), over the rows where x is not null."""
        name = f"{WEIGHT} sum({what}) {x or ''}".rstrip()
        if name not in self.calls:
            parts: list[str | Ref] = []
            for token in what.replace("w", "\0w\0").replace("x", "\0x\0").split("\0"):
                if token == "w":
                    parts.append(Ref(self.weight))
                elif token == "x":
                    assert x is not None
                    parts += ["CAST(", Ref(x), " AS DOUBLE)"]
                else:
                    parts.append(token)
            held = ("(", *parts, ")") if x is None else ("(CASE WHEN ", Ref(x), " IS NOT NULL THEN (", *parts, ") END)")
            argument = f"{name} of"
            self.inputs[argument] = Expr(tuple(held), DOUBLE)
            self.calls[name] = AggregateCall("sum", argument, name, DOUBLE)
        return Ref(name)

    def show(self, call: AggregateCall) -> tuple[Expr, Expr]:
        """What is shown of a call, and its error."""
        x, spread, own = call.column, self.sum("w*w-w"), Ref(call.output)
        match call.kind:
            case "count":
                estimate: tuple[str | Ref, ...] = ("coalesce(", self.sum("w", x), ", 0)")
                variance: tuple[str | Ref, ...] = (self.sum("w*w-w", x),)
            case "sum":
                estimate, variance = (self.sum("w*x", x),), (self.sum("(w*w-w)*x*x", x),)
            case _:
                total, count = self.sum("w*x", x), self.sum("w", x)
                mean: tuple[str | Ref, ...] = ("(", total, " / ", count, ")")
                estimate = mean
                # the sum of (x - mean)^2 (w^2 - w), over the square of the count
                variance = (
                    "((", self.sum("(w*w-w)*x*x", x), " - 2 * ", *mean, " * ", self.sum("(w*w-w)*x", x), " + ", *mean,
                    " * ", *mean, " * ", self.sum("w*w-w", x), ") / (", count, " * ", count, "))",
                )  # fmt: skip
        whole = not pa.types.is_floating(call.type)
        rounded = ("round(", *estimate, ")") if whole else estimate
        shown = (
            "(CASE WHEN ", spread, " > 0 THEN CAST(", *rounded, f" AS {_sql(call.type)}) ELSE ", own, " END)",
        )  # fmt: skip
        bound: tuple[str | Ref, ...] = ("NULL",)
        if not self.joined:
            bound = (f"{Z} * sqrt(greatest(coalesce(", *variance, ", 0), 0))")
        error = ("(CASE WHEN ", spread, " > 0 THEN CAST(", *bound, " AS DOUBLE) ELSE CAST(0 AS DOUBLE) END)")
        return Expr(shown, call.type), Expr(error, DOUBLE)


def _sql(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    return "BIGINT" if pa.types.is_integer(type_) else "DOUBLE"


def _only(node: Node, names: tuple[str, ...]) -> Node:
    types = node.schema
    return node if tuple(types) == names else Project(node, tuple((n, column(n, types[n])) for n in names))


__all__ = ["WEIGHT", "reach", "weighed"]


def gate_of(plan: QueryPlan) -> str | None:
    """The gate of a query, by its content; None: it never sheds."""
    budget = plan.budget
    if budget is None or budget.us is None:
        return None
    return json.dumps([budget.us, *sorted([s.lower(), e.sql()] for s, e in budget.importance)])
