"""The options of a source, read one by one; what nobody asked for is refused by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from windrow.catalog import StreamDef
from windrow.errors import SourceError
from windrow.sources.casting import EPOCHS

# Java's letters of a time to strptime's.
_LETTERS = {
    "yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S",
    "SSSSSSSSS": "%n", "SSSSSS": "%f", "SSS": "%g", "XXX": "%z", "XX": "%z", "X": "%z", "Z": "%z", "a": "%p",
}  # fmt: skip
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


class SourceOptions:
    """What FROM kind (...) says, by lower-case name."""

    def __init__(self, stream: StreamDef) -> None:
        given = {k.lower(): str(v) for k, v in stream.options.items()}
        self.kind = given.pop("source", "").lower()
        self.what = stream.what
        self._given = given
        self._known: list[str] = []

    def text(self, name: str, default: str | None = None, *aliases: str) -> str | None:
        """An option as written; `aliases` are other names of it."""
        self._known += [name, *aliases]
        found = [n for n in (name, *aliases) if n.lower() in self._given]
        if len(found) > 1:
            raise self.refusal(f'"{found[0]}" and "{found[1]}" say the same thing', "write one of them")
        return self._given.get(found[0].lower(), default) if found else default

    def need(self, name: str, *aliases: str) -> str:
        """An option that must be there."""
        value = self.text(name, None, *aliases)
        if not value:
            raise SourceError(f"FROM {self.kind} needs the option {name}", hint=f"FROM {self.kind} ({name} => '...')")
        return value

    def number(self, name: str, default: int, *aliases: str) -> int:
        """A whole number above zero."""
        text = self.text(name, str(default), *aliases)
        if text is None or not text.isdecimal() or int(text) == 0:
            raise self.refusal(f'{name} is "{text}"', "it is a whole number above zero")
        return int(text)

    def amount(self, name: str, default: float, *aliases: str) -> float:
        """A number above zero."""
        text = self.text(name, str(default), *aliases)
        try:
            value = float(text or "")
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise self.refusal(f'{name} is "{text}"', "it is a number above zero")
        return value

    def flag(self, name: str, default: bool, *aliases: str) -> bool:
        """Yes or no."""
        text = (self.text(name, str(default), *aliases) or "").lower()
        if text not in _TRUE | _FALSE:
            raise self.refusal(f'{name} is "{text}"', "it is true or false")
        return text in _TRUE

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """One of several words, lower case."""
        text = (self.text(name, default) or "").lower()
        if text not in allowed:
            raise self.refusal(f'{name} is "{text}"', f"it is {' or '.join(allowed)}")
        return text

    def letter(self, name: str, default: str, *aliases: str) -> str:
        """One ASCII character, or none."""
        text = {"\\t": "\t", "tab": "\t"}.get(found := self.text(name, default, *aliases) or "", found)
        if len(text) > 1 or not text.isascii():
            raise self.refusal(f'{name} is "{text}"', "it is one ASCII character")
        return text

    def time_format(self, name: str) -> str | None:
        """A Java format of times, as strptime's.

        >>> SourceOptions(StreamDef("s", {}, "ts", options={"f": "dd/MM/yyyy'T'HH:mm:ss"})).time_format("f")
        '%d/%m/%YT%H:%M:%S'
        """
        if name == "timestampFormat" and self.text(name) in EPOCHS:
            return self.text(name)
        made = []
        for token in re.finditer(r"'[^']*'|([a-zA-Z])\1*|[^a-zA-Z']", self.text(name) or ""):
            word = token.group()
            if token.group(1) is None:
                made.append("'" if word == "''" else word.strip("'").replace("%", "%%"))
            elif word in _LETTERS:
                made.append(_LETTERS[word])
            else:
                numbers = f"; for numbers {', '.join(EPOCHS)}" if name == "timestampFormat" else ""
                raise self.refusal(f'{name} has "{word}"', f"windrow reads {', '.join(_LETTERS)}{numbers}")
        return "".join(made) or None

    def drops_malformed(self) -> bool:
        """Whether malformed rows are left out; nulls in their place are not offered."""
        return self.choice("mode", ("failfast", "dropmalformed"), "failfast") == "dropmalformed"

    def starting_with(self, prefix: str) -> dict[str, str]:
        """The options whose names begin so, without that beginning."""
        found = {k: v for k, v in self._given.items() if k.startswith(prefix)}
        self._known += found
        return {k[len(prefix) :]: v for k, v in found.items()}

    def finish(self) -> None:
        """Refuse what no call above has asked for."""
        known = {k.lower(): k for k in self._known}
        for name in self._given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f'did you mean "{known[near[0]]}"?' if near else f"options are {', '.join(known.values())}"
                raise self.refusal(f'no option "{name}"', f"{hint}; for what only Spark can do, attach a DataFrame")

    def refusal(self, what: str, hint: str) -> SourceError:
        """The error for a bad option."""
        said = f"FROM {self.kind}" if self.kind else "WITH"
        return SourceError(f"{self.what} {said}: {what}", hint=hint)
