"""How a plan is brought to its canonical form.

Selections are lifted out of the tree as far as they commute with what is above them, lengths of windows with them, and
columns are named by the place of their scan and by what is computed of them. A selection and a window's length commute
with windows by time, projections, joins, and the left side of EXISTS and of outer joins. They stay below aggregates,
DISTINCT and set operations (a full join is one), and on both sides of an EXISTS whose right side is selected from.

Law: putting every slot's conjuncts and lengths back gives a plan with the answers of the one it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from windrow.operators.aggregates.call import SUMMARISED
from windrow.operators.elements import INF
from windrow.plan import nodes as n
from windrow.plan.bands import bands
from windrow.plan.expr import Atom, Expr, column
from windrow.plan.totality import total
from windrow.plan.weights import gate_of
from windrow.sharing.plans.canonical import LENGTH, Canonical, Columns, Slot, has_slot, number_of
from windrow.sharing.plans.constants import NOTHING, is_constant
from windrow.sharing.recognise import NotShared

Names = dict[str, str]
"""Columns of a plan to those of its canonical form."""


def canonicalise(plan: n.QueryPlan) -> Canonical:
    """The canonical form of a plan; raises `NotShared` with the reason if it must run by itself."""
    if gate_of(plan) is not None:
        raise NotShared("its budget may shed rows that others need")
    root = plan.root
    if root.each:
        raise NotShared("its rows are there for an instant only")
    if root.period is not None:
        _check_periodic(root)
    if not plan.streams:
        raise NotShared("it reads no stream")
    made = _Canonicaliser()
    below, names, conjuncts = made.lift(root.input)
    shown = {names[c]: column(names[c], type_) for c, type_ in root.input.schema.items()}
    if isinstance(below, n.Project):
        computed = dict(below.outputs)
        below, shown = below.input, {c: computed[c] for c in shown}
        conjuncts = [e.substitute(computed) for e in conjuncts]
    tree = made.slot(below, conjuncts, ())
    output = tuple((name, names[c]) for name, c in plan.output)
    parts = sorted(shown.items(), key=lambda kv: kv[0])
    of_rows, constants = ([part for part in parts if is_constant(part[1]) is which] for which in (False, True))
    return Canonical(
        plan, replace(root, input=tree), tuple(made.slots), tuple(made.columns), output, tuple(made.sizes),
        tuple(of_rows) or (NOTHING,), tuple(constants),
    )  # fmt: skip


def _check_periodic(root: n.Emit) -> None:
    """Refuse what is evaluated periodically and cannot share so far."""
    if root.at_most:
        raise NotShared("its period is a deadline")
    if root.op not in (n.StreamOp.RSTREAM, n.StreamOp.ISTREAM, n.StreamOp.DSTREAM):
        raise NotShared("it restores what its evaluations miss")
    if n.has(root, n.Aggregate):
        raise NotShared("periodic aggregates of its kind are not shared yet")


@dataclass
class _Canonicaliser:
    slots: list[tuple[Expr, ...]] = field(default_factory=list)
    columns: list[Columns] = field(default_factory=list)
    types: dict[str, pa.DataType] = field(default_factory=dict)  # of all columns there are
    sizes: list[int] = field(default_factory=list)  # of windows, by number
    specs: list[n.WindowSpec] = field(default_factory=list)
    taken: frozenset[str] = frozenset()  # names that columns beside what is lifted have

    def _label(self, text: str, below: Names | None = None) -> str:
        """The name of what is computed: the text, with a number if a column beside or below it has that name."""
        taken = self.taken.union((below or {}).values())
        return next(t for t in (text, *(f"{text}#{i}" for i in range(2, len(taken) + 3))) if t not in taken)

    def _beside(self, node: n.Node, names: Names) -> tuple[n.Node, Names, list[Expr]]:
        """Lift a node whose rows meet such as have columns of these names."""
        before, self.taken = self.taken, self.taken.union(names.values())
        found = self.lift(node)
        self.taken = before
        return found

    def slot(self, node: n.Node, conjuncts: Sequence[Expr], keep: Sequence[str]) -> Slot:
        """Let a selection stand here."""
        if not all(total(e, self.types) for e in conjuncts):
            raise NotShared("a condition may raise")
        self.slots.append(tuple(conjuncts))
        numbers = (number_of(x) for x in _in_block(node))
        windows = tuple(sorted(w for w in numbers if w is not None))
        return Slot(node, len(self.slots) - 1, tuple(sorted(keep)), has_slot(node), windows)

    def settled(self, node: n.Node, unbounded: bool = False) -> n.Node:
        """The node with the lengths of its windows, or `unbounded` ones: they do not commute with what is above."""
        if isinstance(node, Slot) or not node.inputs:
            return node
        made, number = node.with_inputs(*(self.settled(i, unbounded) for i in node.inputs)), number_of(node)
        if number is None or not isinstance(made, n.Window) or (unbounded and self.sizes[number] != INF):
            return made
        self.sizes[number] = 0
        return replace(made, spec=self.specs[number])

    def lift(self, node: n.Node) -> tuple[n.Node, Names, list[Expr]]:
        """The node without the selections that commute with all above them, its columns' names, the selections."""
        match node:
            case n.Scan() | n.TableScan():
                return self._scan(node)
            case n.Filter():
                below, names, conjuncts = self.lift(node.input)
                return below, names, [*conjuncts, _renamed(node.predicate, names)]
            case n.Window():
                return self._window(node)
            case n.Quantise():  # the ends of windows are moved, so windows are equal
                below, names, conjuncts = self.lift(node.input)
                return replace(node, input=self.settled(below)), names, conjuncts
            case n.Project():
                return self._project(node)
            case n.Join():
                return self._join(node)
            case n.Semi():
                return self._semi(node)
            case n.LeftJoin():
                return self._left_join(node)
            case n.AsofJoin():
                return self._asof_join(node)
            case n.Aggregate():
                return self._aggregate(node)
            case n.Distinct():
                below, names, conjuncts = self.lift(node.input)
                keep = {names[c] for c in node.schema}
                return n.Distinct(self.slot(below, conjuncts, tuple(keep))), names, []
            case n.Union() | n.Difference() | n.Intersection():
                return self._combined(node)
        raise NotShared(f"{type(node).__name__.lower()} is not shared yet")

    def _scan(self, node: n.Scan | n.TableScan) -> tuple[n.Node, Names, list[Expr]]:
        if isinstance(node, n.TableScan) and node.retroactive:
            raise NotShared("a retroactive table changes what has been answered")
        number = len(self.columns)
        names = {internal: f"{number}.{name.lower()}" for internal, name, _ in node.columns}
        read = tuple((names[internal], name, type_) for internal, name, type_ in node.columns)
        self.columns.append(tuple(sorted(read, key=lambda c: c[0])))
        self.types |= {internal: type_ for internal, _, type_ in read}
        made = replace(node, alias=str(number), columns=())
        if isinstance(made, n.TableScan):
            made = replace(made, valid=None)
        return made, names, []

    def _window(self, node: n.Window) -> tuple[n.Node, Names, list[Expr]]:
        spec = node.spec
        if spec.internal or node.derived or node.number is not None or spec.kind is n.WindowKind.CUMULATE:
            raise NotShared("its window is of a kind that is not shared yet")
        below, names, conjuncts = self.lift(node.input)
        made = replace(spec, text="", partition=tuple(names[c] for c in spec.partition))
        if spec.kind is n.WindowKind.ROWS and conjuncts:
            raise NotShared("a window of rows counts the rows that it selects")
        if spec.kind is not n.WindowKind.ROWS:
            self.specs.append(made)
            self.sizes.append(_size(spec))
            made = n.WindowSpec(n.WindowKind.RANGE, text=f"{LENGTH}{len(self.sizes) - 1}")
        return replace(node, input=below, spec=made), names, conjuncts

    def _project(self, node: n.Project) -> tuple[n.Node, Names, list[Expr]]:
        below, names, conjuncts = self.lift(node.input)
        outputs, shown = dict[str, Expr](), Names()
        for name, expr in node.outputs:
            renamed = _renamed(expr, names)
            if renamed.column is None and not total(renamed, self.types):
                raise NotShared("an expression may raise")
            shown[name] = renamed.column or self._label(renamed.sql())
            outputs[shown[name]] = renamed
        self.types |= {name: e.type for name, e in outputs.items()}
        if all(e.column is not None for e in outputs.values()):  # it only leaves columns out, and slots do that
            return below, shown, conjuncts
        return n.Project(below, tuple(sorted(outputs.items(), key=lambda kv: kv[0]))), shown, conjuncts

    def _join(self, node: n.Join) -> tuple[n.Node, Names, list[Expr]]:
        if any(node.internal):
            raise NotShared("its window is of a kind that is not shared yet")
        order = sorted(range(len(node.parts)), key=lambda i: _streams(node.parts[i]))
        parts, names, conjuncts = [], Names(), list[Expr]()
        for i in order:
            below, mine, lifted = self._beside(node.parts[i], names)
            parts.append(below)
            names |= mine
            conjuncts += lifted
        residual = [_renamed(e, names) for e in node.residual]
        stay = [e for e in residual if not isinstance(e.predicate, Atom) or bands([e], self.types)]
        conjuncts += [e for e in residual if e not in stay]
        return n.Join(tuple(parts), _equalities(node.equalities, names), tuple(stay)), names, conjuncts

    def _semi(self, node: n.Semi) -> tuple[n.Node, Names, list[Expr]]:
        left, names, conjuncts = self.lift(node.left)
        right, others, selected = self._beside(node.right, names)
        if selected:
            left = self.slot(left, conjuncts, tuple({names[c] for c in node.left.schema}))
            right = self.slot(right, selected, tuple({others[c] for c in node.right.schema}))
            conjuncts = []
        else:
            right = self.settled(right)
        both = {**names, **others}
        residual = tuple(_renamed(e, both) for e in node.residual)
        equalities = tuple(replace(e, left=names[e.left], right=others[e.right]) for e in node.equalities)
        made = n.Semi(left, right, tuple(sorted(equalities, key=str)), residual, node.anti)
        return made, names, conjuncts

    def _left_join(self, node: n.LeftJoin) -> tuple[n.Node, Names, list[Expr]]:
        left, names, conjuncts = self.lift(node.left)
        right, others, selected = self._beside(node.right, names)
        if has_slot(right):
            raise NotShared("it pads rows that a subquery selects for itself")
        both = {**names, **others}
        equalities = tuple(replace(e, left=names[e.left], right=others[e.right]) for e in node.equalities)
        residual = (*selected, *(_renamed(e, both) for e in node.residual))  # what is not selected is not met
        if not all(total(e, self.types) for e in residual):
            raise NotShared("a condition may raise")
        made = n.LeftJoin(
            left, self.settled(right), tuple(sorted(equalities, key=str)), tuple(sorted(residual, key=str))
        )
        return made, both, conjuncts

    def _asof_join(self, node: n.AsofJoin) -> tuple[n.Node, Names, list[Expr]]:
        if node.derived:
            raise NotShared("which row it takes of those of one time depends on the columns that it reads")
        left, names, conjuncts = self.lift(node.left)
        right, others, selected = self._beside(node.right, names)
        if selected or has_slot(right):
            raise NotShared("it takes the newest of the rows that it selects")
        both = {**names, **others}
        equalities = tuple(replace(e, left=names[e.left], right=others[e.right]) for e in node.equalities)
        times = (names[node.times[0]], others[node.times[1]])
        made = replace(
            node, left=self.settled(left), right=self.settled(right), equalities=tuple(sorted(equalities, key=str)),
            times=times,
        )  # fmt: skip
        return made, both, conjuncts

    def _aggregate(self, node: n.Aggregate) -> tuple[n.Node, Names, list[Expr]]:
        if any(c.kind in SUMMARISED for c in node.calls):
            raise NotShared("summaries of a window of rows are kept for each query")
        below, names, conjuncts = self.lift(node.input)
        below = self.settled(below, unbounded=True)  # what is never let go need not be kept row by row
        read = {names[c] for c in (*node.keys, *(c.column for c in node.calls if c.column is not None))}
        shown = {k: names[k] for k in node.keys}
        calls: dict[str, n.Aggregation] = {}
        for call in node.calls:
            of = None if call.column is None else names[call.column]
            text = f"{call.kind}({'distinct ' if call.distinct else ''}{of or '*'}{call.parameters or ''})"
            label = self._label(text, names)
            calls[label] = replace(call, column=of, output=label)
            shown[call.output] = label
            self.types[label] = call.type
        slot = self.slot(below, conjuncts, tuple(read))
        keys = tuple(sorted(names[k] for k in node.keys))
        return n.Aggregate(slot, keys, tuple(calls[k] for k in sorted(calls)), node.grid), shown, []

    def _combined(self, node: n.Union | n.Difference | n.Intersection) -> tuple[n.Node, Names, list[Expr]]:
        """A set operation: every input selects for itself, and its columns are named by their places."""
        parts = []
        for part in node.inputs:
            below, names, conjuncts = self.lift(part)
            mine = [names[c] for c in node.schema]
            parts.append((self.slot(below, conjuncts, tuple(set(mine))), mine))
        shown = {c: f"{len(self.slots)}#{i}" for i, c in enumerate(node.schema)}
        self.types |= {shown[c]: type_ for c, type_ in node.schema.items()}
        types = list(zip(shown.values(), node.schema.values(), strict=True))
        renamed = [
            n.Project(slot, tuple((to, column(of, type_)) for (to, type_), of in zip(types, mine, strict=True)))
            for slot, mine in parts
        ]
        return node.with_inputs(*renamed), shown, []


