"""Sinks: where answers go.

A sink takes the answer of one query at one tick. `write` is idempotent by (query, tick): after a crash the engine
writes again what a sink may not have, and a sink that has it changes nothing. That, and a manifest that names every
answer before any sink sees it, is what makes output exactly once.
"""

from __future__ import annotations

from windrow.sinks.protocol import PartSink, RelationSink, Sink, outbox_bytes, parse_sink

__all__ = ["PartSink", "RelationSink", "Sink", "outbox_bytes", "parse_sink"]
