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

from windrow.plan import nodes as n
from windrow.plan.expr import Expr, Ref, column

WEIGHT = "~weight"
"""The column of a stream's rows that holds their weight; no user can name one so."""

Z = 1.96
DOUBLE = pa.float64()


def weighed(plan: n.QueryPlan) -> n.QueryPlan:
    """The plan with scaled aggregates; the same plan when it has none."""
    rewriting = _Rewriting()
    above, chain = _chain(plan.root)
    found = rewriting.node(above)
    errors = rewriting.errors.get(id(above), {})
    for node in reversed(chain):
        if isinstance(node, n.Project):
            known = {name: errors[e.column] for name, e in node.outputs if e.column in errors}
            added = ((f"_error {name}", column(c, DOUBLE)) for name, c in known.items())
            found = n.Project(found, (*node.outputs, *added))
            errors = {name: f"_error {name}" for name in known}
        else:
            found = node.with_inputs(found)
    shown = [errors[c] for _, c in plan.output if c in errors]
    root = plan.root.with_inputs(_only(found, (*plan.root.input.schema, *dict.fromkeys(shown))))
    assert isinstance(root, n.Emit)
    output = plan.output + tuple((f"_error_{name}", errors[c]) for name, c in plan.output if c in errors)
    return plan if root == plan.root else replace(plan, root=root, output=output, made=None)


def _chain(root: n.Emit) -> tuple[n.Node, list[n.Node]]:
    """The topmost node that is no selection or projection, and those above it, from the top."""
    node: n.Node = root.input
    chain: list[n.Node] = []
    while isinstance(node, n.Filter | n.Project | n.Call | n.WindowBounds):
        chain.append(node)
        node = node.input
    return node, chain


def reach(plan: n.QueryPlan) -> int | None:
    """How long after its own time a row may still matter to the answer, in ticks of the clock; None: not known, or for
    ever."""
    if plan.root.op is n.StreamOp.ISTREAM and _stateless(plan.root.input):
        return 1
    length = None if _unwindowed_scan(plan.root.input) else _reach(plan.root.input)
    if length is None:
        return None
    # looking at Q(t) alone; the others also compare it with the answer before
    periodic = plan.root.op is n.StreamOp.RSTREAM and plan.root.period is not None
    return length if periodic else length + (plan.root.period or 1)


def _reach(node: n.Node) -> int | None:
    match node:
        case n.Scan():
            return 0
        case n.TableScan():
            return 0
        case n.Window(spec=spec):
            below = _reach(node.input)
            if spec.kind is n.WindowKind.NOW:
                return None if below is None else below + 1
            if spec.kind is not n.WindowKind.RANGE or spec.size is None:
                return None
            if below is None and isinstance(node.input, n.Append | n.Emit):
                below = _reach(node.input.inputs[0])  # a derived stream: its rows come while its own windows last
            return None if below is None else below + spec.size
        case n.Append() | n.Emit():
            return None
        case n.Quantise(before=True):
            below = _reach(node.input)
            return None if below is None else below + 1
    found = [_reach(i) for i in node.inputs]
    return None if any(f is None for f in found) else max(f for f in found if f is not None)


def _unwindowed_scan(node: n.Node) -> bool:
    """Whether a stream is read that no window stands above: its rows are never forgotten."""
    if isinstance(node, n.Scan | n.Window):
        return isinstance(node, n.Scan)
    return any(_unwindowed_scan(i) for i in node.inputs)


def _stateless(node: n.Node) -> bool:
    """Whether every row is looked at by itself."""
    if isinstance(node, n.Window) and node.spec.kind is not n.WindowKind.UNBOUNDED:
        return False
    by_row = isinstance(node, n.Scan | n.Filter | n.Project | n.Call | n.Union | n.Window)
    return by_row and all(map(_stateless, node.inputs))


