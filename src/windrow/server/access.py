"""Who may do what: tokens, the cookies that stand for them, and two rights.

A token is a secret that a program sends as `Authorization: Bearer TOKEN`. A browser logs in with it once and gets a
cookie: a random name of a session, which scripts cannot read and other sites cannot make the browser send. `read` sees
everything and changes nothing; `admin` may change. Only digests are kept, compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

from windrow.errors import SourceError

SESSION_SECONDS = 12 * 3600
SESSIONS = 1000
SHORTEST = 16
"""Characters of the shortest token: below that it could be guessed."""


class Right(IntEnum):
    """What a token allows; `ADMIN` includes `READ`."""

    READ = 1
    ADMIN = 2


class Tokens:
    """The tokens that are accepted."""

    def __init__(self, rights: Mapping[str, Right]) -> None:
        self._rights = {_digest(token): right for token, right in rights.items()}

    def right(self, token: str) -> Right | None:
        """What a token allows; None if nobody gave it out."""
        presented, found = _digest(token), None
        for known, right in self._rights.items():  # all of them: the time tells nothing
            if hmac.compare_digest(known, presented):
                found = right
        return found


def make_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


def read_tokens(path: str | Path) -> Tokens:
    """The tokens of a file: lines `admin TOKEN` and `read TOKEN`; `#` begins a comment."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read the token file {path}", detail=str(error)) from None
    rights: dict[str, Right] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0].upper() not in Right.__members__:
            raise SourceError(f"{path}, line {number}: not a token", hint="write `admin TOKEN` or `read TOKEN`")
        if len(words[1]) < SHORTEST or not words[1].isascii():
            raise SourceError(
                f"{path}, line {number}: the token is shorter than {SHORTEST} ASCII characters",
                hint="python -c 'import secrets; print(secrets.token_urlsafe(32))' makes a good one",
            )
        rights[words[1]] = Right[words[0].upper()]
    if Right.ADMIN not in rights.values():
        raise SourceError(f"{path} has no admin token", hint="add a line `admin TOKEN`")
    return Tokens(rights)


class Sessions:
    """Log-ins of browsers. Bounded: the oldest go first."""

    def __init__(self) -> None:
        self._open: OrderedDict[bytes, tuple[Right, float]] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, right: Right) -> str:
        """A new session; what the cookie holds."""
        name = secrets.token_urlsafe(32)
        with self._lock:
            self._open[_digest(name)] = (right, time.monotonic() + SESSION_SECONDS)
            while len(self._open) > SESSIONS:
                self._open.popitem(last=False)
        return name

    def right(self, name: str) -> Right | None:
        """What a session allows."""
        with self._lock:
            right, until = self._open.get(_digest(name), (None, 0.0))
        return right if time.monotonic() < until else None

    def end(self, name: str) -> None:
        """Log out."""
        with self._lock:
            self._open.pop(_digest(name), None)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()
