"""`windrow state HOME`: show what an engine keeps in its home, while it runs or not, and repair one that is damaged."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from windrow.runtime.family_programs import clock_name
from windrow.runtime.plan_members import PlanMembers
from windrow.runtime.quarantine import RowsByTick, malformed
from windrow.runtime.repair import examine, repair
from windrow.runtime.saved_catalog import KINDS, in_force
from windrow.store.manifest import Manifest
from windrow.store.store import Store


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="windrow state", description=__doc__, allow_abbrev=False)
    parser.add_argument("home", metavar="HOME", help="the directory or address given to Engine(home=...)")
    parser.add_argument("--json", action="store_true", help="for a program to read")
    parser.add_argument("--quarantine", metavar="STREAM", help="show what of a stream could not be read")
    parser.add_argument("--repair", action="store_true", help="say what is damaged, and what would be done about it")
    parser.add_argument("--yes", action="store_true", help="with --repair: do it")
    options = parser.parse_args(argv)
    if options.repair:
        return _repair(options.home, options.yes, options.json)
    store = Store.open(options.home, read_only=True)
    if options.quarantine is not None:
        return _show_quarantine(store, options.quarantine, options.json)
    described = describe(store, store.latest())
    if options.json:
        json.dump(described, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        _draw(described)
    return 0


def _repair(home: str, yes: bool, plain: bool) -> int:
    """Say what is wrong and what is done about it; 1 when something is left to do."""
    found = examine(home)
    made = repair(home, found) if yes and found.findings else None
    version = None if made is None else made.version
    if plain:
        findings = [{"what": f.what, "remedy": f.remedy} for f in found.findings]
        print(json.dumps({"findings": findings, "repaired": version}))
    else:
        for finding in found.findings:
            print(f"{finding.what}\n  -> {finding.remedy}")
        if not found.findings:
            print("nothing is damaged")
        elif version is None:
            print(f"nothing has been changed; to do this: windrow state {home} --repair --yes")
        else:
            print(f"repaired: manifest {version}")
    return 1 if found.findings and version is None else 0


def _show_quarantine(store: Store, stream: str, plain: bool) -> int:
    rows = malformed(RowsByTick(store.place.below("quarantine")), stream).to_pylist()
    if plain:
        for row in rows:
            print(json.dumps(row))
        return 0
    from rich.console import Console

    console = Console()
    console.print(f"{len(rows)} of stream {stream} in quarantine", markup=False)
    names = ("tick", "file", "position", "reason", "text")
    _table(console, "quarantine", names, [[row[n] for n in names] for row in rows])
    return 0


def describe(store: Store, manifest: Manifest | None) -> dict[str, Any]:
    """What a home holds, as plain JSON."""
    files = store.place.names("runs", recursive=True)
    described: dict[str, Any] = {
        "home": store.place.uri,
        "identity": store.identity,
        "files": len(files),
        "file_bytes": sum(files.values()),
    }
    if manifest is None:
        return described | {"version": None, "tick": None}
    content = in_force(store, manifest) if manifest.catalog else {}
    declared = {kind: [d["name"] for d in content.get(kind, ())] for kind in KINDS}
    return described | {
        "version": manifest.version,
        "tick": manifest.tick,
        "frontier": manifest.frontier,
        "catalog": manifest.catalog,
        "changes": len(manifest.changes),
        "declared": declared,
        "streams": {
            name: {"offset": manifest.offsets.get(name), "mark": manifest.marks.get(name)}
            for name in sorted({*manifest.offsets, *manifest.marks})
        },
        "queries": _clocks(store, manifest, declared["queries"], _places(content.get("shared", {}))),
        "stages": _stages(manifest),
        "pending": len(manifest.outputs),
        "runs": len({ref.uid for ref in manifest.refs()}),
        "run_bytes": sum({ref.uid: ref.bytes for ref in manifest.refs()}.values()),
    }


def _places(shared: Mapping[str, Any]) -> dict[str, Any]:
    """Where those are who share: by query, many from one template by the name of all."""
    many = {c["queries"]: (c["family"], c["epoch"]) for c in shared.get("columns", {}).values()}
    return many | shared.get("queries", {})


def _clocks(
    store: Store, manifest: Manifest, queries: Iterable[str], places: Mapping[str, Any]
) -> dict[str, Any]:  # fmt: skip
    """Where the clock of each query started; those who share and came together have one."""
    shared = {name.lower(): manifest.clocks.get(clock_name(*place[:2])) for name, place in places.items()}
    one_plan = PlanMembers(store.runs, manifest).left(manifest.plans)
    shared |= {
        key: manifest.clocks.get(left.plan) if left.start is None else left.start for key, left in one_plan.items()
    }
    own = {name: ts for name, ts in manifest.clocks.items() if not name.startswith(("+", "*"))}
    return {
        name: {"clock": ts} for name, ts in sorted({**dict.fromkeys(map(str.lower, queries)), **own, **shared}.items())
    }


def _stages(manifest: Manifest) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for (stage, partition, operator, slot), refs in manifest.runs.items():
        entry = found.setdefault(
            (stage, operator, slot),
            {"stage": stage, "operator": operator, "slot": slot, "partitions": set(), "runs": 0, "rows": 0, "bytes": 0},
        )
        entry["partitions"].add(partition)
        entry["runs"] += len(refs)
        entry["rows"] += sum(r.rows for r in refs)
        entry["bytes"] += sum(r.bytes for r in refs)
    return [entry | {"partitions": len(entry["partitions"])} for _, entry in sorted(found.items())]


def _draw(described: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    console.print(
        f"home {escape(described['home'])}, {_bytes(described['file_bytes'])} in {_counted(described['files'], 'file')}"
    )
    if described["version"] is None:
        console.print("no tick has been committed yet")
        return
    console.print(
        f"manifest {described['version']}, tick {described['tick']}, frontier {_instant(described['frontier'])}, "
        f"{_counted(described['runs'], 'run')}, {_bytes(described['run_bytes'])}, "
        f"catalog {described['catalog']} and {_counted(described['changes'], 'change')}"
    )
    _table(
        console,
        "streams",
        ("stream", "read to", "greatest time"),
        [(n, _read_to(s["offset"]), _instant(s["mark"])) for n, s in described["streams"].items()],
    )
    _table(
        console,
        "queries",
        ("query", "clock started"),
        [(_query_name(n), _instant(q["clock"])) for n, q in described["queries"].items()],
    )
    _table(
        console,
        "state",
        ("stage", "operator", "slot", "partitions", "runs", "rows", "size"),
        [
            (
                s["stage"],
                _query_name(s["operator"]),
                s["slot"],
                s["partitions"],
                s["runs"],
                s["rows"],
                _bytes(s["bytes"]),
            )
            for s in described["stages"]
        ],
    )


def _read_to(offset: Mapping[str, Any] | None) -> str:
    """How far a source was read, in words where its offset is one of files.

    >>> _read_to({"files": 2, "log": [], "tail": ["a.csv", "b.csv"]}), _read_to({"row": 5}), _read_to(None)
    ('2 files, b.csv last', '{"row": 5}', '-')
    """
    if offset is None:
        return "-"
    if "files" not in offset or "part" in offset:
        return json.dumps(offset)
    return ", ".join([_counted(offset["files"], "file"), *(f"{n} last" for n in offset.get("tail", ())[-1:])])


def _query_name(name: str) -> str:
    """A query as people call it; what RETAIN keeps of a stream is kept as by a query of its own."""
    return f"{name[1:]} (RETAIN)" if name.startswith("~") else name


def _counted(number: int, what: str) -> str:
    """A number of things.

    >>> _counted(1, "file"), _counted(2, "file")
    ('1 file', '2 files')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _table(console: Any, title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    if not rows:
        return
    drawn = Table(title=title, title_justify="left")
    for name in header:
        drawn.add_column(name)
    for row in rows:
        drawn.add_row(*("" if v is None else escape(str(v)) for v in row))
    console.print(drawn)


def _instant(value: int | None) -> str:
    """An instant as written by a clock when it can only be microseconds, else the plain number.

    >>> _instant(1_700_000_000_000_000), _instant(42), _instant(None)
    ('2023-11-14 22:13:20+00:00', '42', '-')
    """
    if value is None:
        return "-"
    if not 10**14 < abs(value) < 10**16:
        return str(value)
    return str(datetime.fromtimestamp(value / 1_000_000, UTC))


def _bytes(count: int) -> str:
    """A size for people.

    >>> _bytes(512), _bytes(5_000_000)
    ('512 B', '4.8 MiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