@dataclass
class _Rewriting:
    """Rewrites nodes, each once, so that what was shared stays shared."""

    made: dict[int, n.Node] = field(default_factory=dict)
    carried: dict[int, tuple[n.Node, str] | None] = field(default_factory=dict)
    errors: dict[int, dict[str, str]] = field(default_factory=dict)  # of a rewritten aggregate: output -> its error
    names: int = 0

    def node(self, node: n.Node) -> n.Node:
        """The node with every aggregate below it scaled, and the columns it had (an aggregate has more)."""
        if id(node) not in self.made:
            scaled = self.aggregate(node) if isinstance(node, n.Aggregate) else None
            self.made[id(node)] = scaled or self.over(node, [self.node(i) for i in node.inputs])
        return self.made[id(node)]

    def over(self, node: n.Node, inputs: list[n.Node]) -> n.Node:
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        if same:
            return node
        # where rows are compared whole, errors must not take part
        narrow = [_only(new, tuple(old.schema)) for new, old in zip(inputs, node.inputs, strict=True)]
        return node.with_inputs(*narrow)

    def weight(self, node: n.Node) -> tuple[n.Node, str] | None:
        """The node with a column of weights more, and its name; None where weights cannot be carried."""
        if id(node) not in self.carried:
            self.carried[id(node)] = self._weight(node)
        return self.carried[id(node)]

    def _weight(self, node: n.Node) -> tuple[n.Node, str] | None:
        match node:
            case n.Scan(alias=alias, columns=columns):
                name = f"{alias}.{WEIGHT}"
                return replace(node, columns=(*columns, (name, WEIGHT, DOUBLE))), name
            case n.Window(spec=spec) if spec.kind is not n.WindowKind.ROWS and not node.derived:
                return self._unary(node)
            case n.Filter() | n.Call() | n.Quantise() | n.WindowBounds():
                return self._unary(node)
            case n.Project(outputs=outputs):
                below = self.weight(node.input)
                if below is None:
                    return None
                name = self.fresh()
                return n.Project(below[0], (*outputs, (name, column(below[1], DOUBLE)))), name
            case n.Union(parts=parts):
                found = [self.weight(p) for p in parts]
                name = self.fresh()
                made = []
                for part, carried in zip(parts, found, strict=True):
                    if carried is None:
                        return None
                    outputs = (*((c, column(c, t)) for c, t in part.schema.items()), (name, column(carried[1], DOUBLE)))
                    made.append(n.Project(carried[0], outputs))
                return n.Union(tuple(made)), name
            case n.Join(parts=parts) | n.StarJoin(parts=parts):
                return self._join(node, parts)
        return None

    def _unary(self, node: n.Window | n.Filter | n.Call | n.Quantise | n.WindowBounds) -> tuple[n.Node, str] | None:
        below = self.weight(node.input)
        return None if below is None else (node.with_inputs(below[0]), below[1])

    def _join(self, node: n.Node, parts: tuple[n.Node, ...]) -> tuple[n.Node, str] | None:
        inputs, weights = [], []
        for part in parts:
            if not any(isinstance(below, n.Scan) for below in n.walk(part)):
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
        return n.Project(joined, (*outputs, (name, Expr((*product, ")"), DOUBLE)))), name

    def fresh(self) -> str:
        self.names += 1
        return f"{WEIGHT} {self.names}"

    def aggregate(self, node: n.Aggregate) -> n.Node | None:
        """The aggregate with scaled columns in place of those it can scale."""
        scaled = [c for c in node.calls if c.kind in ("count", "sum", "avg") and not c.distinct]
        carried = self.weight(node.input) if scaled else None
        if carried is None:
            return None
        below, weight = carried
        lanes = _Lanes(weight, node.input.schema, any(isinstance(x, n.Join | n.StarJoin) for x in n.walk(node.input)))
        shown = {c.output: lanes.show(c) for c in scaled}
        project = n.Project(below, (*((c, column(c, t)) for c, t in node.input.schema.items()), *lanes.inputs.items()))
        whole = n.Aggregate(project, node.keys, (*node.calls, *lanes.calls.values()), node.grid)
        outputs = [(name, shown[name][0] if name in shown else column(name, t)) for name, t in node.schema.items()]
        errors = [(f"_error {name}", bound) for name, (_, bound) in shown.items()]
        self.errors[id(node)] = {name: f"_error {name}" for name in shown}
        return n.Project(whole, (*outputs, *errors))


@dataclass
class _Lanes:
    """The sums that scaled aggregates need, each once."""

    weight: str
    types: Mapping[str, pa.DataType]
    joined: bool
    inputs: dict[str, Expr] = field(default_factory=dict)
    calls: dict[str, n.Aggregation] = field(default_factory=dict)

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
            self.calls[name] = n.Aggregation("sum", argument, name, DOUBLE)
        return Ref(name)

    def show(self, call: n.Aggregation) -> tuple[Expr, Expr]:
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


def _only(node: n.Node, names: tuple[str, ...]) -> n.Node:
    types = node.schema
    return (
        node if tuple(types) == names else n.Project(node, tuple((name, column(name, types[name])) for name in names))
    )


__all__ = ["WEIGHT", "reach", "weighed"]


def gate_of(plan: n.QueryPlan) -> str | None:
    """The gate of a query, by its content; None: it never sheds."""
    budget = plan.budget
    if budget is None or budget.us is None:
        return None
    return json.dumps([budget.us, *sorted([s.lower(), e.sql()] for s, e in budget.importance)])
