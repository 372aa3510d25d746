"""The online star join, written down once more from the paper, row by row, with nothing but lists.

Shares no code with the engine. A row is (stream, ts, key, importance, number); a fact is (keys per stream, begin, end).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

MASK = 2**64 - 1


@dataclass
class Row:
    stream: int
    ts: int
    key: Any
    imp: float
    number: int  # position in its stream
    exp: int
    priority: float = 0.0
    matches: int = 0


@dataclass
class Fact:
    keys: tuple[Any, ...]
    begin: int
    end: int
    number: int

    def active(self, t: int) -> bool:
        return self.begin <= t < self.end

    def holds(self, row: Row) -> bool:
        return self.keys[row.stream] is not None and self.keys[row.stream] == row.key and self.active(row.ts)


@dataclass
class Reference:
    """`keep`: rows per stream, or one number for a shared memory."""

    facts: list[Fact]
    streams: int
    heuristic: str
    keep: list[int]
    shared: bool = False
    alpha: float = 10.0
    beta: float = 1.0
    seed: int = 0
    evict_first: bool = False
    memory: list[list[Row]] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)
    results: list[tuple[int, ...]] = field(default_factory=list)
    sizes: list[list[int]] = field(default_factory=list)

    def run(self, rows: list[Row]) -> list[tuple[int, ...]]:
        """Results as (row number of each stream..., fact number)."""
        self.memory = [[] for _ in range(self.streams)]
        self.drops = [0] * self.streams
        for t in sorted({r.ts for r in rows}):
            self.instant(t, sorted((r for r in rows if r.ts == t), key=lambda r: (r.stream, r.number)))
            self.sizes.append([len(m) for m in self.memory])
        return self.results

    def instant(self, t: int, arriving: list[Row]) -> None:
        for s in range(self.streams):
            self.memory[s] = [
                r for r in self.memory[s] if r.exp > t and any(f.holds(r) and f.end > t for f in self.facts)
            ]
        new = [r for r in arriving if any(f.holds(r) for f in self.facts)]
        present = [list(m) for m in self.memory]
        for r in new:
            present[r.stream].append(r)
        joined = self.combine(t, present, new)
        if not self.evict_first:
            self.results += joined
        self.prioritise(t, present, new, joined)
        ranks = {id(r): self.rank(t, r, present) for m in present for r in m}
        old = [list(m) for m in present]
        if self.shared:
            while sum(map(len, present)) > self.keep[0]:
                self.drop(0, present, [r for m in present for r in m], ranks)
        else:
            while any(len(m) > k for m, k in zip(present, self.keep, strict=True)):
                for s in range(self.streams):
                    if len(present[s]) > self.keep[s]:
                        self.drop(s, present, list(present[s]), ranks)
        if self.evict_first:
            there = [[r for r in o if r in new or any(r is k for k in p)] for o, p in zip(old, present, strict=True)]
            self.results += self.combine(t, there, new)
        self.memory = present

    def combine(self, t: int, present: list[list[Row]], new: list[Row]) -> list[tuple[int, ...]]:
        """All combinations with at least one new row."""
        found = []
        fresh = {id(r) for r in new}
        for f in self.facts:
            for combination in itertools.product(*([r for r in m if f.holds(r)] for m in present)):
                if any(id(r) in fresh for r in combination):
                    found.append((*(r.number for r in combination), f.number))
        return found

    def mn(self, t: int, row: Row, present: list[list[Row]]) -> int:
        """Combinations of the other streams' rows that meet the row through facts active at t."""
        total = 0
        for f in self.facts:
            if f.holds(row) and f.active(t):
                ways = 1
                for s, m in enumerate(present):
                    if s != row.stream:
                        ways *= sum(f.holds(r) for r in m)
                total += ways
        return total

    def prioritise(self, t: int, present: list[list[Row]], new: list[Row], joined: list[tuple[int, ...]]) -> None:
        producing = {(s, numbers[s]) for numbers in joined for s in range(self.streams)}
        for m in present:
            for r in m:
                is_new = r in new
                if self.heuristic == "SIMP":
                    r.priority = r.imp
                elif is_new or self.heuristic == "DIMPPROB":
                    r.matches = self.mn(t, r, present)
                    r.priority = r.imp * r.matches
                elif self.heuristic == "DGL":
                    r.matches = self.mn(t, r, present)
                    if (r.stream, r.number) in producing:
                        r.priority += r.imp * r.matches * float(r.exp - t) / self.alpha
                    else:
                        r.priority = max(0.0, r.priority - self.beta)

    def rank(self, t: int, r: Row, present: list[list[Row]]) -> tuple[float, ...]:
        age = (r.ts, r.stream, r.number)
        if self.heuristic == "SIMP":
            return (r.priority, *age)
        if self.heuristic == "FIFO":
            return age
        return (r.priority, r.imp, r.matches, *age)

    def drop(self, s: int, present: list[list[Row]], pool: list[Row], ranks: dict[int, tuple[float, ...]]) -> None:
        if self.heuristic == "RANDOM":
            victim = pool[splitmix(self.seed + s * 0xD1B54A32D192ED03, self.drops[s]) % len(pool)]
        else:
            victim = min(pool, key=lambda r: ranks[id(r)])
        self.drops[s] += 1
        present[victim.stream] = [r for r in present[victim.stream] if r is not victim]


def splitmix(seed: int, count: int) -> int:
    x = (seed + (count + 1) * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)
