"""`windrow bench chaos` in small: each part runs, and its result has the promised shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windrow_bench import chaos


@pytest.mark.parametrize(
    ("part", "arguments", "row"),
    [
        ("simulation", ["--schedules", "4"], {"what": "schedules of faults", "number": 4}),
        ("kills", ["--kills", "2"], {"what": "drivers killed, nothing lost, nothing twice", "number": 2}),
        ("fuzz", ["--texts", "20"], {"what": "slowest text, seconds of a processor"}),
    ],
)
def test_a_part(part: str, arguments: list[str], row: dict[str, object], tmp_path: Path) -> None:
    """It meets its targets, and says what it did."""
    assert chaos.main(["--quick", "--part", part, *arguments, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "chaos.json").read_text(encoding="utf-8"))
    assert any(row.items() <= r.items() for r in found["rows"])


def test_a_soak_needs_its_length(capsys: pytest.CaptureFixture[str]) -> None:
    """And is no part of a run that does not ask for it."""
    with pytest.raises(SystemExit):
        chaos.main(["--part", "soak"])
    assert "--soak MINUTES" in capsys.readouterr().err
