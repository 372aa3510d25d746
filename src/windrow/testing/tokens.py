"""Words of CQL: just enough lexing to find clauses, brackets and names in a query's text.

The oracle works on text: everything it does not understand it hands to DuckDB as written. So this knows strings,
quoted names, comments, numbers and punctuation, and nothing of SQL's grammar. Cost: linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_WORD = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*(?:/\*.*?\*/|.)*?\*/)
      | (?P<string>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<punctuation>->>|!~\*|<=|>=|<>|!=|\|\||::|:=|=>|->|<<|>>|@>|<@|!~|~\*|==|\*\*|//|.)""",
    re.VERBOSE | re.DOTALL,
)

OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = frozenset(OPENING.values())


@dataclass(frozen=True, slots=True)
class Token:
    """One word: its kind (string, quoted, number, name or punctuation) and its text as written."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def upper(self) -> str:
        """The text in upper case when it is a bare name or punctuation; nothing else can be a keyword."""
        return self.text.upper() if self.kind in ("name", "punctuation") else ""

    @property
    def name(self) -> str | None:
        """The name it spells, lower-cased (quotes removed), or None."""
        if self.kind == "name":
            return self.text.lower()
        if self.kind == "quoted":
            return self.text[1:-1].replace('""', '"').lower()
        return None


Tokens = Sequence[Token]


def tokenize(text: str) -> list[Token]:
    """Split text into tokens, comments and white space dropped.

    >>> [t.text for t in tokenize("SELECT a -- why\\nFROM S[RANGE 5]")]
    ['SELECT', 'a', 'FROM', 'S', '[', 'RANGE', '5', ']']
    """
    return [Token(m.lastgroup or "", m.group()) for m in _WORD.finditer(text) if m.lastgroup != "skip"]


def render(tokens: Tokens) -> str:
    """Tokens as text again."""
    return " ".join(t.text for t in tokens)


def closing(tokens: Tokens, start: int) -> int:
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(tokens)):
        if tokens[i].text in OPENING:
            depth += 1
        elif tokens[i].text in CLOSING:
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"unclosed {tokens[start].text!r} in: {render(tokens)}")


def top_level(tokens: Tokens, start: int = 0) -> Iterator[int]:
    """Indices of the tokens outside all brackets; an opening bracket itself is outside, its closing one is not."""
    i = start
    while i < len(tokens):
        yield i
        i = closing(tokens, i) + 1 if tokens[i].text in OPENING else i + 1


def split(tokens: Tokens, separator: str) -> list[list[Token]]:
    """Parts of tokens between top-level separators.

    >>> [render(p) for p in split(tokenize("a, f(b, c)"), ",")]
    ['a', 'f ( b , c )']
    """
    cuts = [i for i in top_level(tokens) if tokens[i].upper == separator]
    return [list(tokens[a + 1 : b]) for a, b in zip([-1, *cuts], [*cuts, len(tokens)], strict=True)]


def is_at(tokens: Tokens, i: int, *words: str) -> bool:
    """Whether the tokens from `i` on are these keywords."""
    return i + len(words) <= len(tokens) and all(tokens[i + k].upper == w for k, w in enumerate(words))
