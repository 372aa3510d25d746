"""Texts that nobody would write: every one is answered or refused by a WindrowError, soon, and the process lives.

Texts (`fuzz_texts`) run over a few rows in processes of their own, so that a crash is counted and not shared, and one
that does not come back ends its process. One that fails is made shorter, token by token, while it fails the same way.

Cost: some 10 ms a text.
"""

from __future__ import annotations

import faulthandler
import functools
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import pyarrow as pa

import windrow
from windrow.errors import WindrowError
from windrow_bench.fuzz_texts import CORPUS, DECLARED, text_of, tokens

SECONDS, PATIENCE = 10.0, 300.0
"""What a text may take of a processor's time, and of the clock on the wall of a machine that may be busy."""

CHUNK, LIFE = 250, 40
"""Texts that go to a process at a time, and how often, before others take over."""

STREAMS = {
    "s": pa.table(
        {
            "a": [1, 2, None, 2],
            "x": [0.5, float("nan"), -1.0, None],
            "n": ["one", "", None, "zwölf"],
            "l": [[1, 2], [], None, [None]],
            "p": [{"f": 1, "g": "u"}, {"f": None, "g": "v"}, None, {"f": 3, "g": None}],
            "ts": [1, 2, 2, 5],
        }
    ),
    "u": pa.table(
        {
            "a": [1, 2, 2],
            "d": pa.array(["1.50", None, "-2.25"]).cast(pa.decimal128(9, 2)),
            "b": [True, None, False],
            "ts": [1, 3, 4],
        }
    ),
}
TABLES = {
    "r": pa.table({"a": [1, 2], "name": ["one", "two"]}),
    "c": pa.table({"a": [1, 2, 1], "name": ["one", "two", None], "op": ["c", "c", "u"]}),
    "w": pa.table({"a": [1, 3], "lim": [0.25, None]}),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a text: "answered", "refused", or what went wrong."""

    kind: str
    seconds: float

    @property
    def good(self) -> bool:
        return self.kind in ("answered", "refused") and self.seconds < SECONDS


def tried(text: str) -> Outcome:
    """Run a text over a few rows."""
    begin = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            windrow.run(f"{DECLARED} {text}", streams=STREAMS, tables=TABLES, runtime="local", until=20)
        kind = "answered"
    except WindrowError as error:
        kind = "refused" if str(error).strip() and "fault in windrow" not in str(error) else f"empty: {error!r}"
    except Exception as error:
        kind = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
    return Outcome(kind, time.process_time() - begin)


def shrunk(text: str, fails: Callable[[str], bool]) -> str:
    """A shorter text that fails, too: pieces are left out, large ones first."""
    left = tokens(text)
    size = max(1, len(left) // 2)
    while size:
        at = 0
        while at < len(left):
            without = left[:at] + left[at + size :]
            if fails("".join(without)):
                left = without
            else:
                at += size
        size //= 2
    return "".join(left)


def least(text: str) -> str:
    """The shortest text found that fails as this one does."""
    kind = tried(text).kind.partition(":")[0]
    return text if kind in ("answered", "refused") else shrunk(text, lambda t: tried(t).kind.partition(":")[0] == kind)


@functools.cache
def _warm() -> None:
    """Compile what the texts of the corpus need: that is no text's time."""
    for text in CORPUS:
        tried(text)


def outcomes(seed: int, numbers: Sequence[int]) -> list[tuple[int, Outcome]]:
    """What becomes of the texts of some numbers; one that does not come back ends the process."""
    _warm()
    found = []
    for number in numbers:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        found.append((number, tried(text_of(seed, number))))
    faulthandler.cancel_dump_traceback_later()
    return found


def measured(seed: int, first: int, texts: int, processes: int = 1) -> Iterator[tuple[int, Outcome]]:
    """What becomes of so many texts, in processes of their own; whoever ends its process is found alone."""
    end = first + texts
    chunks = [range(i, min(i + CHUNK, end)) for i in range(first, end, CHUNK)]
    context = multiprocessing.get_context("spawn")
    while chunks:
        now, chunks = chunks[:LIFE], chunks[LIFE:]
        with ProcessPoolExecutor(processes, mp_context=context) as pool:
            futures = [(chunk, pool.submit(outcomes, seed, chunk)) for chunk in now]
            for chunk, future in futures:
                try:
                    yield from future.result()
                except BrokenProcessPool:
                    if len(chunk) == 1:
                        yield chunk[0], Outcome(f"its process ended, or it took over {PATIENCE:g} s", 0.0)
                    else:
                        middle = chunk[len(chunk) // 2]
                        chunks += [range(chunk[0], middle), range(middle, chunk[-1] + 1)]
