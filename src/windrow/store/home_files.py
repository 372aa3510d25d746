"""What a home says of itself: its format, the manifests that are whole, and which was the newest.

Nothing here decides what is in force: `store` does, and `windrow state --repair` where a home is damaged.
"""

from __future__ import annotations

import json
import re
from typing import Any

from windrow.errors import StateError
from windrow.store.lock import NAME as LOCK_NAME
from windrow.store.manifest import Manifest, decode
from windrow.store.place import Place, is_temporary
from windrow.store.sealed import FORMAT, KNOWN, other_format

MAGIC = "windrow-home"
NEWEST = "newest"
REPAIR = "restore home from a backup, or look what can be saved: windrow state {} --repair"
_NUMBERED = re.compile(r"^\w+/(\d{8,})\.json$")


def versions(place: Place, folder: str) -> list[int]:
    """The numbers of the files of a folder, in order."""
    matches = (_NUMBERED.match(name) for name in place.names(folder))
    return sorted(int(m[1]) for m in matches if m)


def read_versions(place: Place, identity: str) -> tuple[dict[int, Manifest], dict[int, StateError]]:
    """The manifests of a home that are whole, and what is wrong with the others, by version."""
    whole: dict[int, Manifest] = {}
    broken: dict[int, StateError] = {}
    for version in versions(place, "manifests"):
        name = f"manifests/{version:08d}.json"
        try:
            found = decode(bytes(place.read(name)), place.path(name), identity)
            if found.version != version:
                raise StateError(
                    f"{place.path(name)} holds manifest {found.version}",
                    detail="a manifest has been renamed or copied over another",
                    hint=REPAIR.format(place.uri),
                )
            whole[version] = found
        except StateError as error:
            broken[version] = error
    return whole, broken


def read_witness(place: Place, identity: str) -> tuple[int, int]:
    """The version and tick of the newest manifest as its writer noted them; -1 where that is not known."""
    try:
        content = json.loads(bytes(place.read(NEWEST))) if place.exists(NEWEST) else {}
        mine = content.get("home") == identity
        return (int(content["version"]), int(content["tick"])) if mine else (-1, -1)
    except (ValueError, KeyError, TypeError, AttributeError):  # it was being written when the power failed
        return -1, -1


def refuse_foreign(place: Place) -> None:
    """Refuse a directory that holds something else."""
    if not place.exists("") or place.exists("format.json"):
        return
    strangers = sorted(n for n in place.names(recursive=True) if n != LOCK_NAME and not is_temporary(n))
    if strangers:
        raise StateError(
            f"{place.uri} is not a windrow home",
            detail=f'it holds other files, such as "{strangers[0]}", and no format.json',
            hint="choose an empty or new directory",
        )


def write_format(place: Place, identity: str, created: float) -> None:
    """Make a place a home of this format."""
    content = {"magic": MAGIC, "format": FORMAT, "identity": identity, "created": created}
    place.write("format.json", json.dumps(content).encode())


def read_format(place: Place) -> tuple[int, str, float]:
    """The format of a home, its identity, and when it was made."""
    if not place.exists("format.json"):
        raise StateError(
            f"there is no windrow home at {place.uri}", hint="check the path; an engine creates its home when it starts"
        )
    content = _json(place, "format.json", MAGIC)
    if content.get("format") not in KNOWN:
        raise other_format(place.uri, content.get("format"))
    try:
        return int(content["format"]), str(content["identity"]), float(content.get("created", 0.0))
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"corrupt {place.path('format.json')}", detail=f"it does not say {error}", hint="restore it from a backup"
        ) from None


def _json(place: Place, name: str, magic: str) -> dict[str, Any]:
    try:
        content = json.loads(bytes(place.read(name)))
    except ValueError as error:
        content = None
        detail = str(error)
    else:
        detail = f'it does not say "{magic}"'
    if not isinstance(content, dict) or content.get("magic") != magic:
        raise StateError(
            f"corrupt file {place.path(name)}",
            detail=detail,
            hint="restore home from a backup, or start with a new home",
        )
    return content
