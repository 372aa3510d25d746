"""The end of the process, and threads that compute.

A thread that is inside DuckDB or Arrow when the interpreter ends makes their bindings report leaks or abort the
process. So ticks and calls of the scalar engine pass a gate: at exit the main thread waits for those inside, and a
thread that comes later waits for ever. Law: after `close` only the main thread goes in, and who is in may go in again.

Cost: two uncontended locks per call.
"""

from __future__ import annotations

import atexit
import os
import threading

SECONDS = 5.0
"""The longest that the end waits for those inside."""


class ExitGate:
    """Lets calls in until it is closed; used as a context."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self.reopen()

    def __enter__(self) -> None:
        self._mine.depth = depth = getattr(self._mine, "depth", 0) + 1
        if depth > 1:
            return
        with self._changed:
            shut = self._closed and threading.current_thread() is not threading.main_thread()
            self._inside += not shut
        if shut:
            threading.Event().wait()

    def __exit__(self, *_: object) -> None:
        self._mine.depth -= 1
        if self._mine.depth == 0:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close_at_exit(self) -> None:
        """Close it before anything that was registered so far ends: called once DuckDB, which ends itself, is there."""
        atexit.unregister(self.close)
        atexit.register(self.close)

    def close(self) -> None:
        """Let nobody in any more, and wait for those who are."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._inside == 0, SECONDS)

    def reopen(self) -> None:
        """Be as new: threads of a process that this one was forked from are not here."""
        self._mine.depth = 0
        self._changed = threading.Condition()
        self._inside, self._closed = 0, False


gate = ExitGate()
gate.close_at_exit()
os.register_at_fork(after_in_child=gate.reopen)
