"""Who may do what: tokens, the cookies that stand for them, and two rights.

A token is a secret that a program sends as `Authorization: Bearer TOKEN`. A browser logs in with it once and gets a
cookie, which scripts cannot read and other sites cannot make the browser send: a right and a time, signed with the
tokens, so that it outlives the server but not its tokens. `read` sees everything and changes nothing; `admin` may
change. Only digests are kept, compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

from windrow.errors import SourceError

SESSION_SECONDS = 12 * 3600
ENDED = 10_000
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

    @property
    def key(self) -> bytes:
        """A secret that is the same as long as the tokens are."""
        return hashlib.sha256(b"sessions" + b"".join(sorted(self._rights))).digest()

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


class LogIns:
    """Log-ins of browsers. Nothing is kept of them but the newest that logged out."""

    def __init__(self, tokens: Tokens) -> None:
        self._key, self._ended = tokens.key, OrderedDict[str, None]()

    def begin(self, right: Right) -> str:
        """What the cookie of a new session holds."""
        said = f"{right.name.lower()}.{int(time.time()) + SESSION_SECONDS}.{secrets.token_urlsafe(12)}"
        return f"{said}.{self._signature(said)}"

    def right(self, cookie: str) -> Right | None:
        """What a session allows; None if it is over, or was never begun here."""
        said, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._signature(said).encode(), signature.encode()) or cookie in self._ended:
            return None
        right, until, _ = said.split(".")
        return Right[right.upper()] if time.time() < int(until) else None

    def end(self, cookie: str) -> None:
        """Log out."""
        self._ended[cookie] = None
        while len(self._ended) > ENDED:
            self._ended.popitem(last=False)

    def _signature(self, said: str) -> str:
        return hmac.new(self._key, said.encode(), "sha256").hexdigest()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()