def _size(spec: n.WindowSpec) -> int:
    if spec.kind is n.WindowKind.UNBOUNDED:
        return INF
    size = 1 if spec.kind is n.WindowKind.NOW else spec.size
    assert size is not None
    return size


def _in_block(node: n.Node) -> Iterator[n.Node]:
    """The node and what is below it, up to the next slots."""
    yield node
    if not isinstance(node, Slot):
        for child in node.inputs:
            yield from _in_block(child)


def _renamed(e: Expr, names: Mapping[str, str]) -> Expr:
    """The expression over other columns of the same types."""
    if (name := e.column) is not None and name in names and e.predicate is None:
        return column(names[name], e.type)
    return e.substitute({old: column(names[old], pa.null()) for old in e.columns if old in names})


def _equalities(equalities: Sequence[n.Equality], names: Mapping[str, str]) -> tuple[n.Equality, ...]:
    sides = {(min(names[e.left], names[e.right]), max(names[e.left], names[e.right]), e.null_safe) for e in equalities}
    return tuple(n.Equality(left, right, null_safe) for left, right, null_safe in sorted(sides))


def _streams(node: n.Node) -> list[str]:
    leaves = [x for x in n.walk(node) if isinstance(x, n.Scan | n.TableScan)]
    return [(x.stream if isinstance(x, n.Scan) else x.table).lower() for x in leaves]
