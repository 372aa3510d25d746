"""Files of a home with other content, whose length and digest are right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windrow.store.sealed import seal


def resealed(path: Path, change: Callable[[Any], Any], *, format: int | None = None) -> None:
    """Change the content of a sealed file, and its format if that is given."""
    head, body = path.read_bytes().split(b"\n", 1)
    header = json.loads(head)
    path.write_bytes(seal(header["magic"], format or header["format"], change(json.loads(body))))
