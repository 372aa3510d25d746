"""Texts from a grammar and by mutation are answered or refused by a WindrowError; `windrow bench chaos` runs more."""

from __future__ import annotations

import pytest

from windrow_bench.fuzz import shrunk, tried
from windrow_bench.fuzz_texts import CORPUS, REFUSED, text_of

TEXTS = 400


@pytest.mark.parametrize("text", CORPUS, ids=range(len(CORPUS)))
def test_what_is_mutated_means_something(text):
    """A corpus of texts that are refused at once would try nothing."""
    assert tried(text).kind == "answered"


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_a_replay_refuses(text):
    """For what it means."""
    assert tried(text).kind in ("refused", "answered")


def test_texts_that_nobody_would_write():
    """No exception but a WindrowError, whatever the text."""
    found = {text: tried(text).kind for text in (text_of(20, n) for n in range(TEXTS))}
    assert {t: k for t, k in found.items() if k not in ("answered", "refused")} == {}
    assert sum(k == "answered" for k in found.values()) > TEXTS // 20


def test_failures_are_made_shorter():
    """As short as they fail in the same way."""
    assert shrunk("SELECT a, b + 1 FROM s WHERE x", lambda t: "b" in t and "x" in t) == "bx"
