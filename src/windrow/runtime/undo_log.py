"""A change that is made as a whole or not at all: if a step fails, those before it are taken back, the last one first.

    with undo.change():             while it lasts
        names["q"] = query          a LoggedDict notes what the entry was
        families.join(query)        what is no name is noted by whoever does it, with what takes it back
        undo.note(families.leave, query)

Law: after a change that has failed every name is as it was before, and every note has been heeded. Outside of a change
nothing is noted. Cost: what changes, whatever else there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_NOTHING: Any = object()
_Step = tuple[Callable[..., object], tuple[object, ...]]


class UndoLog:
    """The steps of the change that is being made."""

    def __init__(self) -> None:
        self._steps: list[_Step] | None = None

    def note(self, back: Callable[..., object], *given: object) -> None:
        """Call this if the change that is being made fails."""
        if self._steps is not None:
            self._steps.append((back, given))

    @contextmanager
    def change(self) -> Iterator[None]:
        """Everything that happens in the block, or nothing."""
        if self._steps is not None:
            raise RuntimeError("a change is being made already")
        steps: list[_Step] = []
        self._steps = steps
        try:
            yield
        except BaseException:
            self._steps = None  # what is taken back is not noted again
            with ExitStack() as taken_back:  # all steps, even if one fails
                for back, given in steps:
                    taken_back.callback(back, *given)
                raise
        finally:
            self._steps = None


class LoggedDict(dict[K, V]):
    """A dict whose entries an undo log can put back.

    >>> undo = UndoLog()
    >>> names = LoggedDict(undo, {"a": 1, "b": 2})
    >>> try:
    ...     with undo.change():
    ...         names["a"], names["c"] = 7, 3
    ...         del names["b"]
    ...         raise ValueError
    ... except ValueError:
    ...     print(names == {"a": 1, "b": 2})
    True
    """

    __slots__ = ("_undo",)

    def __init__(self, undo: UndoLog, entries: Mapping[K, V] | None = None) -> None:
        super().__init__(entries or {})
        self._undo = undo

    def _note(self, key: K) -> None:
        self._undo.note(self._put_back, key, super().get(key, _NOTHING))

    def _put_back(self, key: K, value: V) -> None:
        if value is _NOTHING:
            super().pop(key, None)
        else:
            super().__setitem__(key, value)

    def __setitem__(self, key: K, value: V) -> None:
        self._note(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        self._note(key)
        super().__delitem__(key)

    def pop(self, key: K, *default: Any) -> Any:
        """Take an entry out."""
        self._note(key)
        return super().pop(key, *default)

    def setdefault(self, key: K, default: V) -> V:
        """The entry, put in if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def keep(self, wanted: Callable[[K], bool]) -> None:
        """Drop the entries whose keys are not wanted."""
        for key in [k for k in self if not wanted(k)]:
            del self[key]

    def update(self, *entries: Any, **more: Any) -> None:
        """Put in several entries."""
        for key, value in dict(*entries, **more).items():
            self[key] = value

    def __ior__(self, entries: Any) -> NoReturn:  # type: ignore[misc]
        """`update` says the same."""
        raise NotImplementedError

    def clear(self) -> None:
        """Drop all entries."""
        self.keep(lambda _: False)

    def popitem(self) -> NoReturn:
        """Nobody takes just any entry."""
        raise NotImplementedError
