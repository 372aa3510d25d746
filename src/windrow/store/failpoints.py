"""Places where a crash is worth a test.

`WINDROW_CRASH_AT="after manifest:3"` kills this process, as a power failure would, when it reaches that point for the
third time.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

POINTS = ("before manifest", "after manifest", "after sinks")
"""In a tick."""

ARCHIVE = "after archive"
"""In a tick: the files of archives are written, and no manifest names them."""

CHANGES = ("after catalog", "before change", "after change")
"""In a change of the catalog; the first only when the whole is written."""

_reached: Counter[str] = Counter()
_ASKED, _, _TIMES = os.environ.get("WINDROW_CRASH_AT", "").partition(":")


def reach(point: str) -> None:
    """Die here, if that was asked for."""
    if point == _ASKED:
        _reached[point] += 1
        if _reached[point] == int(_TIMES or 1):
            os.kill(os.getpid(), signal.SIGKILL)
