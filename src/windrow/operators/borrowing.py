"""Compiled functions that make no arrays: those that they are given belong to whoever calls from Python.

numba counts references to arrays. A function that is called, not inlined, takes and gives back one for each of its
arrays at every call, by an atomic instruction each, which is more than it takes to read a number. Law: a function that
allocates does not compile so.
"""

from __future__ import annotations

from numba import njit

borrowing = njit(cache=True, _nrt=False)
