"""What statements ask for, checked against a catalog."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.catalog import Declared
from windrow.plan.nodes import QueryPlan


@dataclass(frozen=True)
class Create:
    """Declare something, or register a query; `replaces`: in the place of the one of its name."""

    definition: Declared
    replaces: bool = False


@dataclass(frozen=True)
class Alter:
    """Let a declaration be another from now on, while what it has goes on."""

    definition: Declared


@dataclass(frozen=True)
class Drop:
    """Remove a declaration of some kind. `name` is as the catalog has it; `first`: what must go before it."""

    kind: str
    name: str
    if_exists: bool
    first: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Explain:
    """Show a plan; `format` is text, json, dot or svg. `replaces`: it would take the place of the query of its name."""

    plan: QueryPlan
    format: str
    replaces: bool = False


@dataclass(frozen=True)
class Unchanged:
    """IF NOT EXISTS, and it does."""

    kind: str
    name: str


@dataclass(frozen=True)
class Show:
    """List what is declared of a kind, by names like a pattern."""

    kind: str
    like: str | None = None


@dataclass(frozen=True)
class Describe:
    """Show what is known of one declaration. `name` is as the catalog has it."""

    kind: str
    name: str


Bound = Unchanged | Create | Alter | Drop | Explain | Show | Describe
