"""A mapping that is a value: adding a name leaves the old one as it was, without copying it.

The entries lie in layers, each a dict that nobody changes, old ones first, each more than twice as long as the next.

    {a, b, c, d, e}  {f, g}  {h}     + i     {a, b, c, d, e}  {f, g}  {h, i} -> {a, b, c, d, e, f, g, h, i}

Invariant: a key is in one layer only, so that the layers one after the other are the entries in the order in which they
came. Cost: adding copies an entry O(log n) times in all, looking up asks O(log n) dicts, and what two mappings that
come from one another do not share is found by looking at the layers that differ. What entries name is noted by layer
when somebody asks, and a layer that loses some keeps its notes: asking again costs the layers and what is found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_Notes = dict[Callable[[Any], Collection[str]], dict[str, list[str]]]
"""Of a layer: by what is asked of entries, which keys have what; some may have gone since."""


class Names(Mapping[str, T], Generic[T]):
    """An immutable mapping.

    >>> one = Names({"a": 1}).put("b", 2)
    >>> two = one.put("c", 3).without("a")
    >>> list(one.items()), list(two.items())
    ([('a', 1), ('b', 2)], [('b', 2), ('c', 3)])
    """

    __slots__ = ("_layers", "_notes", "_size")

    def __init__(self, entries: Mapping[str, T] | None = None) -> None:
        self._layers: tuple[dict[str, T], ...] = (dict(entries),) if entries else ()
        self._notes: tuple[_Notes, ...] = tuple({} for _ in self._layers)
        self._size = len(entries or ())

    @classmethod
    def of(cls, entries: Mapping[str, T]) -> Names[T]:
        """Any mapping as one of these."""
        return entries if isinstance(entries, Names) else cls(entries)

    @classmethod
    def _of(cls, layers: tuple[dict[str, T], ...], notes: tuple[_Notes, ...]) -> Names[T]:
        made: Names[T] = cls()
        made._layers, made._notes, made._size = layers, notes, sum(map(len, layers))
        return made

    def put(self, key: str, value: T) -> Names[T]:
        """With one more entry, or another value for one."""
        return self.update({key: value})

    def update(self, entries: Mapping[str, T]) -> Names[T]:
        """With more entries."""
        if not entries:
            return self
        kept = self.without(*(k for k in entries if k in self))
        layers, last = kept._layers, dict(entries)
        while layers and len(layers[-1]) <= 2 * len(last):
            layers, last = layers[:-1], {**layers[-1], **last}
        return self._of((*layers, last), (*kept._notes[: len(layers)], {}))

    def without(self, *keys: str) -> Names[T]:
        """Without some entries."""
        if not keys:
            return self
        gone = set(keys)
        layers = [
            {k: v for k, v in layer.items() if k not in gone} if any(k in layer for k in gone) else layer
            for layer in self._layers
        ]
        some = [(layer, notes) for layer, notes in zip(layers, self._notes, strict=True) if layer]
        return self._of(tuple(layer for layer, _ in some), tuple(notes for _, notes in some))

    def having(self, name: str, among: Callable[[T], Collection[str]]) -> list[T]:
        """The entries that have a name among what a function says of each, in the order in which they came.

        >>> def letters(word: str) -> str:
        ...     return word
        >>> Names({"a": "xy", "b": "yz"}).put("c", "y").without("b").having("y", letters)
        ['xy', 'y']
        """
        found: list[T] = []
        for layer, notes in zip(self._layers, self._notes, strict=True):
            if among not in notes:
                noted: dict[str, list[str]] = {}
                for key, value in layer.items():
                    for each in among(value):
                        noted.setdefault(each, []).append(key)
                notes[among] = noted
            found += [layer[key] for key in notes[among].get(name, ()) if key in layer]
        return found

    def since(self, before: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T]]:
        """What came and what went, to get here from another: an entry with another value both went and came."""
        if not isinstance(before, Names):
            return _between(dict(before), dict(self))
        ours, theirs = {id(d) for d in self._layers}, {id(d) for d in before._layers}
        old = {k: v for d in before._layers if id(d) not in ours for k, v in d.items()}
        new = {k: v for d in self._layers if id(d) not in theirs for k, v in d.items()}
        return _between(old, new)

    def __getitem__(self, key: str) -> T:
        for layer in self._layers:
            if key in layer:
                return layer[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return any(key in layer for layer in self._layers)

    def __iter__(self) -> Iterator[str]:
        for layer in self._layers:
            yield from layer

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Names({dict(self)!r})"


def _between(old: dict[str, T], new: dict[str, T]) -> tuple[dict[str, T], dict[str, T]]:
    missing = object()
    come = {k: v for k, v in new.items() if old.get(k, missing) is not v}
    gone = {k: v for k, v in old.items() if new.get(k, missing) is not v}
    return come, gone
