"""One tree of errors, branched by what the reader can do about them.

    WindrowError
    ├── CQLSyntaxError      the text does not parse            → fix the text
    ├── BindingError        a name, type or window is wrong    → fix the query or the schema
    ├── UnsupportedError    understood, but windrow cannot     → write it another way
    ├── SourceError         input data or a source is bad      → fix the data
    ├── StateError          `home` or operator state is bad    → restore or clear it
    └── RuntimeFailure      an engine or a user function failed → read the detail
        └── DrainTimeout    there was more than time for it    → wait longer; also a TimeoutError

Every error is a lowercase primary message, then a detail, then a hint. Errors that point into CQL
also carry the line, the column and the offending line with a caret under it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a script: 1-based line and column, and the text of that line."""

    line: int
    column: int
    text: str = ""

    def caret(self) -> str:
        """Draw the line with a caret under the column."""
        return f"  {self.text}\n  {' ' * (self.column - 1)}^"


class WindrowError(Exception):
    """The root: a primary message with an optional detail, hint and place."""

    def __init__(
        self,
        primary: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        span: Span | None = None,
    ) -> None:
        super().__init__(primary)
        self.primary = primary
        self.detail = detail
        self.hint = hint
        self.span = span

    def __str__(self) -> str:
        lines = [self.primary]
        if self.span is not None:
            lines[0] = f"line {self.span.line}, column {self.span.column}: {self.primary}"
            if self.span.text:
                lines.append(self.span.caret())
        if self.detail:
            lines.append(f"detail: {self.detail}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def kept(self) -> Self:
        """Return self without its frames: an error that outlives its tick would keep all the rows they had at hand."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self

    def at(self, span: Span | None) -> WindrowError:
        """Return self, placed at `span` unless it already has a place."""
        if self.span is None:
            self.span = span
        return self


class CQLSyntaxError(WindrowError):
    """The text does not parse."""


class BindingError(WindrowError):
    """A name, a type or a window does not fit."""


class UnsupportedError(WindrowError):
    """Understood, but outside what windrow runs."""


class SourceError(WindrowError):
    """Input data or a source is bad."""


class StateError(WindrowError):
    """Durable or operator state is bad."""


class RuntimeFailure(WindrowError):
    """An engine underneath or a user's function failed."""


class DrainTimeout(RuntimeFailure, TimeoutError):
    """What was waited for did not come in time."""


def as_failure(error: Exception, query: str, home: str | None = None) -> WindrowError:
    """What stops one query: the error itself if it is ours, else one that says what was raised.

    `home`: from where some of its state has been read, which may hold anything.
    """
    if isinstance(error, WindrowError):
        return error
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    made: WindrowError = RuntimeFailure(
        f'query "{query}" raised {said}', hint="this is a fault in windrow; the query was stopped"
    )
    if home is not None:
        made = StateError(
            f'query "{query}" cannot go on with the state that was read from {home}',
            detail=f"it raised {said}; either somebody else has written to home, or windrow is at fault",
            hint="CREATE OR REPLACE QUERY it, or restore home from a backup",
        )
    made.__cause__ = error
    return made
