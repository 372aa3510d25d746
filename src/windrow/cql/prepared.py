"""CREATE QUERY of texts that differ in their names and literals only: parsed once, bound once.

    CREATE QUERY hot7 AS SELECT ... WHERE sym = 7 AND price > 2.5
                 name    └─────────────── text ──┴── and ──┴── literals: what lies between them is the key

The cut is made without the tokenizer, and is right because the tokenizer has seen it for the first text of a key: a
literal that ends where it may only end is one token, whatever it says. A literal is *lifted* where planning does not
look at it: as one side of a comparison, in BETWEEN or in a list of IN, in a WHERE or HAVING. All others belong to the
key, and so does which literals are equal. A text is planned with marks (`plan.parametric`) when its key is seen twice.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot import exp

from windrow.catalog import Catalog
from windrow.cql.walks import find_all, has
from windrow.errors import WindrowError
from windrow.plan.nodes import QueryPlan
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


class Key(NamedTuple):
    """What two texts must have in common to be one shape: the literals that are not lifted, and which are equal."""

    fixed: tuple[str, ...]
    equal: tuple[int, ...]


@dataclass
class _Known:
    """The texts that agree between their literals."""

    lifted: tuple[bool, ...]
    seen: dict[Key, _Plans] = field(default_factory=dict)
    texts: bool = True  # whether texts are lifted: not if one is compared with something else, and must be read


@dataclass
class _Plans:
    """What was planned for one key, against the declarations that it was planned with; no shape: marks do not do."""

    declared: tuple[object, ...] = ()
    shape: PlanShape | None = None


_known: OrderedDict[tuple[str, ...], _Known] = OrderedDict()


@dataclass(frozen=True)
class Repeated:
    """A text whose key has been seen: it is well formed, and may have a shape."""

    cut: Cut
    lifted: tuple[bool, ...]
    key: Key
    text: str

    def with_marks(self) -> tuple[str, tuple[str, ...]]:
        """The text with marks in the place of what is lifted, and the marks."""
        marks = [mark(i, v) for i, v in enumerate(self.cut.literals) if self.lifted[i]]
        at = iter(marks)
        shown = [next(at) if lift else v for lift, v in zip(self.lifted, self.cut.literals, strict=True)]
        pieces = [*sum(zip(self.cut.pieces, shown, strict=False), ()), self.cut.pieces[-1]]
        return self.text[: self.cut.body] + "".join(pieces), tuple(marks)

    def constants(self, name: str) -> Constants | None:
        """What stands for the marks; None if one of it is never lifted."""
        found = tuple(v for v, lift in zip(self.cut.literals, self.lifted, strict=True) if lift)
        classes = tuple(map(class_of, found))
        return None if None in classes else Constants(name, self.text, found, classes)  # type: ignore[arg-type]


def _key(literals: tuple[str, ...], lifted: tuple[bool, ...]) -> Key:
    fixed = tuple(v for v, lift in zip(literals, lifted, strict=True) if not lift)
    return Key(fixed, tuple(map(literals.index, literals)))


def repeated(text: str, found: Cut) -> Repeated | None:
    """A text as one whose key has been seen before."""
    known = _known.get(found.pieces)
    if known is None:
        return None
    key = _key(found.literals, known.lifted)
    if key not in known.seen:
        return None
    _known.move_to_end(found.pieces)
    return Repeated(found, known.lifted, key, text)


def remember(found: Cut, begin: int, literals: Set[tuple[int, int]], tree: exp.Query) -> None:
    """Note that a text was parsed: the first and last offset of its literals, the text beginning at `begin`."""
    at, places = begin + found.body, []
    for piece, value in zip(found.pieces, found.literals, strict=False):
        places.append((at + len(piece), at + len(piece) + len(value) - 1))
        at = places[-1][1] + 1
    if literals != set(places):
        return
    offsets = {int(node.meta["start"]) for node in find_all(tree, exp.Literal) if _lifts(node)}
    known = _known.setdefault(found.pieces, _Known(()))
    lifted = tuple(
        first in offsets and (known.texts or not value.startswith("'"))
        for (first, _), value in zip(places, found.literals, strict=True)
    )
    if known.lifted != lifted:
        known.lifted, known.seen = lifted, {}
    if len(known.seen) < MOST:
        known.seen.setdefault(_key(found.literals, lifted), _Plans())
    while len(_known) > MOST:
        _known.popitem(last=False)


def _lifts(node: exp.Literal) -> bool:
    """Whether planning looks at no more of a literal than its class."""
    if "start" not in node.meta:
        return False
    child: exp.Expr = node
    parent = node.parent
    if isinstance(parent, exp.Neg):
        child, parent = parent, parent.parent
    if isinstance(parent, _COMPARISONS):
        other = parent.expression if parent.this is child else parent.this
    elif isinstance(parent, exp.Between | exp.In) and parent.this is not child:
        other = parent.this
    else:
        return False
    if not has(other, exp.Column, exp.Star):
        return False
    above = parent.parent
    while isinstance(above, exp.And | exp.Or | exp.Not | exp.Paren):
        above = above.parent
    return isinstance(above, exp.Where | exp.Having) and isinstance(above.parent, exp.Select)


def bound(statement: Repeated, name: str, catalog: Catalog, bind: Callable[[str], QueryPlan]) -> QueryPlan:
    """The plan of a text whose key has been seen; `bind` makes the plan of a text."""
    known = _known.get(statement.cut.pieces)
    plans = None if known is None else known.seen.get(statement.key)
    constants = statement.constants(name)
    if known is None or plans is None or constants is None:
        return bind(statement.text)
    declared = (catalog.streams, catalog.tables, catalog.functions, catalog.views, catalog.macros)
    if len(plans.declared) != len(declared) or any(a is not b for a, b in zip(plans.declared, declared, strict=True)):
        plans.declared, plans.shape = declared, _shape(statement, known, catalog, bind)
    if plans.shape is None:
        return bind(statement.text)
    return plans.shape.made(constants, lambda: bind(statement.text))


def _shape(statement: Repeated, known: _Known, catalog: Catalog, bind: Callable[[str], QueryPlan]) -> PlanShape | None:
    text, marks = statement.with_marks()
    try:
        plan = bind(text)
        # a query that it reads may be replaced, and is not looked up
        return None if any(name.lower() in catalog.queries for name in plan.over) else PlanShape.of(plan, marks)
    except WindrowError:
        if any(m.startswith("'") for m in marks):
            known.texts, known.seen = False, {}
        return None


__all__ = ["Cut", "Repeated", "bound", "cut", "remember", "repeated", "statements"]
