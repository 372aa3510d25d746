"""What a shared plan's rows consist of, whoever comes and goes.

State is kept by column. So a plan's columns are those that its queries needed when it began, even if some of these have
left; and windows that were told apart once stay so. Where nothing is remembered below the routes, more may be read and
tested there at any time; what leaves the routes, and which operators there are, is fixed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from windrow.operators.elements import INF
from windrow.plan.expr import Expr, Ref
from windrow.plan.nodes import Join, has
from windrow.sharing.plans.canonical import Canonical, Columns


@dataclass(frozen=True)
class PlanColumns:
    """`shown`: what answers are made of. `columns`: by scan. `tested`: by slot, the columns that conditions read.
    `stamped`: the windows whose lengths differ. `began`: the number of queries with which it began. `own`: what every
    query shows, by which rows lie over partitions where they part; None: by all. `kept`: they do so wherever queries
    part, and not behind their change log only, as in older homes. `differ`: what queries selected by before that
    differed when it began. `admits`: the scans of which only such rows are let in as somebody wants; None: it has not
    been planned. `given`: the conjuncts of the last slot that all have, which are tested below: what is read there only
    makes no difference in the change log. `endless`: windows whose lengths differ that are no operators; None: it is
    of an older home, where those were none whose longest was UNBOUNDED, and who was in it is not known yet."""

    shown: Mapping[str, Expr]
    columns: tuple[Columns, ...]
    tested: tuple[frozenset[str], ...]
    stamped: frozenset[int]
    began: int = 0
    own: frozenset[str] | None = None
    kept: bool = True
    differ: bool = False
    admits: frozenset[str] | None = None
    given: frozenset[str] = frozenset()
    endless: frozenset[int] | None = frozenset()

    @classmethod
    def of(cls, forms: Iterable[Canonical]) -> PlanColumns:
        """The shape that serves all of some forms."""
        forms = list(forms)
        shown = {name: e for form in forms for name, e in form.shown}
        own = frozenset(shown).intersection(*({name for name, _ in form.shown} for form in forms))
        read = (dict.fromkeys(c for one in scan for c in one) for scan in zip(*(f.columns for f in forms), strict=True))
        given = _given(forms)
        tested = tuple(frozenset().union(*slot) for slot in zip(*(_tested(f, given) for f in forms), strict=True))
        stamped = frozenset(
            w for w, sizes in enumerate(zip(*(f.sizes for f in forms), strict=True)) if len({*sizes}) > 1
        )
        selects = len({f.fixed for f in forms}) > 1
        columns = tuple(map(_sorted, read))
        return cls(dict(sorted(shown.items())), columns, tested, stamped, own=own, differ=selects, given=given)

    def fits(self, form: Canonical, member: Canonical) -> bool:
        """Whether a query may join, where another one is: it shows nothing else, and windows that are one are its.

        It also shows by what rows lie over partitions, where they do before they part."""
        shown = {name for name, _ in form.shown}
        if self.kept and self.own is not None and not (self.own <= shown or form.passes):
            return False
        if not self.given <= {e.sql() for e in form.slots[-1]}:
            return False
        if not form.stateless:  # columns of states
            columns = all({*mine} <= {*known} for mine, known in zip(form.columns, self.columns, strict=True))
            if not columns or any(not mine <= known for mine, known in self._beside(form)):
                return False
        alike = all(size == form.sizes[w] for w, size in enumerate(member.sizes) if w not in self.stamped)
        return alike and shown <= self.shown.keys()

    def _beside(self, form: Canonical) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
        """By slot, the columns that a query tests and those that are."""
        return zip(_tested(form, self.given), self.tested, strict=True)

    def tests(self, conjuncts: Sequence[Expr]) -> tuple[Expr, ...]:
        """Conjuncts of the last slot that are tested there."""
        return tuple(e for e in conjuncts if e.sql() not in self.given) if self.given else tuple(conjuncts)

    def check(self, form: Canonical) -> None:
        """Refuse a shape that was read back and has other columns by the names that a query reads."""
        for known, mine in zip(self.columns, form.columns, strict=True):
            of = {internal: (name, type_) for internal, name, type_ in known}
            for internal, name, type_ in mine:
                if of.get(internal, (name, type_)) != (name, type_):
                    raise ValueError(f"{internal} is column {of[internal][0]} of a shared plan, and not {name}")

    def widened(self, forms: Iterable[Canonical]) -> PlanColumns:
        """The shape that reads and tests what others need, too."""
        other = PlanColumns.of(forms)
        columns = tuple(_sorted({*mine, *more}) for mine, more in zip(self.columns, other.columns, strict=True))
        tested = tuple(mine | more for mine, more in zip(self.tested, other.tested, strict=True))
        return replace(self, columns=columns, tested=tested)

    def of_older(self, forms: Iterable[Canonical]) -> PlanColumns:
        """The shape of a plan of an older home, in which these were: its windows stay what they are there."""
        longest = map(max, zip(*(f.sizes for f in forms), strict=True))
        return replace(self, endless=self.stamped & {w for w, size in enumerate(longest) if size == INF})

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        types = [e.type for e in self.shown.values()] + [t for scan in self.columns for _, _, t in scan]
        schema = pa.schema([(str(i), t) for i, t in enumerate(types)])
        shown = {name: [[p.name] if isinstance(p, Ref) else p for p in e.parts] for name, e in self.shown.items()}
        columns = [[[internal, name] for internal, name, _ in scan] for scan in self.columns]
        return {
            "types": schema.serialize().to_pybytes().hex(), "shown": shown, "columns": columns,
            "tested": [sorted(slot) for slot in self.tested], "stamped": sorted(self.stamped),
            "began": self.began, "own": None if self.own is None else sorted(self.own), "kept": self.kept,
            "differ": self.differ, "admits": None if self.admits is None else sorted(self.admits),
            "given": sorted(self.given), "endless": None if self.endless is None else sorted(self.endless),
        }  # fmt: skip

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> PlanColumns:
        """From what `plain` gave."""
        types = iter(pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(plain["types"]))).types)
        shown = {
            name: Expr(tuple(Ref(p[0]) if isinstance(p, list) else p for p in parts), next(types))
            for name, parts in plain["shown"].items()
        }
        columns = tuple(tuple((internal, name, next(types)) for internal, name in scan) for scan in plain["columns"])
        tested, stamped = tuple(map(frozenset, plain["tested"])), frozenset(plain["stamped"])
        own = plain.get("own")  # older homes have none
        own = None if own is None else frozenset(own)
        admits, endless = plain.get("admits"), plain.get("endless", [] if plain.get("timed") else None)
        return cls(
            shown, columns, tested, stamped, plain["began"], own, plain.get("kept", False), plain.get("differ", False),
            None if admits is None else frozenset(admits), frozenset(plain.get("given", ())),
            None if endless is None else frozenset(endless),
        )  # fmt: skip


def _sorted(columns: Iterable[tuple[str, str, pa.DataType]]) -> Columns:
    return tuple(sorted(columns, key=lambda one: one[0]))


def _tested(form: Canonical, given: Collection[str]) -> tuple[frozenset[str], ...]:
    """By slot, the columns that a query's conjuncts read, but for those that are given."""
    if not given:
        return form.tested
    last = (e.columns for e in form.slots[-1] if e.sql() not in given)
    return (*form.tested[:-1], frozenset().union(*last))


def _given(forms: Sequence[Canonical]) -> frozenset[str]:
    """The conjuncts above a join that all have, over several inputs and without constants: who comes has them."""
    if not has(forms[0].root, Join):
        return frozenset()
    scans = [{internal for form in forms for internal, _, _ in form.columns[i]} for i in range(len(forms[0].columns))]
    common = frozenset.intersection(*(frozenset(e.sql() for e in form.slots[-1]) for form in forms))
    mine = {e.sql(): e for e in forms[0].slots[-1] if not any(e.columns <= scan for scan in scans)}
    return frozenset(text for text in common & mine.keys() if _plain(mine[text]))


def _plain(e: Expr) -> bool:
    """Whether an expression has no constant in it."""
    texts = "".join(p for p in e.parts if isinstance(p, str))
    return not any(c.isdigit() or c == "'" for c in texts)
