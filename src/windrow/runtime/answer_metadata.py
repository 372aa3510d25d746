"""What every answer says of itself, in the metadata of its schema. All doors have it from here.

    windrow.as_of       the frontier for which it is exact, a decimal integer in units of the clock: a relation is that
                        of this instant; changes are all that were answered up to it
    windrow.isolation   at which level a window was read: snapshot or latest
    windrow.from        what a one-time query was read from
    windrow.quality     what was shed, as JSON

Changes get it when their tick is committed, so it is with them wherever they go: in files of the home, and over
restarts.
"""

from __future__ import annotations

import pyarrow as pa

AS_OF, ISOLATION, FROM, QUALITY = "windrow.as_of", "windrow.isolation", "windrow.from", "windrow.quality"


def with_answer_metadata(table: pa.Table, as_of: int, more: dict[str, str] | None = None) -> pa.Table:
    """A table that says for which frontier it is exact, and what else is given.

    >>> with_answer_metadata(pa.table({"a": [1]}), 42, {ISOLATION: "latest"}).schema.metadata
    {b'windrow.as_of': b'42', b'windrow.isolation': b'latest'}
    """
    said = {name.encode(): text.encode() for name, text in {AS_OF: str(as_of), **(more or {})}.items()}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **said})


def answer_metadata(schema: pa.Schema) -> dict[str, str]:
    """What an answer says of itself, by the names without `windrow.`.

    >>> answer_metadata(with_answer_metadata(pa.table({"a": [1]}), 42).schema)
    {'as_of': '42'}
    """
    known = schema.metadata or {}  # which may hold other things of windrow's, that are no text
    names = [name for name in (AS_OF, ISOLATION, FROM, QUALITY) if name.encode() in known]
    return {name.removeprefix("windrow."): known[name.encode()].decode() for name in names}
