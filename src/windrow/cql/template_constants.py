"""Constants that a template computes of its parameters, as parameters of their own.

    price > 10 * $lim    is    price > $computed_1    where computed_1 is 10 * lim, of every instance at once

Then instances differ in compared values only, and need not be planned one by one (`engine/instances.py`). What is taken
is arithmetic on numbers and parameters that as a whole is compared; in it a parameter has its declared type, as it has
in the text of an instance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from windrow.catalog import TemplateDef
from windrow.cql import types
from windrow.cql.dialect import tokenize
from windrow.cql.template_places import AFTER, BEFORE, COMPARISONS, word_of
from windrow.scalar_engine import quote

_ARITHMETIC = frozenset("+-*/%()")


class ComputedConstant(NamedTuple):
    """A constant computed of parameters: its name as a parameter, its SQL over columns of their values, its type."""

    name: str
    sql: str
    type: pa.DataType


class _Item(NamedTuple):
    begin: int
    end: int
    word: str
    kind: str
    parameter: str | None = None


def computed_constants(template: TemplateDef) -> tuple[TemplateDef, tuple[ComputedConstant, ...]]:
    """The template with parameters in the place of what it computes of others, and what they are.

    >>> t = TemplateDef("t", {"lim": pa.float64()}, "SELECT * FROM s WHERE p > 10 * $lim", "", True)
    >>> made, found = computed_constants(t)
    >>> made.body, list(made.parameters), found[0].sql
    ('SELECT * FROM s WHERE p > $computed_1', ['computed_1'], '10 * "lim"')
    """
    if not template.typed:
        return template, ()
    declared = {name.lower(): name for name in template.parameters}
    body, at, found = "", 0, list[ComputedConstant]()
    for run in _runs(_items(template.body)):
        text, last = "", run[0].begin
        for item in (i for i in run if i.parameter is not None):
            text += template.body[last : item.begin] + quote(declared[str(item.parameter)])
            last = item.end
        text, name = text + template.body[last : run[-1].end], f"computed_{len(found) + 1}"
        try:
            type_ = types.expression_type(text, template.parameters)
        except types.DuckDBRefusal:
            return template, ()
        found.append(ComputedConstant(name, text, type_))
        body, at = f"{body}{template.body[at : run[0].begin]}${name}", run[-1].end
    body += template.body[at:]
    left = {i.parameter for i in _items(body)}
    kept = {name: type_ for name, type_ in template.parameters.items() if name.lower() in left}
    if not found or kept.keys() & {c.name for c in found}:
        return template, ()
    return replace(template, body=body, parameters=kept | {c.name: c.type for c in found}), tuple(found)


def _items(body: str) -> list[_Item]:
    """The tokens of a text; a parameter is one."""
    found = list[_Item]()
    for token in tokenize(body):
        begin, end, kind = int(token.start), int(token.end) + 1, token.token_type.name
        if found and found[-1].kind == "PARAMETER" and found[-1].end == begin and found[-1].parameter is None:
            found[-1] = found[-1]._replace(end=end, parameter=str(token.text).lower())
        else:
            found.append(_Item(begin, end, word_of(token), kind))
    return found


def _runs(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Arithmetic on numbers and parameters that is compared."""
    at = 0
    while at < len(items):
        end = _end(items, at)
        run = items[at:end]
        while run and run[0].word == "(" and _end(run, 1) == len(run):  # it is closed behind what it is compared with
            run, at = run[1:], at + 1
        before = items[at - 1].word if at else ""
        after = items[end].word if end < len(items) else ""
        compared = (before in COMPARISONS or before == "BETWEEN") and after in AFTER
        if (compared or (before in BEFORE and after in COMPARISONS)) and len(run) > 1 and any(i.parameter for i in run):
            yield run
        at = max(end, at + 1)


def _end(items: Sequence[_Item], at: int) -> int:
    """Where arithmetic that begins here ends: a bracket that was not opened in it is not part of it."""
    open_ = 0
    while at < len(items):
        item = items[at]
        if item.parameter is None and item.kind != "NUMBER" and item.word not in _ARITHMETIC:
            break
        open_ += (item.word == "(") - (item.word == ")")
        if open_ < 0:
            break
        at += 1
    return at


__all__ = ["ComputedConstant", "computed_constants"]
