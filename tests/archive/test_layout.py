"""Layouts open G + E - 1 sub-indices per update, and round robin keeps their sizes alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.archive import ArchiveLayout, advised
from windrow.errors import BindingError

layouts = st.builds(ArchiveLayout, st.integers(1, 9), st.integers(1, 9), st.booleans(), st.booleans())


@given(layout=layouts, p=st.integers(1, 80), slot=st.integers(-100, 1000))
def test_an_update_opens_exactly_g_plus_e_minus_one(layout, p, slot):
    """E for insertions, G for deletions, one for both."""
    assert len(layout.opened(slot, p)) == layout.insertions + layout.expirations - 1


@given(layout=layouts, p=st.integers(1, 60), slot=st.integers(0, 500))
def test_a_slot_returns_to_its_sub_index(layout, p, slot):
    """The range that an update replaces by itself + S stays where it is, whether or not p is a multiple of G and E."""
    assert layout.insertion_part(slot, p) == layout.insertion_part(slot + p, p) < layout.insertions
    assert layout.expiration_part(slot, p) == layout.expiration_part(slot + p, p) < layout.expirations


def test_the_figures_of_the_thesis():
    """Figures 4.1 and 4.2, slots of 2 minutes: at time 18 rows are inserted into I1 and I2, and leave I1 and I3."""
    for layout in (ArchiveLayout(2, 2), ArchiveLayout(2, 2, round_robin=False)):
        slot = 8  # counted from the slot that begins at 1, which is number 0 there
        assert layout.inserting(slot, 8) == [0, 1]
        assert layout.deleting([slot], 8) == {0, 2}
    assert ArchiveLayout(2, 2).opened(9, 8) == {1, 2, 3}  # at 20: into I3 and I4, from I2 and I4


def spread(layout, p):
    """The sum of squared deviations of the sub-indices' sizes, in cells, at each update of a full turn."""
    found = []
    for now in range(10 * p, 11 * p):
        sizes = np.zeros(layout.count)
        for i in range(now - p + 1, now + 1):  # inserted in slot i, ends in slot j: one cell each
            for j in range(now + 1, i + p + 1):
                sizes[layout.number(layout.insertion_part(i, p), layout.expiration_part(j, p))] += 1
        assert sizes.sum() == p * (p + 1) / 2
        found.append(float(((sizes - sizes.mean()) ** 2).sum()))
    return found


@pytest.mark.parametrize(
    ("side", "p", "chronological"), [(2, 8, 52.0), (2, 36, 17685.0), (3, 36, 17448.0), (4, 36, 13263.75)]
)
def test_theorem_4_1(side, p, chronological):
    """Round robin has the variance p²/4·(1-1/n) at every update, far below that of chronological partitioning."""
    n = side * side
    assert spread(ArchiveLayout(side, side), p) == [p * p / 4 * (1 - 1 / n)] * p
    found = np.mean(spread(ArchiveLayout(side, side, round_robin=False), p))
    assert found == pytest.approx(chronological)
    if n == 4:  # lemma A.1 as printed, which holds for n = 4
        r = side
        printed = p**2 / (12 * r) - p**2 / (4 * n) + p**4 / (12 * n) - p**4 / (12 * n * r) + p**2 / 6
        assert found == pytest.approx(printed)


def test_layouts_are_parsed():
    """Both sides, or a square."""
    assert ArchiveLayout.parse("2 x 8") == ArchiveLayout(2, 8)
    assert ArchiveLayout.parse("9", rebuild=True) == ArchiveLayout(3, 3, True)
    assert str(ArchiveLayout(4, 4, True)) == "4 x 4 rebuild"
    with pytest.raises(BindingError, match="15 is not a square"):
        ArchiveLayout.parse("15")
    with pytest.raises(BindingError, match="no partitions"):
        ArchiveLayout.parse("many")
    with pytest.raises(BindingError, match="cannot have 0 x 4"):
        ArchiveLayout.parse("0 x 4")


def test_advice():
    """4.4.6: few questions want cheap updates, many want few sub-indices."""
    assert advised(0, 0) == ArchiveLayout(4, 4)
    assert advised(5 << 30, 0) == ArchiveLayout(3, 3)
    assert advised(0, 10**6) == ArchiveLayout(2, 2, rebuild=True)
    assert advised(5 << 30, 10**6) == ArchiveLayout(2, 2)
