"""Plans that differ in constants only, made from one another.

A *form* is a value (a plan, say) in which marks stand for constants: texts and numbers that occur nowhere else. It is
taken apart once; then `Form.made(constants)` is the value with constants in the place of its marks. What holds no mark
is shared with the form, and what is one object in the form is one object in what is made of it.

A `PlanShape` is what planning makes of one text with marks, stage by stage:

    text ── bind ──► plan ── optimize ──► plan ── recognise ──► member        with marks: once for a shape
         constants ──┴────────────────────┴─────────────────────┘             in their place: for every query

Law: what is made is what the stage would make of the plan itself. A stage must not look at a constant beyond its class
(kind and digits), and that is not taken on trust: for the first constants of every class the stage runs as well, and
the two are compared throughout; a class for which they differ is planned from scratch ever after.
Cost: the objects on the way from a constant to the top, some 30 microseconds for a plan of ten nodes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, TypeVar

import pyarrow as pa

from windrow.errors import WindrowError
from windrow.plan.expr import Constant
from windrow.plan.nodes import Emit, QueryPlan, Scan, WindowSpec, walk

T = TypeVar("T")
Class = tuple[int, ...] | str
"""What planning may know of a literal besides that it is one: the digits before and behind the point and whether there
is an exponent, or "text"."""


def constant_of(literal: str) -> Constant:
    """A plain literal as the plan has it.

    >>> constant_of("'it'").value, constant_of("42").value, constant_of("2.50").value, constant_of("25e-1").value
    ('it', 42, Decimal('2.50'), 2.5)
    """
    if literal.startswith("'"):
        return Constant(literal[1:-1], pa.string())
    if "e" in literal or "E" in literal:
        return Constant(float(literal), pa.float64())
    if "." in literal:
        return Constant(Decimal(literal), pa.decimal128(len(literal), len(literal.partition(".")[2])))
    return Constant(int(literal), pa.int64())


def class_of(literal: str) -> Class | None:
    """The class of a literal; None for one that is never lifted."""
    if literal.startswith("'"):
        return "text"
    digits, _, exponent = literal.lower().partition("e")
    whole, _, fraction = digits.partition(".")
    if exponent:
        return (len(whole), len(fraction), 1) if math.isfinite(float(literal)) else None
    plain = len(literal) <= 18 and (whole == "0" or not whole.startswith("0"))
    return (len(whole), len(fraction)) if plain else None


@dataclass(frozen=True)
class Constants:
    """What stands in the place of the marks of a shape: literals, and the name and text of the query."""

    name: str
    text: str
    literals: tuple[str, ...]
    classes: tuple[Class, ...]


@dataclass(frozen=True)
class MadeOf:
    """Of which shape a plan was made, and with which constants."""

    shape: PlanShape
    constants: Constants


_NAME, _TEXT = "@windrow name@", "@windrow text@"


def mark(position: int, literal: str) -> str:
    """The mark for a literal: one of its kind that nobody writes."""
    if literal.startswith("'"):
        return f"'@windrow {position:03d}@'"
    if "e" in literal or "E" in literal:
        return f"7.1908354629{position:03d}e17"
    if "." in literal:
        return f"7190835462{position:03d}.9173"
    return f"71908354629173{position:03d}"


def _pattern(shown: str) -> str:
    """What finds a mark in a text: a short number where it is one by itself."""
    return rf"(?<![\w.]){re.escape(shown)}(?![\w.])" if shown[0].isdigit() else re.escape(shown)


Step = Callable[[Sequence[str], list[Any]], Any]


class Form(Generic[T]):
    """A value with marks, taken apart: `steps` make its parts from texts and from parts made before."""

    def __init__(self, value: T, marks: Sequence[str]) -> None:
        self._value = value
        shown = (*(m.strip("'") for m in marks), _NAME, _TEXT)
        self._numbers = {m: i for i, m in enumerate(shown)}
        self._split = re.compile(f"({'|'.join(map(_pattern, shown))})")
        self._constants = {constant_of(m).value: i for i, m in enumerate(marks)}
        self._negative = {-v: i for v, i in self._constants.items() if not isinstance(v, str)}
        self._steps: list[Step] = []
        self._known: dict[int, int | None] = {}
        self._kept: list[object] = []  # ids are of objects that live
        self._top = self._part(value)

    @property
    def constant(self) -> bool:
        """Whether it has no mark at all."""
        return self._top is None

    def made(self, constants: Constants) -> T:
        """The value with constants in the place of the marks."""
        if self._top is None:
            return self._value
        texts = [t[1:-1] if t.startswith("'") else t for t in constants.literals]
        texts += (constants.name, constants.text)
        parts: list[Any] = []
        for step in self._steps:
            parts.append(step(texts, parts))
        found: T = parts[self._top]
        return found

    def _part(self, value: Any) -> int | None:
        """The number of the step that makes a part; None if it has no mark."""
        key = id(value)
        if key not in self._known:
            self._kept.append(value)
            step = self._step(value)
            if step is not None:
                self._steps.append(step)
            self._known[key] = None if step is None else len(self._steps) - 1
        return self._known[key]

    def _step(self, value: Any) -> Step | None:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Constant):
            return self._constant(value)
        if isinstance(value, WindowSpec):
            return self._window(value)
        if isinstance(value, tuple | list):
            return self._sequence(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if is_dataclass(value) and not isinstance(value, type):
            return self._object(value)
        return None

    def _text(self, value: str) -> Step | None:
        pieces = self._split.split(value)  # text, mark, text, mark, ..., text
        if len(pieces) == 1:
            return None
        names = [self._numbers[m] for m in pieces[1::2]]
        if len(names) > 1:
            between = [*zip(pieces[0::2], names, strict=False)]
            return lambda texts, _: "".join([b + texts[i] for b, i in between]) + pieces[-1]
        before, _, after = pieces
        (only,) = names
        return lambda texts, _: f"{before}{texts[only]}{after}"

    def _constant(self, value: Constant) -> Step | None:
        if isinstance(value.value, bool | None):
            return None
        if value.value in self._constants:
            i = self._constants[value.value]
            if isinstance(value.value, str):
                return lambda texts, _: Constant(texts[i], value.type)
            return lambda texts, _: constant_of(texts[i])
        if value.value in self._negative:
            i = self._negative[value.value]
            return lambda texts, _: negative(constant_of(texts[i]))
        return None

    def _window(self, value: WindowSpec) -> Step | None:
        """A window whose length is a mark, in some unit."""
        pieces = self._split.split(value.text)
        mark = pieces[1] if len(pieces) == 3 else ""
        if not mark.isdecimal() or value.size is None or value.size % int(mark):
            return self._object(value)
        before, _, after = pieces
        only, unit = self._numbers[mark], value.size // int(mark)
        return lambda texts, _: replace(value, text=f"{before}{texts[only]}{after}", size=int(texts[only]) * unit)

    def _sequence(self, value: tuple[Any, ...] | list[Any]) -> Step | None:
        holes = [(i, made) for i, part in enumerate(value) if (made := self._part(part)) is not None]
        if not holes:
            return None
        kind = type(value)

        def step(_: Sequence[str], parts: list[Any]) -> Any:
            found = list(value)
            for i, made in holes:
                found[i] = parts[made]
            return found if kind is list else kind(found)

        return step

    def _mapping(self, value: Mapping[Any, Any]) -> Step | None:
        pairs = self._sequence([part for pair in value.items() for part in pair])
        if pairs is None:
            return None

        def step(texts: Sequence[str], parts: list[Any]) -> Any:
            flat = pairs(texts, parts)
            return dict(zip(flat[::2], flat[1::2], strict=True))

        return step

    def _object(self, value: Any) -> Step | None:
        given = {f.name: getattr(value, f.name) for f in fields(value)}
        holes = [(name, made) for name, part in given.items() if (made := self._part(part)) is not None]
        if not holes:
            return None
        kind = type(value)
        if not hasattr(value, "__dict__") or hasattr(kind, "__post_init__"):
            return lambda _, parts: kind(**given | {name: parts[made] for name, made in holes})

        def step(_: Sequence[str], parts: list[Any]) -> Any:
            found = object.__new__(kind)
            found.__dict__.update(given)  # all its parts were checked when the form was built
            for name, made in holes:
                found.__dict__[name] = parts[made]
            return found

        return step


def negative(constant: Constant) -> Constant:
    """The constant with a minus before it."""
    return Constant(-constant.value, constant.type)


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal in every field, those included that `==` does not look at."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, QueryPlan):
        names = [f.name for f in fields(a) if f.name != "made"]
        return all(same(getattr(a, n), getattr(b, n)) for n in names)
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


class PlanShape:
    """A plan with marks, at one stage of planning. What is made of it gets its tree when somebody looks at it."""

    def __init__(self, plan: QueryPlan, marks: Sequence[str], proven: Iterable[tuple[Class, ...]] = ()) -> None:
        self.plan, self.marks = replace(plan, made=None), tuple(marks)
        self._form = Form(self.plan.root, self.marks)
        self._rest = Form({f.name: getattr(self.plan, f.name) for f in fields(plan) if f.name != "root"}, self.marks)
        self._proven: dict[tuple[Class, ...], bool] = dict.fromkeys(proven, True)
        self._after: dict[Hashable, PlanShape | None] = {}
        self.notes: dict[Hashable, Any] = {}  # what is derived from it besides plans

    def __reduce__(self) -> tuple[object, ...]:
        return PlanShape, (self.plan, self.marks, tuple(c for c, proven in self._proven.items() if proven))

    @classmethod
    def of(cls, plan: QueryPlan, marks: Sequence[str]) -> PlanShape:
        """The shape of a plan whose literals are marks, whatever it is called."""
        return cls(replace(plan, name=_NAME, text=_TEXT), marks)

    @cached_property
    def scans(self) -> int:
        """How many streams are read, one that is read twice counted twice."""
        return sum(isinstance(node, Scan) for node in walk(self.plan.root))

    @property
    def doubted(self) -> bool:
        """Whether it, or what a stage makes of it, has differed from what was planned from scratch."""
        after = self._after.values()
        return False in self._proven.values() or any(shape is None or shape.doubted for shape in after)

    def root(self, constants: Constants) -> Emit:
        """The tree for constants."""
        return self._form.made(constants)

    def made(self, constants: Constants, anew: Callable[[], QueryPlan]) -> QueryPlan:
        """The plan for constants: from the shape, once that has proven equal to what is made `anew`."""
        proven = self._proven.get(constants.classes)
        if proven:
            return self._made(constants)
        plan = anew()
        if proven is None:
            proven = self._proven[constants.classes] = same(self._made(constants), plan)
        return replace(plan, made=MadeOf(self, constants) if proven else None)

    def _made(self, constants: Constants) -> QueryPlan:
        plan = object.__new__(QueryPlan)
        plan.__dict__.update(self._rest.made(constants))
        plan.__dict__.update(made=MadeOf(self, constants), streams=self.plan.streams, tables=self.plan.tables)
        return plan

    def after(self, stage: Hashable, function: Callable[[QueryPlan], QueryPlan]) -> PlanShape | None:
        """The shape behind a stage; None if the stage does not take marks."""
        if stage not in self._after:
            try:
                self._after[stage] = PlanShape(function(self.plan), self.marks)
            except WindrowError:  # what it refuses for marks it may take for constants
                self._after[stage] = None
        return self._after[stage]


def through(plan: QueryPlan, stage: Hashable, function: Callable[[QueryPlan], QueryPlan]) -> QueryPlan:
    """`function(plan)`, by what it makes of the plan's shape where that is the same."""
    if plan.made is None:
        return function(plan)
    shape = plan.made.shape.after(stage, function)
    if shape is None:
        return replace(function(plan), made=None)
    return shape.made(plan.made.constants, lambda: function(plan))
