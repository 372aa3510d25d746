"""What every node of the algebra has: inputs, a schema, and the same over other inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa


@dataclass(frozen=True)
class Node:
    """A node of the plan; subclasses say what it means."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose output this one reads."""
        raise NotImplementedError

    @property
    def schema(self) -> dict[str, pa.DataType]:
        """Internal column names and types of the output."""
        raise NotImplementedError

    def with_inputs(self, *inputs: Node) -> Node:
        """The same node over other inputs."""
        raise NotImplementedError


@dataclass(frozen=True)
class Leaf(Node):
    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def with_inputs(self, *inputs: Node) -> Node:
        assert not inputs
        return self


@dataclass(frozen=True)
class Unary(Node):
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self.input.schema

    def with_inputs(self, *inputs: Node) -> Node:
        (only,) = inputs
        return replace(self, input=only)


@dataclass(frozen=True)
class Binary(Node):
    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return self.left.schema

    def with_inputs(self, *inputs: Node) -> Node:
        left, right = inputs
        return replace(self, left=left, right=right)


@dataclass(frozen=True)
class Nary(Node):
    """Any number of inputs, whose columns stand side by side."""

    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    @property
    def schema(self) -> dict[str, pa.DataType]:
        return {n: t for p in self.parts for n, t in p.schema.items()}

    def with_inputs(self, *inputs: Node) -> Node:
        return replace(self, parts=inputs)
