"""CREATE QUERY of texts that differ in their names and literals only: parsed once, bound once.

    CREATE QUERY hot7 AS SELECT ... WHERE sym = 7 AND price > 2.5
                 name    └─────────────── text ──┴── and ──┴── literals: what lies between them is the key

The cut is made without the tokenizer, and is right because the tokenizer has seen it for the first text of a key: a
literal that ends where it may only end is one token, whatever it says. A literal is *lifted* where planning does not
look at it: as one side of a comparison, in BETWEEN or in a list of IN, in a WHERE, HAVING or ON. One in an expression,
in the select list, or a window's length is lifted, too, and its class belongs to the key (`plan.literal_classes`): what
stands for it is one of the class. All others belong to the key, and so does which literals are equal. A text is planned
with marks (`plan.parametric`) when its key is seen twice; if what is made so differs from what is planned from scratch,
only what is compared is lifted in texts like it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sqlglot import exp

from windrow.catalog import Catalog
from windrow.cql.dialect import StreamItems
from windrow.cql.walks import find_all, has
from windrow.errors import WindrowError
from windrow.plan.literal_classes import NumberClass, number_class, others
from windrow.plan.nodes import Emit, QueryPlan, walk
from windrow.plan.parametric import Constants, PlanShape, class_of, mark

MOST = 1024
"""Texts whose plans are remembered; the one that was used least recently goes."""

_CREATE = re.compile(r"\s*CREATE\s+QUERY\s+([A-Za-z_]\w*)\s+AS\s+(?=SELECT\b|WITH\b)", re.IGNORECASE)
_LITERAL = re.compile(r"('[^']*'|(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d\d?)?(?![\w.]))", re.ASCII)
_DOUBTFUL = re.compile(r"[\\\"`$#]|--|/\*|''|&'|(?<![\w'])[EeXxBbNnRr]'|[^\x00-\x7f]|@windrow|7190835462|7\.1908354629")
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


class Cut(NamedTuple):
    """A statement cut at its literals."""

    name: str
    name_offset: int
    body: int  # where the SELECT begins
    pieces: tuple[str, ...]
    literals: tuple[str, ...]


def cut(text: str) -> Cut | None:
    """A CREATE QUERY cut at its literals; None for whatever needs the tokenizer.

    >>> cut("CREATE QUERY q AS SELECT a FROM s [ROWS 10] WHERE b = 'x'").literals
    ('10', "'x'")
    """
    head = _CREATE.match(text)
    if head is None or _DOUBTFUL.search(text, head.end()):
        return None
    parts = _LITERAL.split(text[head.end() :])
    return Cut(head[1], head.start(1), head.end(), tuple(parts[::2]), tuple(parts[1::2]))


def statements(script: str) -> Iterator[tuple[int, int]] | None:
    """Where the statements of a script begin and end; None if that needs the tokenizer."""
    if _DOUBTFUL.search(script):
        return None
    return _statements(script)


def _statements(script: str) -> Iterator[tuple[int, int]]:
    begin = at = 0
    while at < len(script):
        end = script.find(";", at)
        end = len(script) if end < 0 else end
        quote = script.find("'", at, end)
        if quote >= 0:  # a semicolon in a text is none
            close = script.find("'", quote + 1)
            at = len(script) if close < 0 else close + 1
            if at < len(script):
                continue
            end = len(script)
        yield begin, end
        begin = at = end + 1
    if begin < len(script):
        yield begin, len(script)


class Lift(Enum):
    """How a literal is lifted."""

    NOT = 0
    COMPARED = 1
    INSIDE = 2
    """In an expression, or as a column of the answer."""
    WINDOW = 3
    PREFIX = 4
    """As the pattern of LIKE: what stands before its `%`."""


class Key(NamedTuple):
    """What two texts must have in common to be one shape: the literals that are not lifted, the classes of those that
    are in expressions and windows, and which are equal."""

    fixed: tuple[str | NumberClass, ...]
    equal: tuple[int, ...]


@dataclass
class _Known:
    """The texts that agree between their literals."""

    lifted: tuple[Lift, ...]
    seen: dict[Key, _Plans] = field(default_factory=dict)
    texts: bool = True  # whether texts are lifted: not if one is compared with something else, and must be read
    wide: bool = True  # whether more is lifted than what is compared: not if planning has looked at it

    def narrowed(self) -> None:
        """Lift no more than what is compared, in texts to come."""
        self.wide, self.seen = False, {}


@dataclass
class _Plans:
    """What was planned for one key, against the declarations that it was planned with; no shape: marks do not do."""

    declared: tuple[object, ...] = ()
    shape: PlanShape | None = None
    over: dict[str, QueryPlan] = field(default_factory=dict)  # the queries that it reads

    def holds(self, declared: tuple[object, ...], queries: Mapping[str, QueryPlan]) -> bool:
        """Whether it is of these declarations, and the queries that it reads are those that there are."""
        if len(self.declared) != len(declared) or any(a is not b for a, b in zip(self.declared, declared, strict=True)):
            return False
        return all(queries.get(name) is plan for name, plan in self.over.items())


_known: OrderedDict[tuple[str, ...], _Known] = OrderedDict()


@dataclass(frozen=True)
class Repeated:
    """A text whose key has been seen: it is well formed, and may have a shape."""

    cut: Cut
    lifted: tuple[Lift, ...]
    key: Key
    text: str

    @property
    def wide(self) -> bool:
        """Whether more is lifted than what is compared."""
        return not {*self.lifted} <= {Lift.NOT, Lift.COMPARED}

    def with_marks(self) -> tuple[str, tuple[str, ...]] | None:
        """The text with marks in the place of what is lifted, and the marks; None if there are no marks."""
        taken = {*_NUMBER.findall(" ".join(self.cut.pieces)), *self.cut.literals}
        marks, shown = list[str](), list[str]()
        for i, (lift, value) in enumerate(zip(self.lifted, self.cut.literals, strict=True)):
            if lift is Lift.NOT:
                shown.append(value)
                continue
            if lift is Lift.COMPARED or value.startswith("'"):
                found: str | None = mark(i, value)
                if lift is Lift.PREFIX:
                    marks.append(mark(i, value))
                    shown.append(f"{marks[-1][:-1]}%'")
                    continue
            else:
                alike = (m for m in others(value) if m not in taken and _class(lift, m) == _class(lift, value))
                found = next(alike, None)
            if found is None:
                return None
            taken.add(found)
            marks.append(found)
            shown.append(found)
        pieces = [*sum(zip(self.cut.pieces, shown, strict=False), ()), self.cut.pieces[-1]]
        return self.text[: self.cut.body] + "".join(pieces), tuple(marks)

    def constants(self, name: str) -> Constants | None:
        """What stands for the marks; None if one of it is never lifted."""
        found = tuple(
            v if lift is not Lift.PREFIX else f"{v[:-2]}'"
            for v, lift in zip(self.cut.literals, self.lifted, strict=True)
            if lift is not Lift.NOT
        )
        classes = tuple(map(class_of, found))
        return None if None in classes else Constants(name, self.text, found, classes)  # type: ignore[arg-type]


_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PREFIX = re.compile("'[^'%_]+%'")


def _class(lift: Lift, literal: str) -> NumberClass | None:
    """The class of a literal that is lifted otherwise than compared; None: it is the only one. Texts have one."""
    if lift is Lift.PREFIX:
        return () if _PREFIX.fullmatch(literal) else None
    if literal.startswith("'"):
        return () if lift is Lift.INSIDE else None
    found = number_class(literal)
    if found is None or lift is Lift.INSIDE:
        return found
    return None if found[1] else (*found, int(literal).bit_length())  # costs follow from lengths: of as many bits


def _key(literals: tuple[str, ...], lifted: tuple[Lift, ...]) -> tuple[Key, tuple[Lift, ...]]:
    """The key of some literals, and how each of them is lifted: one that is alone in its class is not."""
    fixed, lifts = list[str | NumberClass](), list[Lift]()
    for value, lift in zip(literals, lifted, strict=True):
        if lift is not Lift.COMPARED:
            of = None if lift is Lift.NOT else _class(lift, value)
            lift = Lift.NOT if of is None else lift
            fixed.append(value if of is None else of)
        lifts.append(lift)
    return Key(tuple(fixed), tuple(map(literals.index, literals))), tuple(lifts)


def repeated(text: str, found: Cut) -> Repeated | None:
    """A text as one whose key has been seen before."""
    known = _known.get(found.pieces)
    if known is None:
        return None
    key, lifted = _key(found.literals, known.lifted)
    if key not in known.seen:
        return None
    _known.move_to_end(found.pieces)
    return Repeated(found, lifted, key, text)


def remember(found: Cut, begin: int, literals: Set[tuple[int, int]], tree: exp.Query) -> None:
    """Note that a text was parsed: the first and last offset of its literals, the text beginning at `begin`."""
    at, places = begin + found.body, []
    for piece, value in zip(found.pieces, found.literals, strict=False):
        places.append((at + len(piece), at + len(piece) + len(value) - 1))
        at = places[-1][1] + 1
    if literals != set(places):
        return
    lifts = {int(node.meta["start"]): lift for node in find_all(tree, exp.Literal) if (lift := _lift(node))}
    known = _known.setdefault(found.pieces, _Known(()))
    lifted = list[Lift]()
    for i, ((first, _), value) in enumerate(zip(places, found.literals, strict=True)):
        lift = lifts.get(first, Lift.NOT)
        if "[" in found.pieces[i] and _RANGE.search(found.pieces[i]) and _RANGE_ENDS.match(found.pieces[i + 1]):
            lift = Lift.WINDOW
        narrow = lift is not Lift.COMPARED and not known.wide
        lifted.append(Lift.NOT if narrow or (value.startswith("'") and not known.texts) else lift)
    if known.lifted != tuple(lifted):
        known.lifted, known.seen = tuple(lifted), {}
    if len(known.seen) < MOST:
        known.seen.setdefault(_key(found.literals, known.lifted)[0], _Plans())
    while len(_known) > MOST:
        _known.popitem(last=False)


_RANGE = re.compile(r"\[\s*(?:RANGE|(?:PARTITION\s+BY\s+[\w\s,]+\s)?ROWS)\s+$", re.IGNORECASE | re.ASCII)
_RANGE_ENDS = re.compile(r"\s*(?:\s[A-Za-z]+\s*)?\]")
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
_TESTS = (exp.And, exp.Or, exp.Not, exp.Paren)
_EXPRESSIONS = (
    *(*_ARITHMETIC, *_COMPARISONS, *_TESTS, exp.Neg, exp.Between, exp.In, exp.Is, exp.Case, exp.If, exp.Abs),
    *(exp.Coalesce, exp.Greatest, exp.Least, exp.Alias, exp.Anonymous, StreamItems),
)
_FUNCTIONS = ("abs", "coalesce", "greatest", "least")


def _lift(node: exp.Literal) -> Lift | None:
    """How a literal is lifted; None if it is not."""
    if "start" not in node.meta:
        return None
    child: exp.Expr = node
    parent = node.parent
    if isinstance(parent, exp.Neg):
        child, parent = parent, parent.parent
    compared = _is_compared(child, parent)
    if compared and parent is not None and _clause(parent, _TESTS) in ("where", "on"):
        return Lift.COMPARED
    if isinstance(parent, exp.Like) and parent.expression is child and has(parent.this, exp.Column, exp.Star):
        return Lift.PREFIX if _clause(parent, _TESTS) in ("where", "on") else None
    if isinstance(parent, exp.Cast) and child is node:  # as templates write the values of their parameters
        child, parent = parent, parent.parent
        compared = _is_compared(child, parent)
    if isinstance(parent, exp.Alias) and parent.this is child:
        inside = True
    elif not node.is_string and isinstance(parent, _ARITHMETIC):
        inside = has(parent.expression if parent.this is child else parent.this, exp.Column, exp.Star)
    else:
        valued = isinstance(parent, exp.If | exp.Case) and child.arg_key in ("true", "default")
        named = isinstance(parent, exp.Coalesce | exp.Greatest | exp.Least | exp.Anonymous)
        beside = named and parent is not None and has(parent, exp.Column, exp.Star)
        inside = not node.is_string and (compared or valued or beside)
    clause = _clause(child, _EXPRESSIONS) if inside else ""
    if clause == "grouped" and not isinstance(parent, exp.Alias):  # GROUP BY may say the same
        return None
    return Lift.INSIDE if clause else None


def _is_compared(child: exp.Expr, parent: exp.Expr | None) -> bool:
    """Whether a literal is compared with something that has a column."""
    if isinstance(parent, _COMPARISONS):
        other = parent.expression if parent.this is child else parent.this
    elif isinstance(parent, exp.Between | exp.In) and parent.this is not child:
        other = parent.this
    else:
        return False
    return has(other, exp.Column, exp.Star)


def _clause(child: exp.Expr, through: tuple[type[exp.Expr], ...]) -> str:
    """In which clause of a SELECT an expression stands, if nothing else is between; a column must have a name."""
    node = child.parent
    named = False
    while isinstance(node, through) and (not isinstance(node, exp.Anonymous) or node.name.lower() in _FUNCTIONS):
        named = isinstance(node, exp.Alias) or (named and isinstance(node, StreamItems))
        child, node = node, node.parent
    if isinstance(node, exp.Where | exp.Having) and isinstance(node.parent, exp.Select):
        return "where"
    if isinstance(node, exp.Join) and child.arg_key == "on":
        return "on"
    if not (named and isinstance(node, exp.Select) and child.arg_key == "expressions"):
        return ""
    return "grouped" if node.args.get("group") else "shown"


def bound(statement: Repeated, name: str, catalog: Catalog, bind: Callable[[str], QueryPlan]) -> QueryPlan:
    """The plan of a text whose key has been seen; `bind` makes the plan of a text."""
    known = _known.get(statement.cut.pieces)
    plans = None if known is None else known.seen.get(statement.key)
    constants = statement.constants(name)
    if known is None or plans is None or constants is None:
        return bind(statement.text)
    declared = (catalog.streams, catalog.tables, catalog.functions, catalog.views, catalog.macros)
    if not plans.holds(declared, catalog.queries):
        plans.declared, plans.over = declared, {}
        plans.shape = _shape(statement, known, catalog, bind)
        if plans.shape is not None:
            plans.over = dict(_read(plans.shape.plan, catalog.queries))
    shape = plans.shape
    if shape is not None and statement.wide and shape.doubted:
        known.narrowed()
        shape = None
    if shape is None:
        return bind(statement.text)
    return shape.made(constants, lambda: bind(statement.text))


def _read(plan: QueryPlan, queries: Mapping[str, QueryPlan]) -> Iterator[tuple[str, QueryPlan]]:
    """The queries that a plan reads, and those that these read."""
    for name in plan.over:
        if (found := queries.get(name.lower())) is not None:
            yield name.lower(), found
            yield from _read(found, queries)


def _shape(statement: Repeated, known: _Known, catalog: Catalog, bind: Callable[[str], QueryPlan]) -> PlanShape | None:
    marked = statement.with_marks()
    if marked is None:
        return None
    text, marks = marked
    try:
        plan = bind(text)
        if Lift.WINDOW not in statement.lifted or not _compares_windows(plan):
            return PlanShape.of(plan, marks)
        known.narrowed()
        return None
    except WindrowError:
        if statement.wide:
            known.narrowed()
        elif any(m.startswith("'") for m in marks):
            known.texts, known.seen = False, {}
        return None


def _compares_windows(plan: QueryPlan) -> bool:
    """Whether planning may have looked at which window is the longest, as it does where windows are periodic."""
    return any(isinstance(node, Emit) and node.period is not None for node in walk(plan.root))


__all__ = ["Cut", "Repeated", "bound", "cut", "remember", "repeated", "statements"]
