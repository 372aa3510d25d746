"""The tutorial notebook runs from top to bottom, and its cells show what a reader is promised."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython", reason="IPython is not installed")

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


@pytest.fixture
def shell() -> Iterator[Any]:
    """A shell as a notebook's kernel has it: `kernel` is how one tells a notebook from a terminal."""
    made = InteractiveShell.instance()
    made.kernel = None
    yield made
    made.reset(new_session=False)
    made.restore_sys_module_state()  # a shell makes its own names the module __main__
    InteractiveShell.clear_instance()


def test_the_tutorial(shell: Any) -> None:
    """Every cell runs; answers, queries and the engine are tables, a plan is a drawing, what is live follows."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    shown: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "the notebook is kept without outputs"
            with capture_output(display=True) as caught:
                done = shell.run_cell(text, store_history=False)
            done.raise_error()
            seen = [{**o.data, "update": o.update} for o in caught.outputs] + [{"text/plain": caught.stdout}]
            if done.result is not None:  # what the last line gives is displayed
                seen.insert(0, shell.display_formatter.format(done.result)[0])
            shown[text.splitlines()[-1]] = seen

    def kinds(line: str) -> set[str]:
        return {kind for output in shown[line] for kind in output}

    assert "<table>" in shown["answers"][0]["text/html"]
    assert "<svg" in shown['engine["last"]'][0]["text/html"]
    assert shown['engine["last"].explain()'][0]["image/svg+xml"].startswith("<svg")
    assert "query last" in shown['print(engine["last"].explain())'][0]["text/plain"]
    first, *_, last = [o for o in shown["view.stop()"] if "text/html" in o]
    assert last["update"] and first["text/html"] != last["text/html"]
    assert "text/html" in kinds('engine["last"].to_polars()') and "running" in shown["engine"][0]["text/html"]
    (error,) = [o["text/plain"] for line, outputs in shown.items() if "print(error)" in line for o in outputs]
    assert 'unknown column "prise"' in error and "hint" in error


def test_progress(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook a replay that takes a moment shows a bar, which follows it to its end; elsewhere there is none."""
    import windrow
    from windrow.engine import display

    monkeypatch.setattr(display.ProgressBar.__init__, "__defaults__", (0.0,))
    rows = {"ts": list(range(1000))}
    with capture_output(display=True) as caught:
        windrow.run("SELECT COUNT(*) FROM s [RANGE 5]", streams={"s": rows}, runtime="local", batch_rows=250)
    bars = [o.data["text/html"] for o in caught.outputs]
    assert len(bars) >= 4 and all("<progress" in bar for bar in bars) and "1,000 of 1,000 rows" in bars[-1]
    InteractiveShell.clear_instance()
    assert display.notebook_progress() is None
