"""A manifest file is whole or refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import StateError
from windrow.store.manifest import Manifest, decode, encode
from windrow.store.manifest_values import ArchiveMark, HeavyKeysOfJoin, LastEvaluation
from windrow.store.runs import RunRef

REF = RunRef("ab", "runs/s/0/0000000001-x.arrow", 3, 200, 77, 64)
SMALL = Manifest(
    version=4,
    tick=3,
    partitions=2,
    offsets={"bid": {"files": ["a", 2]}},
    declared={"bid": "ab12"},
    marks={"bid": 17},
    frontier=-5,
    clocks={"hot": 1},
    runs={("s", 0, "join", "left"): (REF, RunRef("cd", REF.path, 1, 64, 5))},
    outputs={("hot", 3): (REF,)},
    firsts={"cold": 8},
    choices={"hot": {"3": [[0, 1], [1, 0]]}},
    heavy=(HeavyKeysOfJoin("hot", 3, ((7, 2),)),),
    deadlines={"hot": LastEvaluation(5, None)},
    archives={"old": ArchiveMark(3, ((4, 4, False, True),))},
    budget={"spans": {"hot": [[1, None]]}},
    catalog=1,
    changes=({"add queries": [{"name": "hot", "text": "SELECT"}]},),
)


def test_roundtrip():
    """Decoding what was encoded gives an equal manifest."""
    assert decode(encode(SMALL), "m") == SMALL


def test_torn_at_every_byte():
    """A manifest cut after any byte is refused, and the message names the file."""
    data = encode(SMALL)
    for size in range(len(data)):
        with pytest.raises(StateError, match=r"m\.json"):
            decode(data[:size], "m.json")


def test_every_changed_byte_is_seen():
    """A manifest with any one byte changed is refused."""
    data = encode(SMALL)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        try:
            assert decode(bytes(changed), "m.json") == SMALL  # only a change of white space in the header may pass
        except StateError:
            continue
        assert data[at : at + 1].isspace()


def test_appended_bytes():
    """Bytes after the end are refused."""
    with pytest.raises(StateError, match="corrupt manifest"):
        decode(encode(SMALL) + b"x", "m.json")


def test_other_format():
    """A manifest of another format is refused as such."""
    head, body = encode(SMALL).split(b"\n", 1)
    header = json.loads(head) | {"format": 99}
    with pytest.raises(StateError, match="newer version") as caught:
        decode(json.dumps(header).encode() + b"\n" + body, "m.json")
    assert "format is 99" in caught.value.detail


names = st.text(max_size=8)
refs = st.builds(RunRef, st.text(max_size=4), st.text(max_size=9), *[st.integers(0, 2**40)] * 4)


@given(
    st.builds(
        Manifest,
        version=st.integers(0, 10**9),
        tick=st.integers(0, 10**9),
        offsets=st.dictionaries(names, st.dictionaries(names, st.integers(0, 9))),
        firsts=st.dictionaries(names, st.integers(0, 9)),
        frontier=st.none() | st.integers(-(2**63), 2**63 - 1),
        runs=st.dictionaries(st.tuples(names, st.integers(0, 9), names, names), st.lists(refs, max_size=3).map(tuple)),
        outputs=st.dictionaries(st.tuples(names, st.integers(0, 9)), st.lists(refs, max_size=3).map(tuple)),
    )
)
def test_roundtrip_of_any(manifest):
    """Any manifest survives its file."""
    assert decode(encode(manifest), "m") == manifest
