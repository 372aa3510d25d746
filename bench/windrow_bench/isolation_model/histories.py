"""Histories of window movements and window scans, and the isolation levels they have (thesis 7.2 and 7.3).

A window is a ring of n sub-windows. Movement T_j writes its *version* j into sub-window `j mod n`, over version j - n;
a query reads each of its sub-windows once, in any order:

    versions     0   1   2   3   4 │ 5   6             n = 5
    after T_4   [0   1   2   3   4]
    after T_6            [2   3   4   5   6]           what a query over the whole window should have read

So a query over L sub-windows has read a true state of the window if its versions are some m-L+1 .. m, and the latest
one if m is the newest version when it commits. These definitions (7.1, 7.2) say which level a history has. The
serialization graph says it too, for queries over the whole window (theorems 7.1 and 7.2): tests compare the two.

A history begins with a full window: the one its first movement moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from windrow.errors import WindrowError

Transaction = int | str
"""A movement, by its number, or an execution of a query, by its name."""

_TOKEN = re.compile(r"(?P<kind>[rwca])(?P<who>\d+|[A-Za-z]\w*)(?:\[(?P<part>\d+)\])?")


@dataclass(frozen=True, slots=True)
class Operation:
    """`r` and `w` read and write a sub-window, `c` commits, `a` aborts; `u` takes a read back.

    A read is of the version that its place holds, unless it says which: an older one that is kept for readers.
    """

    kind: str
    transaction: Transaction
    part: int = -1
    version: int = -1

    def __str__(self) -> str:
        return f"{self.kind}{self.transaction}" + (f"[{self.part}]" if self.kind in "rwu" else "")


@dataclass(frozen=True)
class History:
    """Operations in the order in which they ran; `lengths`: of queries over fewer than all n sub-windows."""

    n: int
    operations: tuple[Operation, ...]
    lengths: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, n: int, text: str, **lengths: int) -> History:
        """A history as the thesis prints it.

        >>> str(History.parse(5, "rQ1[0] w5[0] c5 cQ1"))
        'rQ1[0] w5[0] c5 cQ1'
        """
        return cls(n, tuple(_operation(n, token) for token in text.split()), lengths)

    def __str__(self) -> str:
        return " ".join(map(str, self.operations))

    def length(self, query: str) -> int:
        """How many sub-windows a query's window has."""
        return self.lengths.get(query, self.n)

    @property
    def before(self) -> int:
        """The newest version when the history begins."""
        moved = (o.transaction for o in self.operations if o.kind == "w")
        return int(next(moved, self.n)) - 1

    def committed(self) -> Iterator[tuple[str, list[int], int]]:
        """(query, the versions it read, the newest version at that time) at every commit of a query."""
        newest, read = self.before, dict[str, list[int]]()
        for o in self.operations:
            if o.kind == "w":
                newest = int(o.transaction)
            elif o.kind == "r":
                version = o.version if o.version >= 0 else newest - (newest - o.part) % self.n
                read.setdefault(str(o.transaction), []).append(version)
            elif o.kind == "u":
                read[str(o.transaction)].remove(o.version)
            elif o.kind == "a":
                read.pop(str(o.transaction), None)
            elif isinstance(o.transaction, str):
                yield o.transaction, sorted(read.pop(o.transaction, [])), newest


def _operation(n: int, token: str) -> Operation:
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise WindrowError(
            f'"{token}" is no operation of a history', hint="write rQ1[0], w5[0], c5, cQ1 or aQ1, apart by spaces"
        )
    kind, who, part = match["kind"], match["who"], match["part"]
    transaction: Transaction = int(who) if who.isdecimal() else who
    if (kind == "w") != isinstance(transaction, int) and kind != "c":
        raise WindrowError(f'"{token}" is no operation of a history', detail="movements write, queries read and abort")
    if kind == "w" and int(part or transaction) != int(transaction) % n:
        raise WindrowError(f'"{token}" writes the wrong sub-window', detail=f"T{who} writes {int(transaction) % n}")
    if kind == "r" and (part is None or int(part) >= n):
        raise WindrowError(f'"{token}" reads no sub-window', detail=f"they are numbered 0 to {n - 1}")
    return Operation(kind, transaction, int(transaction) % n if kind == "w" else int(part) if kind == "r" else -1)


def window_serializable(history: History) -> bool:
    """Definition 7.1: every committed query read a true state of its window, as of its commit or before."""
    return all(_true_state(history, *found) is not None for found in history.committed())


def latest_window_serializable(history: History) -> bool:
    """Definition 7.2: every committed query read the state of its window as of its commit."""
    return all(_true_state(history, *found) == found[2] for found in history.committed())


def _true_state(history: History, query: str, versions: Sequence[int], newest: int) -> int | None:
    """The movement after which the window was what the query read; None: it never was."""
    length = history.length(query)
    last = versions[-1] if versions else None
    whole = last is not None and list(versions) == list(range(last - length + 1, last + 1))
    return last if whole else None


def serialization_graph(history: History) -> set[tuple[Transaction, Transaction]]:
    """(a, b) for each conflict between a movement and a query: a comes before b in every equivalent serial order."""
    dead = {o.transaction for o in history.operations if o.kind == "a"}
    seen: dict[int, list[Operation]] = {}
    edges: set[tuple[Transaction, Transaction]] = set()
    for o in history.operations:
        if o.kind in "rw" and o.transaction not in dead:
            earlier = seen.setdefault(o.part, [])
            edges |= {(e.transaction, o.transaction) for e in earlier if e.kind != o.kind}
            earlier.append(o)
    return edges


def graph_window_serializable(history: History) -> bool:
    """Theorem 7.1: of the movements, those before a query are older than those after it."""
    graph = serialization_graph(history)
    for query, _, _ in history.committed():
        before = [int(a) for a, b in graph if b == query]
        after = [int(b) for a, b in graph if a == query]
        if before and after and max(before) >= min(after):
            return False
    return True


def graph_latest_window_serializable(history: History) -> bool:
    """Theorem 7.2: every movement that ran during a query comes before it."""
    graph = serialization_graph(history)
    for query, _, _ in history.committed():
        mine = [i for i, o in enumerate(history.operations) if o.transaction == query]
        during = {o.transaction for o in history.operations[mine[0] : mine[-1]] if o.kind == "w"}
        if any(a == query and b in during for a, b in graph):
            return False
    return True


def commit_order_preserving(history: History) -> bool:
    """Conflicting operations have the order of their transactions' commits (7.6)."""
    commits = {o.transaction: i for i, o in enumerate(history.operations) if o.kind == "c"}
    edges = serialization_graph(history)
    return all(commits[a] < commits[b] for a, b in edges if a in commits and b in commits)
