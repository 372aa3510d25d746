"""Files that are whole or refused: two lines of JSON, a header and the content.

The header has the magic word, the format, and the length and digest of the content. The digest covers every byte of the
content, and the length says where it ends, so a file cut or changed anywhere is never misread.

The format is that of the home: one number for all of its files. Whatever a home's files contain is part of it, so a new
field, column or place is a new number: `tests/store/test_format.py` says what there is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from windrow.errors import StateError

FORMAT = 4
KNOWN = (2, 3, FORMAT)
"""What is written, and what is read."""

DAMAGED = (
    LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError, AssertionError, StopIteration,
    pa.ArrowException,
)  # fmt: skip
"""What reading raises where a whole file does not hold what windrow writes into it."""


STATE = "windrow-state"
"""What is damaged where no one file is."""


class OtherVersionError(StateError):
    """A file is whole, and another version of windrow wrote it: nothing is to be repaired."""


@contextmanager
def as_written(magic: str, name: str) -> Iterator[None]:
    """What is read in here was written by windrow, or `name` is refused: a whole file may still hold anything."""
    try:
        yield
    except DAMAGED as error:
        raise unlike(magic, name, error) from error


def unlike(magic: str, name: str, error: BaseException) -> StateError:
    """The refusal of a file that does not hold what windrow writes, which reading it has raised."""
    return corrupt(magic, name, f"it is not what windrow writes: {type(error).__name__}: {error}")


def seal(magic: str, version: int, content: Mapping[str, Any]) -> bytes:
    """The bytes of a file with this content."""
    body = json.dumps(content, separators=(",", ":")).encode()
    header = {"magic": magic, "format": version, "bytes": len(body), "digest": _digest(body)}
    return json.dumps(header).encode() + b"\n" + body + b"\n"


def unseal(data: bytes, magic: str, name: str) -> tuple[dict[str, Any], int]:
    """The content of the file `name` and its format; anything but a whole file of a known format is refused."""
    head, newline, rest = data.partition(b"\n")
    header = _header(head, magic) if newline else None
    if header is None:
        raise corrupt(magic, name, f"its header is cut, or does not say {magic}")
    version = header.get("format")
    if type(version) is not int:
        raise corrupt(magic, name, "its header does not say its format")
    if version not in KNOWN:
        raise other_format(name, version)
    body = rest[:-1]
    if len(rest) != header.get("bytes", -1) + 1 or rest[-1:] != b"\n":
        raise corrupt(magic, name, f"{max(len(rest) - 1, 0)} bytes of content, {header.get('bytes')} expected")
    if _digest(body) != header.get("digest"):
        raise corrupt(magic, name, "the digest of its content differs")
    content: dict[str, Any] = json.loads(body)
    return content, version


def other_format(name: str, found: object) -> OtherVersionError:
    """The refusal of a file written in another format."""
    which = "a newer" if isinstance(found, int) and found > FORMAT else "another"
    return _other_version(name, which, f"its format is {found}, this version reads formats up to {FORMAT}")


def unknown_fields(name: str, found: Iterable[str]) -> OtherVersionError:
    """The refusal of a whole file that says what this version does not know."""
    return _other_version(name, "a newer", f"it says {', '.join(sorted(found))}, which this version does not know")


def _other_version(name: str, which: str, detail: str) -> OtherVersionError:
    hint = "run the version of windrow that wrote it, or start with a new home; nothing has been changed"
    return OtherVersionError(f"{name} was written by {which} version of windrow", detail=detail, hint=hint)


def corrupt(magic: str, name: str, what: str) -> StateError:
    """The refusal of a file that is not as it was written."""
    return StateError(
        f"corrupt {magic.removeprefix('windrow-')} {name}",
        detail=what,
        hint="restore home from a backup, or look what can be saved: windrow state HOME --repair",
    )


def _header(line: bytes, magic: str) -> dict[str, Any] | None:
    try:
        header = json.loads(line)
    except ValueError:
        return None
    return header if isinstance(header, dict) and header.get("magic") == magic else None


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()
