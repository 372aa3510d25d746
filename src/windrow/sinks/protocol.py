"""What a sink is, and from options to a sink."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from windrow.errors import SourceError


class Sink(Protocol):
    """Takes answers, tick by tick, in order for each query."""

    def write(self, query: str, tick: int, table: pa.Table) -> None:
        """Take the answer of a query at a tick; taking the same one again changes nothing."""

    def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class RelationSink(Sink, Protocol):
    """A sink that holds a relation, not its changes."""

    def check(self, query: str, columns: Sequence[str]) -> None:
        """Refuse a relation that cannot be held, when the sink is attached."""

    def fill(self, query: str, tick: int, relation: pa.Table) -> None:
        """Hold the relation as it is after a tick; later ticks change it."""


@runtime_checkable
class PartSink(Sink, Protocol):
    """A sink to which tasks can write the parts of a long answer, at the same time and elsewhere."""

    def write_part(self, query: str, tick: int, number: int, part: pa.Table) -> object:
        """Write a part where nobody sees it yet; runs in a task. Writing it again changes nothing.

        A part is sorted by time, and its times come before those of the next.
        """

    def publish(self, query: str, tick: int, parts: Sequence[object]) -> None:
        """Let all parts be seen; `parts`: what `write_part` returned, in the order of their numbers."""


AS_OF = "windrow.as_of"
"""Under which a table's metadata, and whatever a sink can write beside rows, has the frontier of their tick."""


def as_of(schema: pa.Schema) -> str | None:
    """The frontier for which an answer is exact, if it says so.

    >>> as_of(pa.schema([], {AS_OF: "42"}))
    '42'
    """
    found: bytes | None = (schema.metadata or {}).get(AS_OF.encode())
    return None if found is None else found.decode()


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": ("path",),
    "json": ("path",),
    "memory": ("rows",),
    "terminal": ("rows",),
    "postgres": ("dsn", "table", "mode"),
    "postgresql": ("dsn", "table", "mode"),
    "delta": ("path", "mode", "key"),
    "iceberg": ("table", "catalog", "uri", "warehouse", "mode", "key"),
    "kafka": ("servers", "topic", "key", "transactions", "retry"),
}
"""What can be said of each kind of sink; `outbox` of all."""

PASSING = ("kafka", "iceberg")
"""Kinds whose library takes settings of its own: `kafka.acks`, `iceberg.s3.endpoint`."""

_BYTES = {"": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


def outbox_bytes(text: object) -> int | None:
    """How many bytes of answers may wait for a sink.

    >>> outbox_bytes("64 MB"), outbox_bytes(1000), outbox_bytes(None)
    (67108864, 1000, None)
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)\s*(|kb|mb|gb)", str(text).strip().lower())
    if found is None:
        raise SourceError(f'outbox is "{text}"', hint="it is a number of bytes, such as '64 MB'")
    return int(found[1]) * _BYTES[found[2]]


def parse_sink(options: Mapping[str, str], *, owner: str = "") -> Sink:
    """The sink that options describe. `owner`: the identity of the home whose ticks these are.

    parquet | json (path), memory ([rows]), terminal ([rows]),
    postgres (dsn, [table], [mode: append | upsert]), delta (path, [mode: append | upsert], [key]),
    iceberg (table, [catalog], [uri], [warehouse], [mode: append | upsert], [key], [iceberg.*]),
    kafka (servers, topic, [key], [transactions], [retry], [kafka.*])
    """
    given = {k.lower(): str(v) for k, v in options.items()}
    kind = given.get("sink", given.get("source", "")).lower()
    known = {"sink", "source", *OPTIONS.get(kind, given)}
    unknown = {k for k in given.keys() - known if not k.startswith(f"{kind}.") or kind not in PASSING}
    if unknown:
        raise SourceError(
            f'the {kind} sink has no option "{min(unknown)}"', hint=f"its options are {', '.join(OPTIONS[kind])}"
        )
    if kind in {"parquet", "json"}:
        from windrow.sinks.directory import DirectorySink

        return DirectorySink(_need(given, "path", kind), kind)
    if kind == "memory":
        from windrow.sinks.memory import MemorySink

        return MemorySink(_count(given, "rows", None))
    if kind == "terminal":
        from windrow.sinks.terminal import TerminalSink

        return TerminalSink(_count(given, "rows", 20) or 20)
    if kind in {"postgres", "postgresql"}:
        from windrow.sinks.postgres import PostgresSink
        from windrow.sinks.postgres_relation import PostgresRelationSink

        modes = {"append": PostgresSink, "upsert": PostgresRelationSink}
        mode = given.get("mode", "append").lower()
        if mode not in modes:
            raise SourceError(f'the postgres sink has no mode "{mode}"', hint="its modes are append and upsert")
        return modes[mode](_need(given, "dsn", kind), given.get("table"), owner=owner)
    if kind in ("delta", "iceberg"):
        return _lake_sink(kind, given, owner)
    if kind == "kafka":
        from windrow.sinks.kafka import KafkaSink

        settings = {k.removeprefix("kafka."): v for k, v in given.items() if k.startswith("kafka.")}
        if "bootstrap.servers" not in settings:
            settings["bootstrap.servers"] = _need(given, "servers", kind)
        return KafkaSink(
            settings, _need(given, "topic", kind), key=_names(given.get("key", "")), owner=owner,
            transactions=given.get("transactions", "true").lower() not in ("false", "no", "off", "0"),
            patience=float(_count(given, "retry", 60) or 0),
        )  # fmt: skip
    raise SourceError(
        f'there is no sink "{kind}"' if kind else "the options name no sink",
        hint=f"sinks are {', '.join(k for k in OPTIONS if k != 'postgresql')}; a function subscribes to a query",
    )


def _lake_sink(kind: str, given: Mapping[str, str], owner: str) -> Sink:
    from windrow.sinks.lake import MODES

    name, mode = _need(given, "path" if kind == "delta" else "table", kind), given.get("mode", "append").lower()
    if mode not in MODES:
        raise SourceError(f'the {kind} sink has no mode "{mode}"', hint="its modes are append and upsert")
    key = _names(_need(given, "key", kind)) if mode == "upsert" else []
    if kind == "delta":
        from windrow.sinks.delta import DeltaRelationSink, DeltaSink

        return DeltaRelationSink(name, key, owner=owner) if key else DeltaSink(name, owner=owner)
    from windrow.sinks.iceberg import IcebergRelationSink, IcebergSink

    catalog = {k: v for k, v in given.items() if k in ("catalog", "uri", "warehouse") or k.startswith("iceberg.")}
    if key:
        return IcebergRelationSink(name, key, catalog, owner=owner)
    return IcebergSink(name, catalog, owner=owner)


def _need(options: Mapping[str, str], name: str, kind: str) -> str:
    if not options.get(name):
        raise SourceError(f"the {kind} sink needs the option {name}", hint=f"TO {kind} ({name} => '...')")
    return options[name]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _count(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.isdecimal():
        raise SourceError(f'{name} is "{text}"', hint=f"{name} is a whole number")
    return int(text)
