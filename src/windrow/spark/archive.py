"""Spark's classes as a JVM has laid them out before: loading them is a third of a start.

Java can keep the classes that a process has loaded in a file and map it the next time (class data sharing). The first
local session that windrow starts leaves such an archive in the user's cache when it ends; later ones begin with it.
There is one for each Spark and Java. Java checks itself that an archive fits what it runs, and goes without if not;
this module checks that it is whole: Java writes the head last.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

SWITCH = "WINDROW_CLASS_ARCHIVE"
"""Set to `off`, neither uses an archive nor leaves one."""

_WHOLE = (0xF00BABA8).to_bytes(4, "little"), (0xF00BABA8).to_bytes(4, "big")
"""How a dynamic archive begins, once it is whole."""

_ATTEMPT = 600.0
"""Seconds for which one session alone tries to make an archive."""

_UNUSED = 30 * 86_400.0
"""Seconds after which an archive that nothing has used is deleted."""

_QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
"""What does not fit is not worth a word."""


def archive_options(jars: str, java: str) -> str:
    """The options with which a JVM begins with an archive, or leaves one: Spark's folder of jars, the java command."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no") or _configured(jars):
        return ""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windrow"
    if " " in str(folder):  # options are split at spaces
        return ""
    try:
        name = f"spark-{_fingerprint(jars, os.path.realpath(java))}"
        archive, part = folder / f"{name}.jsa", folder / f"{name}.part"
        if not archive.exists() and _whole(part):
            os.replace(part, archive)
        if archive.exists():
            os.utime(archive)
            return f"{_QUIET} -XX:SharedArchiveFile={archive}"
        folder.mkdir(parents=True, exist_ok=True)
        _forget(folder)
        return f"{_QUIET} -XX:ArchiveClassesAtExit={part}" if _mine(folder / f"{name}.attempt") else ""
    except OSError:  # no cache, no archive
        return ""


def _forget(folder: Path) -> None:
    """Delete archives that nothing has begun with for a month: their Spark is gone, or has changed."""
    for left in folder.glob("spark-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _UNUSED:
                left.unlink()


def _fingerprint(*paths: str) -> str:
    told = "".join(f"{path} {os.stat(path).st_mtime_ns}\n" for path in paths)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _configured(jars: str) -> bool:
    """Whether a folder of settings is on Spark's class path; Java archives nothing then."""
    return bool(os.environ.get("SPARK_CONF_DIR")) or (Path(jars).parent / "conf").is_dir()


def _whole(part: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), part.open("rb") as file:
        return file.read(4) in _WHOLE
    return False


def _mine(attempt: Path) -> bool:
    """Whether this session is the one to leave an archive: another may be at it, or have failed just now."""
    with contextlib.suppress(FileNotFoundError):
        if time.time() - attempt.stat().st_mtime < _ATTEMPT:
            return False
        attempt.unlink()
    try:
        attempt.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
