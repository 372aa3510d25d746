"""The shell: over an engine of its own, over a server, by script and by hand."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from windrow.cli import main
from windrow.cli.sessions import EngineSession
from windrow.cli.sql import Shell, caret, is_whole, statements
from windrow.cli.watch import WatchedAnswer, watch
from windrow.engine import Engine
from windrow.errors import CQLSyntaxError, Span

SCRIPT = """
CREATE STREAM bid (ts BIGINT, auction VARCHAR, price BIGINT) TIMESTAMP BY ts RETAIN 100;
CREATE QUERY top AS SELECT auction, MAX(price) AS price FROM bid [RANGE 5] GROUP BY auction;
"""


@pytest.fixture
def bids(tmp_path: Path) -> Path:
    """A few bids in a file."""
    path = tmp_path / "bids.csv"
    path.write_text("ts,auction,price\n1,a,10\n2,b,20\n4,a,30\n9,a,5\n")
    return path


def test_a_script(bids: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Declarations, rows, a question and the shell's own commands, in one go."""
    script = (
        f"{SCRIPT}\n\\push bid {bids}\nSELECT COUNT(*) AS n FROM bid [RANGE 100];\n\\d\n\\d top\n\\timing\n\\status\n"
    )
    assert main(["sql", "--format", "csv", "-c", script]) == 0
    out = capsys.readouterr().out
    assert "4 rows\nn\n3\n" in out  # the row at 9 waits for time to pass it
    assert "streams: bid" in out and "queries: top" in out
    assert "query top (auction, price)" in out and "query top: strict" in out
    assert "timing is on" in out and "running, tick" in out


