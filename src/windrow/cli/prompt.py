"""The shell's line: completion of words and names, colours, history, many lines until a statement is whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

_WORDS = """
    SELECT FROM WHERE GROUP BY HAVING ORDER DISTINCT AS AND OR NOT IN EXISTS BETWEEN LIKE IS NULL CASE WHEN THEN ELSE
    END JOIN LEFT ON UNION ALL EXCEPT INTERSECT CREATE QUERY STREAM TABLE VIEW DROP EXPLAIN SHOW DESCRIBE
    TIMESTAMP WITHIN IDLE AFTER
    RETAIN RANGE ROWS SLIDE PARTITION NOW UNBOUNDED ISTREAM DSTREAM RSTREAM COUNT SUM AVG MIN MAX SECONDS MINUTES HOURS
    BIGINT DOUBLE VARCHAR BOOLEAN
"""

Names = Callable[[], dict[str, dict[str, list[str]]]]
FRESH = 2.0
"""Seconds for which names that were looked up are good."""


class CqlCompleter(Completer):
    """Words of CQL, names of what is declared, their columns, and the shell's commands."""

    def __init__(self, names: Names, commands: Sequence[str]) -> None:
        self._names, self._commands = names, commands
        self._seen: tuple[float, dict[str, dict[str, list[str]]]] = (-FRESH, {})

    def _declared(self) -> dict[str, dict[str, list[str]]]:
        then, found = self._seen
        if time.monotonic() - then > FRESH:
            try:
                found = self._names()
            except Exception:  # a server that is away completes nothing
                found = {}
            self._seen = (time.monotonic(), found)
        return found

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What may come at the cursor."""
        if document.text.lstrip().startswith("\\") and " " not in document.text.strip():
            begun = document.text.lstrip()
            yield from (Completion(c, -len(begun)) for c in self._commands if c.startswith(begun))
            return
        begun = document.get_word_before_cursor()
        if not begun:
            return
        for kind, known in self._declared().items():
            for name, columns in known.items():
                if name.lower().startswith(begun.lower()):
                    yield Completion(name, -len(begun), display_meta=kind)
                for column in columns:
                    if column.lower().startswith(begun.lower()):
                        yield Completion(column, -len(begun), display_meta=name)
        yield from (Completion(w, -len(begun)) for w in _WORDS.split() if w.startswith(begun.upper()))


def reader(names: Names, commands: Sequence[str], is_whole: Callable[[str], bool], history: Path) -> Callable[[], str]:
    """A function that asks for statements; Enter runs what is whole and breaks the line otherwise."""
    keys = KeyBindings()
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)),
        completer=CqlCompleter(names, commands),
        complete_while_typing=True,
        lexer=PygmentsLexer(SqlLexer),
        multiline=True,
        key_bindings=keys,
        prompt_continuation=lambda width, line, wrapped: " " * (width - 3) + "-> ",
    )

    @keys.add("enter", filter=Condition(lambda: is_whole(session.default_buffer.text)))
    def run(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return lambda: session.prompt("windrow> ")
