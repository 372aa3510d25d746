"""Parameters of a one-time query: `$name`, `$1` and `?`, replaced by values before the text is parsed.

The tokenizer says where a parameter stands, so nothing in a string, a comment or a quoted name is one; a value becomes
a literal and can be nothing else. Parameters may stand wherever a literal may, windows included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot.errors import TokenError

from windrow.catalog.literals import literal
from windrow.cql.dialect import tokenize
from windrow.errors import BindingError

Parameters = Mapping[str, Any] | Sequence[Any]


def with_values(text: str, parameters: Parameters | None) -> str:
    """The text with a literal in the place of every parameter.

    >>> with_values("SELECT * FROM t WHERE a = $x AND b = 'it''s $x'", {"x": "it's"})
    "SELECT * FROM t WHERE a = 'it''s' AND b = 'it''s $x'"
    """
    if not parameters and "$" not in text and "?" not in text and "@" not in text:
        return text  # none of the signs of a parameter
    try:
        places = _places(text)
    except TokenError:
        return text  # the parser says where it is
    values = _Values(parameters)
    pieces, at = [], 0
    for begin, end, name in places:
        value = literal(values.take(name))
        alone = text[:begin].rstrip()[-1:] in ("(", ",", "=", "<", ">")
        shown = value if alone or not value.startswith("-") else f"({value})"  # a -- b is no minus
        # apart from its neighbours: a quote before a text would join it
        pieces += [text[at:begin], " " * _touches(text[begin - 1 : begin]), shown, " " * _touches(text[end : end + 1])]
        at = end
    values.check()
    return "".join([*pieces, text[at:]])


def _touches(character: str) -> bool:
    return character.isalnum() or character in ("-", "'", '"', "_", ".")


def _places(text: str) -> list[tuple[int, int, str | None]]:
    """Begin, end and name of every parameter; None: the next one in order."""
    tokens = tokenize(text)
    found: list[tuple[int, int, str | None]] = []
    for i, token in enumerate(tokens):
        kind = token.token_type.name
        if kind == "PLACEHOLDER":
            found.append((int(token.start), int(token.end) + 1, None))
        elif kind == "PARAMETER" and i + 1 < len(tokens) and tokens[i + 1].start == token.end + 1:
            found.append((int(token.start), int(tokens[i + 1].end) + 1, str(tokens[i + 1].text)))
    return found


class _Values:
    def __init__(self, given: Parameters | None) -> None:
        self._named: dict[str, Any] = {}
        if given is not None:
            named = given if isinstance(given, Mapping) else {str(i): v for i, v in enumerate(given, 1)}
            self._named = {str(k): v for k, v in named.items()}
        self._used: set[str] = set()
        self._next = 0

    def take(self, name: str | None) -> Any:
        if name is None:
            self._next += 1
            name = str(self._next)
        if name not in self._named:
            known = ", ".join(f"${k}" for k in self._named) or "none"
            raise BindingError(f"no value is given for ${name}", hint=f"given are {known}")
        self._used.add(name)
        return self._named[name]

    def check(self) -> None:
        unused = [k for k in self._named if k not in self._used]
        if unused:
            raise BindingError(f"${unused[0]} is given a value, and does not stand in the query")
