"""Places in a script, and a cursor over its tokens.

Every error must name its line and column, so a statement never leaves the text it came from: offsets into
the whole script are the one coordinate, and a `Span` is made from an offset only when something is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot.tokens import Token, TokenType

from windrow.errors import CQLSyntaxError, Span


@dataclass(frozen=True)
class ScriptText:
    """The text of a script; `more`: where texts of other declarations begin in it, with their names."""

    text: str
    more: tuple[tuple[int, str], ...] = ()

    def with_more(self, text: str, name: str) -> ScriptText:
        """With the text of another declaration behind it."""
        return ScriptText(f"{self.text}\n{text}", (*self.more, (len(self.text) + 1, name)))

    def span(self, offset: int) -> Span:
        """The line, the column and the line's text at an offset.

        >>> ScriptText("a\\nbc").span(3)
        Span(line=2, column=2, text='bc')
        """
        offset = min(max(offset, 0), len(self.text))
        inside = next(((begin, name) for begin, name in reversed(self.more) if begin <= offset), None)
        if inside is not None:  # the place in the script is that of the statement
            return Span(1, 1, f"(in {inside[1]})")
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        line = self.text[start:] if end < 0 else self.text[start:end]
        return Span(self.text.count("\n", 0, offset) + 1, offset - start + 1, line.rstrip("\r"))


@dataclass
class Cursor:
    """A position in a list of tokens; words are compared in upper case."""

    source: ScriptText
    tokens: Sequence[Token]
    index: int = 0
    end: int = field(default=-1)

    def __post_init__(self) -> None:
        if self.end < 0:
            self.end = len(self.tokens)

    @property
    def current(self) -> Token | None:
        return self.tokens[self.index] if self.index < self.end else None

    @property
    def kind(self) -> str:
        """The token type's name, or "" at the end."""
        return self.current.token_type.name if self.current else ""

    @property
    def word(self) -> str:
        """The token's text in upper case; "" at the end and for quoted text."""
        token = self.current
        if token is None or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            return ""
        return str(token.text).upper()

    @property
    def offset(self) -> int:
        """Where the current token starts, or where the last one ended."""
        if self.current is not None:
            return int(self.current.start)
        return int(self.tokens[self.end - 1].end) + 1 if self.end else 0

    def take(self) -> Token:
        token = self.current
        if token is None:
            raise self.unexpected("more text")
        self.index += 1
        return token

    def accept(self, *words: str) -> bool:
        """Consume the words if they come next, all of them."""
        index = self.index
        for word in words:
            if self.word != word:
                self.index = index
                return False
            self.index += 1
        return True

    def expect(self, *words: str, hint: str | None = None) -> None:
        for word in words:
            if not self.accept(word):
                raise self.unexpected(word, hint)

    def name(self, what: str, hint: str | None = None) -> str:
        """Consume an identifier."""
        token = self.current
        plain = token is not None and str(token.text).replace("_", "a").isalnum() and not str(token.text)[0].isdigit()
        if token is None or self.kind in ("STRING", "NUMBER") or not (self.kind == "IDENTIFIER" or plain):
            raise self.unexpected(what, hint)
        self.index += 1
        return str(token.text)

    def unexpected(self, wanted: str, hint: str | None = None) -> CQLSyntaxError:
        """The error for a token that does not fit here."""
        found = f'"{self.current.text}"' if self.current is not None else "the end"
        return CQLSyntaxError(f"expected {wanted}, found {found}", hint=hint, span=self.source.span(self.offset))
