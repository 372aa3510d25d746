"""Network flows on several links: generated, or read from a capture.

Stands in for the packet trace of the thesis (3.6.1): flows are split into links by destination, one flow per link and
tick, sources are skewed, and every source uses only some of the links, so that a join finds partners and a negation
leaves something.

Real flows: CTU-13 scenario 6 (S. Garcia, M. Grill, J. Stiborek, A. Zunino, "An empirical comparison of botnet detection
methods", Computers & Security 45, 2014). Its times are replaced by ranks on each link, so that windows mean the same
for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

LINKS = ("link1", "link2", "link3")
PROTOCOLS = {"ftp": 0.02, "telnet": 0.2, "smtp": 0.28, "http": 0.5}
LEFT_OUT = 2
"""Destinations of a capture that are on no link."""
SERVICES = {21: "ftp", 22: "ssh", 25: "smtp", 53: "dns", 80: "http", 443: "https"}


def generate(rows: int, seed: int, sources: int = 2000, fanout: int = 10) -> dict[str, pa.Table]:
    """`rows` flows on each link: a source is chosen with weight rank^-1/2, and talks to about `fanout` destinations."""
    rng = np.random.default_rng(seed)
    weight = np.arange(1, sources + 1) ** -0.5
    names = np.array(list(PROTOCOLS))
    links = {}
    for number, link in enumerate(LINKS):
        used = weight * (rng.random(sources) < 0.6)  # a source is on three links of five
        source = rng.choice(sources, rows, p=used / used.sum())
        destination = (source * fanout + rng.integers(0, fanout, rows)) * len(LINKS) + number
        protocol = names[rng.choice(len(names), rows, p=list(PROTOCOLS.values()))]
        links[link] = _table(source, destination, protocol, rng.exponential(10, rows), rng.integers(40, 1500, rows))
    return links


def read(path: str | Path) -> dict[str, pa.Table]:
    """The flows of a CTU-13 capture; the destinations are dealt to the links so that these are about equally busy.

    All but two: nearly half of the flows go to one name server, and a sixth to a host that 64,501 sources talk to once
    each. A link of either would share next to no source with the others, and joins with it would have no results.
    """
    from pyarrow import csv

    wanted = ["Dur", "Proto", "SrcAddr", "DstAddr", "Dport", "TotBytes"]
    flows = csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=wanted))
    source, destination = _codes(flows.column("SrcAddr")), _codes(flows.column("DstAddr"))
    port = flows.column("Dport").fill_null(0).to_numpy()
    protocol = flows.column("Proto").to_numpy().astype(object)
    for number, service in SERVICES.items():
        protocol[port == number] = service
    link = _dealt(destination)
    duration, size = flows.column("Dur").to_numpy(), flows.column("TotBytes").to_numpy()
    parts = {name: np.flatnonzero(link == i) for i, name in enumerate(LINKS)}
    return {n: _table(source[p], destination[p], protocol[p], duration[p], size[p]) for n, p in parts.items()}


def _codes(addresses: pa.ChunkedArray) -> NDArray[np.int64]:
    encoded = pc.dictionary_encode(pa.concat_arrays(addresses.chunks))
    return encoded.indices.to_numpy().astype(np.int64)


def _dealt(destination: NDArray[np.int64]) -> NDArray[np.int64]:
    """A link for each flow: busy destinations first, each to the link that has least; none (-1) for the first."""
    counts = np.bincount(destination)
    order = np.argsort(-counts, kind="stable").tolist()
    owner, load = np.empty(len(counts), np.int64), [0] * len(LINKS)
    owner[order[:LEFT_OUT]] = -1
    for d in order[LEFT_OUT:]:
        owner[d] = load.index(min(load))
        load[int(owner[d])] += int(counts[d])
    return owner[destination]


def _table(
    source: NDArray[np.int64],
    destination: NDArray[np.int64],
    protocol: NDArray[np.generic],
    duration: NDArray[np.float64],
    size: NDArray[np.int64],
) -> pa.Table:
    columns: Mapping[str, object] = {
        "ts": np.arange(len(source)), "duration": duration, "protocol": pa.array(protocol, pa.string()),
        "bytes": size, "source": source, "destination": destination,
    }  # fmt: skip
    return pa.table(columns)
