"""SHED as written at the end of a SELECT.

    SHED BY DGL(alpha => 10, beta => 1) KEEP 100 ROWS [EACH | EVENLY | BY NEED]     when memory is short
    SHED WHEN TICK OVER '2 seconds'                                                 when time is short
    IMPORTANCE imp [, ...]                                                          what matters, for both

The parts may come in any order and once each. A clause is pure syntax, but for names and numbers that no query could
mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from windrow.cql.scope import did_you_mean
from windrow.cql.source import Cursor
from windrow.cql.windows import Amount, parse_amount
from windrow.errors import BindingError, CQLSyntaxError

SHED = "shed"  # meta key: the ShedClause
FORM = "SHED BY DGL(alpha => 10, beta => 1) KEEP 100 ROWS IMPORTANCE imp"
PARAMETERS: Mapping[str, Mapping[str, float]] = {
    "SIMP": {}, "SIMPPROB": {}, "DIMPPROB": {}, "DGL": {"alpha": 10.0, "beta": 1.0}, "RANDOM": {"seed": 0}, "FIFO": {},
}  # fmt: skip
"""The heuristics, and their parameters with defaults."""


@dataclass(frozen=True)
class ShedClause:
    """A SHED clause. `divide`: "evenly", "each" or "need". `end`: the token behind it."""

    offset: int
    text: str = ""
    end: int = 0
    heuristic: str | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    keep: int | None = None
    keep_offset: int = 0
    divide: str = "evenly"
    budget: Amount | None = None
    importance: tuple[exp.Expr, ...] = ()


def at_shed(cursor: Cursor) -> bool:
    """Is the cursor at SHED BY or SHED WHEN?"""
    if cursor.word != "SHED" or cursor.index + 1 >= cursor.end:
        return False
    return str(cursor.tokens[cursor.index + 1].text).upper() in ("BY", "WHEN")


def parse_shed(cursor: Cursor, expression: Callable[[Cursor], Any]) -> ShedClause:
    """Parse the clauses up to the end of the SELECT; `expression` parses one at a cursor."""
    start = cursor.offset
    clause = ShedClause(start)
    while True:
        offset = cursor.offset
        if at_shed(cursor) and cursor.accept("SHED", "BY"):
            _once(clause.heuristic is None, "SHED BY", cursor, offset)
            clause = _heuristic(cursor, clause)
        elif at_shed(cursor) and cursor.accept("SHED", "WHEN"):
            _once(clause.budget is None, "SHED WHEN", cursor, offset)
            cursor.expect("TICK", "OVER", hint="write SHED WHEN TICK OVER '2 seconds'")
            clause = replace(clause, budget=_budget(cursor))
        elif cursor.accept("KEEP"):
            _once(clause.keep is None, "KEEP", cursor, offset)
            clause = _keep(cursor, clause)
        elif cursor.accept("IMPORTANCE"):
            _once(not clause.importance, "IMPORTANCE", cursor, offset)
            found = [_expression(cursor, expression)]
            while cursor.accept(","):
                found.append(_expression(cursor, expression))
            clause = replace(clause, importance=tuple(found))
        else:
            break
    if clause.heuristic is not None and clause.keep is None:
        raise CQLSyntaxError("SHED BY needs KEEP", hint=f"write {FORM}", span=cursor.source.span(start))
    if clause.heuristic is None and clause.keep is not None:
        raise CQLSyntaxError("KEEP needs SHED BY", hint=f"write {FORM}", span=cursor.source.span(clause.keep_offset))
    last = int(cursor.tokens[cursor.index - 1].end) + 1
    return replace(clause, text=cursor.source.text[start:last], end=cursor.index)


def _once(first: bool, what: str, cursor: Cursor, offset: int) -> None:
    if not first:
        raise CQLSyntaxError(f"{what} twice", hint="write it once", span=cursor.source.span(offset))


def _expression(cursor: Cursor, expression: Callable[[Cursor], Any]) -> exp.Expr:
    node = expression(cursor)
    if not isinstance(node, exp.Expr):
        raise cursor.unexpected("a column or an expression after IMPORTANCE", hint="write IMPORTANCE imp")
    return node


def _heuristic(cursor: Cursor, clause: ShedClause) -> ShedClause:
    offset = cursor.offset
    name = cursor.name("a heuristic", hint=f"one of {', '.join(PARAMETERS)}").upper()
    if name not in PARAMETERS:
        near = did_you_mean(name, PARAMETERS)
        known = f"the heuristics are {', '.join(PARAMETERS)}"
        raise BindingError(
            f'unknown heuristic "{name}"', hint=f"{near} {known}" if near else known, span=cursor.source.span(offset)
        )
    allowed = PARAMETERS[name]
    given: dict[str, float] = {}
    if cursor.accept("("):
        while not cursor.accept(")"):
            if given:
                cursor.expect(",")
            place = cursor.offset
            label = _label(cursor, name, allowed, given)
            value = _number(cursor, label)
            given[label] = _checked(label, value, cursor, place)
    return replace(clause, heuristic=name, parameters={**allowed, **given})


def _label(cursor: Cursor, heuristic: str, allowed: Mapping[str, float], given: Mapping[str, float]) -> str:
    """The name before `=>`, or the next parameter in order when none is written."""
    place = cursor.offset
    if cursor.kind == "NUMBER" or cursor.word in ("-", "+"):
        rest = [p for p in allowed if p not in given]
        if not rest:
            raise BindingError(_takes(heuristic, allowed), span=cursor.source.span(place))
        return rest[0]
    label = cursor.name("a parameter", hint=_takes(heuristic, allowed)).lower()
    cursor.expect("=>", hint=f"write {label} => 10")
    if label not in allowed or label in given:
        what = f'parameter "{label}" twice' if label in given else f'unknown parameter "{label}"'
        raise BindingError(what, hint=_takes(heuristic, allowed), span=cursor.source.span(place))
    return label


def _takes(heuristic: str, allowed: Mapping[str, float]) -> str:
    return f"{heuristic} takes {', '.join(allowed)}" if allowed else f"{heuristic} takes no parameters"


def _number(cursor: Cursor, what: str) -> float:
    sign = -1 if cursor.accept("-") else 1
    if cursor.kind != "NUMBER":
        raise cursor.unexpected(f"a number for {what}")
    text = str(cursor.take().text).replace("_", "")
    return sign * (int(text) if text.isdigit() else float(text))


def _checked(label: str, value: float, cursor: Cursor, place: int) -> float:
    rules = {
        "alpha": (value > 0, "greater than 0"),
        "beta": (value >= 0, "0 or more"),
        "seed": (isinstance(value, int), "an integer"),
    }
    fits, rule = rules[label]
    if not fits or not math.isfinite(value):
        raise BindingError(f"{label} is {value}", hint=f"{label} must be {rule}", span=cursor.source.span(place))
    return value


def _keep(cursor: Cursor, clause: ShedClause) -> ShedClause:
    offset = cursor.offset
    rows = _number(cursor, "KEEP")
    if not isinstance(rows, int):
        raise BindingError(f"KEEP {rows} rows", hint="write a whole number of rows", span=cursor.source.span(offset))
    if not (cursor.accept("ROWS") or cursor.accept("ROW")):
        raise cursor.unexpected("ROWS", hint=f"write KEEP {rows} ROWS")
    divide = "evenly"
    if cursor.accept("EACH"):
        divide = "each"
    elif cursor.accept("BY", "NEED"):
        divide = "need"
    else:
        cursor.accept("EVENLY")
    return replace(clause, keep=rows, keep_offset=offset, divide=divide)


def _budget(cursor: Cursor) -> Amount:
    offset = cursor.offset
    amount = parse_amount(cursor, "TICK OVER")
    if not amount.has_unit:
        raise BindingError(
            f"TICK OVER {amount.text} has no unit",
            hint=f"a tick's time is wall time: write TICK OVER '{amount.text.strip(chr(39))} seconds'",
            span=cursor.source.span(offset),
        )
    if amount.value <= 0:
        raise BindingError(
            f"TICK OVER {amount.text}", hint="a budget is a time greater than 0", span=cursor.source.span(offset)
        )
    return amount
