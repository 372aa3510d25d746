"""What parts of a manifest say: values that are checked when they are read, and written as plain lists and names.

A value that is not as it is written raises, and the manifest that holds it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LastEvaluation:
    """Of a query with a deadline: the period at which it runs, and the instant for which it was evaluated last."""

    period: int
    done: int | None

    @staticmethod
    def of(plain: Any) -> LastEvaluation:
        period, done = _sequence(plain)
        return LastEvaluation(_integer(period, 1), None if done is None else _integer(done))

    def plain(self) -> list[int | None]:
        return [self.period, self.done]


@dataclass(frozen=True)
class HeavyKeysOfJoin:
    """The hashes of the heavy keys of a step of a query, each with the tick from which on it is heavy."""

    query: str
    step: int
    since: tuple[tuple[int, int], ...]

    @staticmethod
    def of(plain: Any) -> HeavyKeysOfJoin:
        query, step, keys = _sequence(plain)
        since = tuple((_integer(key), _integer(tick, 0)) for key, tick in map(_sequence, _sequence(keys)))
        if type(query) is not str:
            raise ValueError(f"{query!r} is no name of a query")
        return HeavyKeysOfJoin(query, _integer(step, 0), since)

    def plain(self) -> list[Any]:
        return [self.query, self.step, [list(key) for key in self.since]]


@dataclass(frozen=True)
class ArchiveMark:
    """The last update of an archive, and its layouts: partitions by insertion and expiration, rebuild, round robin."""

    slot: int
    layouts: tuple[tuple[int, int, bool, bool], ...]

    @staticmethod
    def of(plain: Any) -> ArchiveMark:
        if plain.keys() != {"slot", "layouts"}:
            raise ValueError(f"an archive says {sorted(plain)}")
        return ArchiveMark(_integer(plain["slot"]), tuple(map(_layout, _sequence(plain["layouts"]))))

    def plain(self) -> dict[str, Any]:
        return {"slot": self.slot, "layouts": [list(layout) for layout in self.layouts]}


def _layout(plain: Any) -> tuple[int, int, bool, bool]:
    insertions, expirations, rebuild, round_robin = _sequence(plain)
    if type(rebuild) is not bool or type(round_robin) is not bool:
        raise ValueError(f"{plain!r} is no layout of an archive")
    return _integer(insertions, 1), _integer(expirations, 1), rebuild, round_robin


def _integer(value: Any, least: int = -(2**63)) -> int:
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"{value!r} where an integer should be")
    return value


def _sequence(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} where a list should be")
    return value
