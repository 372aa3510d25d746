"""Archives over HTTP: what there is, how it lies on disk, probes by key and scans.

A key comes as text, one `key=` for each of its columns from the first, and is read as the type that the column has. A
probe of a large range reads as much as a question does, so it takes the place of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pyarrow as pa
from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from windrow.archive import OPEN
from windrow.catalog import ArchiveDef
from windrow.engine.archive import Archive
from windrow.errors import BindingError
from windrow.server.changing import slot
from windrow.server.reading import JSON_OR_ARROW, Limit, Name, answer, known, live, plain

router = APIRouter()

End = Annotated[list[str] | None, Query(description="the values of the key's columns, from the first", max_length=100)]


@router.get("/api/archives")
def archives(request: Request) -> Response:
    """Archives with their columns, key, last update, and what each sub-index of their layouts holds."""
    return plain(live(request).archives())


@router.get("/api/archives/{name}/rows", responses=JSON_OR_ARROW)
async def archive_rows(request: Request, name: Name, limit: Limit = 100) -> Response:
    """All rows as of the last update."""
    return await _read(request, name, limit, lambda archive, _: archive.scan())


@router.get("/api/archives/{name}/probe", responses=JSON_OR_ARROW)
async def probe(
    request: Request, name: Name, key: End = None, low: End = None, high: End = None, limit: Limit = 1000
) -> Response:
    """The rows with a key, or with keys from `low` to `high`, as of the last update."""

    def found(archive: Archive, definition: ArchiveDef) -> pa.Table:
        one, first, last = (_end(definition, texts) for texts in (key, low, high))
        return archive.probe(one, low=first, high=last)

    return await _read(request, name, limit, found)


async def _read(request: Request, name: str, limit: int, read: Callable[[Archive, ArchiveDef], pa.Table]) -> Response:
    engine = live(request).engine
    known(name, engine.catalog.archives, "archive")

    def work() -> Response:
        return answer(request, read(engine.archive(name), engine.catalog.archives[name.lower()]), limit)

    async with slot(request):
        return await to_thread.run_sync(work)


def _end(definition: ArchiveDef, texts: list[str] | None) -> Any:
    """An end of a range, or a key: a value for each column that is given."""
    if not texts:
        return OPEN
    if len(texts) > len(definition.keys):
        raise BindingError(
            f"the key has {len(definition.keys)} columns, and {len(texts)} values are given",
            hint=f"give values for {', '.join(definition.keys)}, or for the first of them",
        )
    return tuple(_value(k, definition.columns[k], text) for k, text in zip(definition.keys, texts, strict=False))


def _value(key: str, type_: pa.DataType, text: str) -> Any:
    try:
        return pa.scalar(text).cast(type_).as_py()
    except (pa.ArrowException, ValueError) as error:
        raise BindingError(f'{text!r} is no value of the key "{key}"', detail=f"its type is {type_}: {error}") from None