def test_a_stream_and_its_query_begin_together(bids: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that is included is one script: its queries answer over the first files of its streams."""
    script = SCRIPT.replace("RETAIN 100;", f"FROM csv (path => '{bids}');").replace("[RANGE 5]", "[RANGE 5 SLIDE 1]")
    (tmp_path / "top.cql").write_text(script)
    with Engine(runtime="local") as engine:
        assert Shell(EngineSession(engine)).run(f"\\i {tmp_path / 'top.cql'}") == 0
        engine.drain()
        assert engine["top"].results()["_ts"].to_pylist()[0] == 1
    assert capsys.readouterr().out == "done\n"


def test_errors_stand_under_their_column(capsys: pytest.CaptureFixture[str]) -> None:
    """An error shows its line with a mark under the column, and ends a script with code 1."""
    assert main(["sql", "-c", f"{SCRIPT}\nSELECT auction,\n  prise FROM bid [RANGE 5]; SELECT 1"]) == 1
    err = capsys.readouterr().err
    assert "  prise FROM bid [RANGE 5];\n  ^\n" in err and 'unknown column "prise"' in err and "hint:" in err
    assert main(["sql", "-c", "\\nothing"]) == 1
    assert "there is no command" in capsys.readouterr().err
    assert caret("x", CQLSyntaxError("no", span=Span(9, 1))) == ""


def test_standard_input(bids: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe is a script; answers may be JSON."""
    monkeypatch.setattr(
        sys, "stdin", io.StringIO(f"{SCRIPT}\\push bid {bids}\nSELECT COUNT(*) AS n FROM bid [RANGE 9]")
    )
    assert main(["sql", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"n": 3}


def test_what_is_whole() -> None:
    """A `;` in a string, a quoted name or a comment ends nothing."""
    assert statements("a ';' \";\" -- ;\n /* ; */ ; b") == ["a ';' \";\" -- ;\n /* ; */ ;", " b"]
    assert [is_whole(t) for t in ("", "a;", "a; -- b", "a '", "a '; ", "\\watch q")] == [
        True, True, True, False, False, True,
    ]  # fmt: skip


def test_over_a_server(bids: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same shell talks to a server, by the link that it printed, and shows the server's errors."""
    from windrow.server.access import Right, Tokens
    from windrow.server.process import Address, Server

    with Engine(runtime="local") as engine:
        engine.start()
        with Server(engine, Tokens({"0123456789abcdef": Right.ADMIN}), Address(port=0)) as server:
            link = f"{server.url}/?token=0123456789abcdef"
            script = f"{SCRIPT}\\push bid {bids}\nSELECT MAX(price) AS p FROM bid [RANGE 100];\\d\nEXPLAIN top;\\status"
            assert main(["sql", "--server", link, "--format", "csv", "-c", script]) == 0
            out = capsys.readouterr().out
            assert "4 rows\np\n30\n" in out and "queries: top" in out and "query top: strict" in out
            shown = "SHOW QUERIES; SHOW SINKS; DESCRIBE bid"
            assert main(["sql", "--server", link, "--format", "json", "-c", shown]) == 0
            rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert rows[0]["name"] == "top"
            assert {"property": "time", "name": "ts", "value": "BIGINT"} in rows
            assert main(["sql", "--server", link, "-c", "SELECT *\nFROM nobody [NOW]"]) == 1
            assert "FROM nobody [NOW]\n     ^" in capsys.readouterr().err
            assert main(["sql", "--server", server.url, "-c", "SELECT 1"]) == 1
            assert "a token is needed" in capsys.readouterr().err
    assert main(["sql", "--server", server.url, "-c", "SELECT 1"]) == 1
    assert "does not answer" in capsys.readouterr().err


def test_watch() -> None:
    """A query's answer is drawn as it changes, with the recent past of its last number."""
    from rich.console import Console

    session = EngineSession(Engine(runtime="local"))
    session.execute(SCRIPT)
    session.engine.push("bid", {"ts": [1, 2], "auction": ["a", "b"], "price": [10, 20]})
    drawn = io.StringIO()
    beats = iter([1, 2])

    def changed(query: str):  # type: ignore[no-untyped-def]
        for n in beats:
            session.engine.push("bid", {"ts": [2 + n], "auction": ["a"], "price": [100 * n]})
            yield None

    session.changed = changed  # type: ignore[method-assign]
    watch(session, "top", 10, Console(file=drawn, width=80, force_terminal=False))
    assert "top: 2 rows" in drawn.getvalue() and "price lately" in drawn.getvalue()
    session.close()


def test_watch_ends_with_its_query() -> None:
    """A query that is dropped while it is watched ends the watching, in a word instead of an error."""
    from rich.console import Console

    session = EngineSession(Engine(runtime="local"))
    session.execute(SCRIPT)
    drawn = io.StringIO()

    def changed(query: str):  # type: ignore[no-untyped-def]
        session.execute(f"DROP QUERY {query}")
        yield None

    session.changed = changed  # type: ignore[method-assign]
    watch(session, "top", 10, Console(file=drawn, width=80, force_terminal=False))
    assert drawn.getvalue().endswith("top was dropped\n")
    session.close()


def test_sparklines_follow_keys() -> None:
    """Each key has a past of its own."""
    import pyarrow as pa
    from rich.console import Console

    watched, out = WatchedAnswer("q", 5), io.StringIO()
    for n in (1, 2, 3):
        table = watched.draw(pa.table({"k": ["x", "y"], "n": [n, 9 - n]}))
    Console(file=out, width=80).print(table)
    assert "▁▄█" in out.getvalue() and "█▄▁" in out.getvalue()


def test_completion() -> None:
    """Words, names, columns and commands are completed."""
    pytest.importorskip("prompt_toolkit")
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from windrow.cli.prompt import CqlCompleter

    with Engine(runtime="local") as engine:
        session = EngineSession(engine)
        session.execute(SCRIPT)
        completer = CqlCompleter(session.names, ["\\watch", "\\d"])

        def completed(text: str) -> set[str]:
            return {c.text for c in completer.get_completions(Document(text), CompleteEvent())}

        assert completed("SELECT * FROM bi") >= {"bid", "BIGINT"}
        assert completed("SELECT pri") == {"price"}
        assert completed("\\w") == {"\\watch"}
        assert completed("to") == {"top"}


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there and what is not, with what to do; optional things do not make it fail."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(["doctor", "--json"]) == 0
    found = {f["what"]: f for f in json.loads(capsys.readouterr().out)}
    assert found["duckdb"]["state"] == "well" and found["Python"]["detail"].startswith("3.")
    assert found["Java, for runtime spark"]["state"] == "missing" and found["Java, for runtime spark"]["todo"]
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "fastapi" in out and "extra kafka" in out


def test_archives_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """The shell lists archives, and the columns of one."""
    archive = "CREATE ARCHIVE kept AS SELECT auction FROM bid [RANGE 10] KEY auction EVERY 5"
    assert main(["sql", "-c", f"{SCRIPT}\n{archive};\n\\d\n\\d kept"]) == 0
    out = capsys.readouterr().out
    assert "archives: kept" in out and "archive kept (auction)" in out


def test_words_of_other_shells(capsys: pytest.CaptureFixture[str]) -> None:
    """help, quit and exit need no backslash and no semicolon, and may have them; a misspelled beginning is named."""
    for word in ("help", "\\help"):
        assert main(["sql", "-c", word]) == 0
        assert "this list" in capsys.readouterr().out
    for word in ("quit", "EXIT;", "\\quit"):
        with pytest.raises(SystemExit):
            main(["sql", "-c", word])
    assert main(["sql", "-c", "SELCT 1"]) == 1
    assert "hint: did you mean SELECT?" in capsys.readouterr().err
