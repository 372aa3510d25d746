"""What runs, on its way to the workers: a deployment once for as long as it stays the same, blocks of members once.

A deployment is a broadcast variable; so is every long block of members that it names (`runtime/member_blocks.py`). A
change ships what it touches, and a worker unpacks what it has not had. User functions go by value. Where all workers
are on this machine, a file takes the place of a variable, which costs 4 to 10 ms.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.runtime.collector import without_collector
from windrow.runtime.member_blocks import MemberBlock
from windrow.runtime.program import Deployment
from windrow.sharing.member_columns import MemberColumns

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext

SHORT_BLOCK = 64
"""A block of fewer members goes with the deployment."""

Members = MemberBlock | MemberColumns

KEPT = 4
"""Deployments that a worker process remembers."""


@dataclass(frozen=True)
class FiledBytes:
    """What a broadcast variable is, for workers of this machine."""

    path: str

    @property
    def value(self) -> bytes:
        with open(self.path, "rb") as file:
            return file.read()

    def destroy(self) -> None:
        """Remove the file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


@dataclass(frozen=True)
class ShippedDeployment:
    """A deployment as tasks find it."""

    uid: str
    packed: Broadcast[bytes] | FiledBytes
    blocks: Mapping[str, Broadcast[bytes] | FiledBytes]  # by uid

    def load(self) -> tuple[Deployment, bool]:
        """The deployment, unpacked once by each worker process, and whether that was now."""
        known = _deployments.get(self.uid)
        if known is not None:
            return known[0], False
        had = {uid: block for _, blocks in _deployments.values() for uid, block in blocks.items()}
        with without_collector():
            blocks = {uid: had.get(uid) or pickle.loads(sent.value) for uid, sent in self.blocks.items()}
            found: Deployment = _Unpickler(self.packed.value, blocks).load()
        _deployments[self.uid] = found, blocks
        while len(_deployments) > KEPT:
            _deployments.popitem(last=False)
        return found, bool(blocks.keys() - had.keys())


_deployments: OrderedDict[str, tuple[Deployment, Mapping[str, Members]]] = OrderedDict()


class Shipping:
    """The driver's side: what has been sent."""

    def __init__(self, context: SparkContext, folder: str | None = None) -> None:
        """`folder`: one that all workers have, if there is any."""
        self._context, self._folder = context, folder
        self._sent: tuple[Deployment, ShippedDeployment] | None = None

    def ship(self, deployment: Deployment) -> ShippedDeployment:
        """Send what runs to the workers, when it is another than before."""
        if self._sent is not None and self._sent[0] is deployment:
            return self._sent[1]
        send, before = self._send, None if self._sent is None else self._sent[1]
        there = {} if before is None else before.blocks
        packed, blocks = packed_apart(deployment)
        sent = {uid: there[uid] if uid in there else send(pickle.dumps(block, -1)) for uid, block in blocks.items()}
        made = ShippedDeployment(uuid.uuid4().hex, send(packed), sent)
        self._sent = (deployment, made)
        if before is not None:
            for old in (before.packed, *(b for uid, b in there.items() if uid not in sent)):
                old.destroy()
        return made

    def _send(self, packed: bytes) -> Broadcast[bytes] | FiledBytes:
        if self._folder is None:
            return self._context.broadcast(packed)
        path = os.path.join(self._folder, uuid.uuid4().hex)
        with open(path, "wb") as file:
            file.write(packed)
        return FiledBytes(path)

    def close(self) -> None:
        """Let go of what was sent."""
        if self._sent is not None:
            with contextlib.suppress(Exception):  # Spark may be gone
                for sent in (self._sent[1].packed, *self._sent[1].blocks.values()):
                    sent.destroy()
            self._sent = None


def packed_apart(deployment: Deployment) -> tuple[bytes, dict[str, Members]]:
    """A deployment, packed, and the blocks of members that it only names."""
    from pyspark import cloudpickle

    blocks: dict[str, Members] = {}

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, obj: object) -> str | None:
            if not isinstance(obj, MemberBlock | MemberColumns) or len(obj) < SHORT_BLOCK:
                return None
            blocks[obj.uid] = obj
            return obj.uid

    into = io.BytesIO()
    Pickler(into).dump(deployment)  # type: ignore[no-untyped-call]
    return into.getvalue(), blocks


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: bytes, blocks: Mapping[str, Members]) -> None:
        super().__init__(io.BytesIO(packed))
        self._blocks = blocks

    def persistent_load(self, pid: str) -> Members:
        return self._blocks[pid]
