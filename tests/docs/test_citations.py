"""Every file, folder and module that the documentation, a docstring or a comment names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {p.parent.name for p in (ROOT / "src/windrow").glob("*/__init__.py")}
TEXTS = [
    *(ROOT / n for n in ("README.md", "CONTRIBUTING.md")),
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if "results" not in p.parts),
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "bench").rglob("*.py")),
]
BASES = [ROOT, *(ROOT / d for d in ("src", "src/windrow", "bench/windrow_bench", "tests", "docs"))]
FILES = {p.name for d in ("src", "bench", "tests", "docs", "scripts") for p in (ROOT / d).rglob("*.*")}

PATH = re.compile(
    r"(?<![\w/.])(?P<path>(?:[a-z_][\w-]*/)+[\w-]+\.py)\b|(?<![\w/.])(?P<file>[\w-]+\.py)\b|`(?P<folder>(?:[a-z_]+/)+)`"
)
NAME = re.compile(r"(?<![\w./\"-])windrow\.(?P<name>\w+(?:\.\w+)*)")


def _has(module: Path, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", module.read_text(encoding="utf-8")) is not None


def named(name: str) -> bool:
    """Whether `windrow.<name>` is a module or something that one speaks of; names of no package are not looked at."""
    place, parts = ROOT / "src/windrow", name.split(".")
    if parts[0] not in PACKAGES:
        return True
    for at, part in enumerate(parts):
        if (place / part).is_dir():
            place = place / part
        elif (place / f"{part}.py").exists():
            return all(_has(place / f"{part}.py", p) for p in parts[at + 1 : at + 2])
        else:
            return _has(place / "__init__.py", part)
    return True


def missing(text: Path) -> list[str]:
    """What a text names and nobody has."""
    found = []
    for number, line in enumerate(text.read_text(encoding="utf-8").splitlines(), 1):
        for m in PATH.finditer(line):
            cited = m["path"] or m["file"] or m["folder"]
            ours = not m["folder"] or text.suffix == ".py" or "design" in str(text) or text.name == "CONTRIBUTING.md"
            known = not ours or cited in FILES or any((base / cited).exists() for base in (*BASES, text.parent))
            if not known and not cited.startswith(("opt/", "late/", "checkpoints/")):  # an example's, and a home's
                found.append(f"{number}: {cited}")
        found += [f"{number}: windrow.{m['name']}" for m in NAME.finditer(line) if not named(m["name"])]
    return found


def test_what_is_cited_is_there() -> None:
    """A renamed or removed module takes its mentions with it."""
    assert {str(t.relative_to(ROOT)): found for t in TEXTS if (found := missing(t))} == {}


def test_the_changelog_has_each_heading_once() -> None:
    """One list of what was added, changed and fixed for each version."""
    for version in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        headings = re.findall(r"^### (.*)$", version, re.MULTILINE)
        assert sorted(headings) == sorted(set(headings))
