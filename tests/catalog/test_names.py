"""The mapping that a catalog is made of, against a dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windrow.catalog.names import Names

KEYS = st.sampled_from("abcdefghijkl")
STEPS = st.lists(st.one_of(st.tuples(KEYS, st.integers()), KEYS, st.dictionaries(KEYS, st.integers())), max_size=60)


@given(STEPS, st.integers(0, 60))
def test_it_is_a_dict_that_keeps_its_past(steps, mark):
    """After any steps it has what a dict has, in the same order; what was there before is still what it was."""
    found: Names[list[int]] = Names()
    model: dict[str, list[int]] = {}
    past, then = found, dict(model)
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            model.pop(step[0], None)
            model[step[0]] = [step[1]]
            found = found.put(step[0], model[step[0]])
        elif isinstance(step, str):
            model.pop(step, None)
            found = found.without(step)
        else:
            for key, value in step.items():
                model.pop(key, None)
                model[key] = [value]
            found = found.update({key: model[key] for key in step})
        if number == mark:
            past, then = found, dict(model)
        assert list(found.items()) == list(model.items())
        assert len(found) == len(model)
    assert list(past.items()) == list(then.items())
    come, gone = found.since(past)
    assert come == {k: v for k, v in model.items() if then.get(k) is not v}
    assert gone == {k: v for k, v in then.items() if model.get(k) is not v}


def test_adding_shares_what_is_there():
    """A thousand entries that come one by one lie in few layers, most of which are shared with the step before."""
    found: Names[int] = Names()
    for n in range(1000):
        found = found.put(str(n), n)
    assert len(found._layers) <= 10
    come, gone = found.put("x", 1).since(found)
    assert (come, gone) == ({"x": 1}, {})


def test_adding_looks_at_few_that_are_there():
    """Adding to a thousand entries asks for the hashes of few of them, and so does taking one out that is not there."""

    class Counted(str):
        asked = 0
        __slots__ = ()

        def __hash__(self) -> int:
            Counted.asked += 1
            return super().__hash__()

    found: Names[int] = Names()
    for n in range(1000):
        found = found.put(Counted(n), n)
    Counted.asked = 0
    found.put(Counted("x"), 1).without(Counted("y"))
    assert Counted.asked < 60
