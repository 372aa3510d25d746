"""How large the values of an expression can become, bounded before it ever runs.

DuckDB counts neither the values in flight against its memory nor looks at its clock while it works on a vector of 2,048
rows, so neither bound holds for `repeat(a, 1000000000)`. This one does: a size is an upper bound on the characters or
elements of a value, a column counting as 100, and an expression that may reach more than 100,000 is refused. Sizes
follow columns through subqueries, so doubling at each level ends as well.

What all parts of an expression make of one row, each element of a list counting as a row inside a lambda, is bounded by
10,000,000 and written into the expression (`scalar_engine.noted`): whoever evaluates it takes as few rows at a time as
this asks for, so that what is in flight stays within one bound, and the clock is looked at between them.

A lambda's element is part of its list: a body at most linear in it makes at most the list's size times what it makes of
one; any other body is measured on an element as large as the list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from windrow.cql import builtins, types
from windrow.cql.rendering import Refused, render
from windrow.plan.expr import sql_of

COLUMN = 100
"""What a text, list or other value of variable size counts that comes from a stream or a table."""
LIMIT = 100_000
TOTAL = 10_000_000
"""What all parts of an expression may make of one row together."""
NOTED = 4_000
"""From here on an expression says how much it makes; what makes less can be evaluated by whole vectors."""
MADE = "made"
"""The key under which a tree holds what its parts make together, if that is much."""

_FIXED = (
    exp.Binary, exp.Not, exp.Neg, exp.BitwiseNot, exp.Between, exp.In, exp.Extract, exp.Interval, exp.Abs, exp.Boolean,
    exp.Null, exp.AtTimeZone, exp.StrPosition, exp.RegexpLike, exp.StartsWith, exp.Any,
)  # fmt: skip
_BITS = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseLeftShift, exp.BitwiseRightShift, exp.BitwiseNot)  # also of texts
_JSON = (exp.JSONExtract, exp.JSONExtractScalar)
_NAMED = (exp.PropertyEQ, exp.Kwarg)
_GROWING = (exp.Add, exp.DPipe, exp.Dot, exp.Collate, *_JSON, *_NAMED, *_BITS)
_GIVEN = (exp.Column, exp.Identifier, exp.Literal, exp.RawString, exp.ByteString, exp.Paren)  # nothing is made for them
_WIDTH_ELSEWHERE = re.compile(r"%[^a-zA-Z%]*\*|\{[^}]*\{")  # printf('%*d', w, a), format('{:{}}', a, w)
_NUMBERS = (exp.DataType.NUMERIC_TYPES | exp.DataType.TEMPORAL_TYPES) - {exp.DType.BIT} | {
    *(exp.DType.BOOLEAN, exp.DType.UUID, exp.DType.INTERVAL, exp.DType.TIME_NS)
}
"""Types whose values have one size; a value of any other is as large as what it is made of."""
_TEXTS = (
    exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR, exp.DType.NVARCHAR, exp.DType.BPCHAR, exp.DType.JSON,
    exp.DType.JSONB,
)  # fmt: skip
_LISTS = (exp.DType.ARRAY, exp.DType.LIST)
_MANY = 1_000
_DEPTH = 3


def check_value_sizes(tree: exp.Expr, sizes: Mapping[str, int]) -> int:
    """The size of a resolved tree's value, `sizes` giving those of columns; `Refused` if some part may be too large."""
    return _Sizes(sizes).of(tree, {}, 0)


class _Sizes:
    def __init__(self, columns: Mapping[str, int], limit: int = LIMIT) -> None:
        self.columns, self.limit = columns, limit
        self.total = 0

    def of(self, tree: exp.Expr, parameters: Mapping[str, int], depth: int) -> int:
        """Chains of operators hang from `this`, so only the other arguments are visited by recursion."""
        spine = [tree]
        while isinstance(below := spine[-1].args.get("this"), exp.Expr) and not isinstance(spine[-1], exp.Anonymous):
            spine.append(below)
        size = 1
        for node in reversed(spine):
            others = [a for k, v in node.args.items() if k != "this" for a in _trees(v)]
            if isinstance(node, exp.Anonymous):
                size = self._call(node, parameters, depth)
            elif isinstance(node, exp.Lambda):
                raise Refused(node, "a lambda here", "it is the last argument of a list function")
            else:
                rest = sum(self.of(a, parameters, depth) for a in others if not isinstance(a, exp.DataType))
                size = self._node(node, size, rest, parameters)
            self._check(node, size)
            self._add(node, size)
        return size

    def _add(self, node: exp.Expr, size: int) -> None:
        if size > 1 and not isinstance(node, _GIVEN):
            self.total += size
        if self.total > NOTED:
            node.meta[MADE] = self.total
        if self.total > TOTAL and self.limit == LIMIT:
            raise Refused(
                node,
                f"an expression whose parts make more than {TOTAL:,} characters and elements of one row",
                "compute the parts in columns of their own",
            )

    def _check(self, node: exp.Expr, size: int) -> None:
        if size > self.limit and not isinstance(node, exp.Literal):
            raise Refused(
                node,
                f"a value of up to {size:,} characters or elements",
                f"at most {self.limit:,} can be made from one row, where a text or list of the row counts as {COLUMN}",
            )

    def _node(self, node: exp.Expr, this: int, rest: int, parameters: Mapping[str, int]) -> int:
        if isinstance(node, exp.Column):
            return self.columns.get(node.name, COLUMN)
        if isinstance(node, exp.Identifier):
            return parameters.get(node.name.lower(), 1)
        if isinstance(node, (exp.Literal, exp.RawString, exp.ByteString)):
            return max(1, len(str(node.this)))
        if isinstance(node, exp.Cast):
            return _cast(node.args["to"], this)
        if isinstance(node, _NAMED):  # the name is written wherever the struct is
            return len(node.name) + rest
        if isinstance(node, _JSON):
            return _found(node, node.expression, this, rest)
        if isinstance(node, (exp.RegexpLike, exp.SimilarTo)):
            self._add(node, this * _steps(node.expression, rest))
        if isinstance(node, _FIXED) and not isinstance(node, _GROWING):
            return 1
        return (this if isinstance(node.args.get("this"), exp.Expr) else 0) + rest + (rest == 0 and this == 0)

    def _call(self, node: exp.Anonymous, parameters: Mapping[str, int], depth: int) -> int:
        name, arguments = node.name.lower(), node.expressions
        plain = [a for a in arguments if not isinstance(a, exp.Lambda)]
        sizes = [self.of(a, parameters, depth) for a in plain]
        made = 0
        for function in (a for a in arguments if isinstance(a, exp.Lambda)):
            made = self._applied(function, sizes[0] if sizes else 1, parameters, depth + 1)
            self._check(function, made)
            self._add(function, made)
        if name in builtins.TRANSFORMS:
            return made
        if name in builtins.REDUCERS:
            return 1  # where it is called, DuckDB is asked for its type
        if name in builtins.PAIRS and len(sizes) > 1:
            self._check(node, sizes[0] * sizes[1])
            self._add(node, sizes[0] * sizes[1])
        if name in builtins.SEARCHES and len(sizes) > 1:
            again = sizes[0] if name in builtins.SEARCHES_ALL or len(sizes) > 3 else 0  # each match may look at all
            self._add(node, sizes[0] * (_steps(arguments[1], sizes[1]) + again))
        return _grown(node, name, plain, sizes)

    def _applied(self, function: exp.Lambda, size: int, parameters: Mapping[str, int], depth: int) -> int:
        """What a lambda makes of all elements of a list."""
        if depth > _DEPTH:
            raise Refused(
                function, f"more than {_DEPTH} lambdas inside each other", "use a subquery for the inner list"
            )
        names = [p.name.lower() for p in function.expressions]

        def body(element: int) -> tuple[int, int]:
            free = _Sizes(self.columns, limit=1 << 62)
            return free.of(function.this, {**parameters, **dict.fromkeys(names, element)}, depth), free.total

        one, total = body(1)
        if body(_MANY)[0] > _MANY * one:
            one, total = body(size)
        self._add(function, size * total)
        return size * one


def _trees(value: object) -> list[exp.Expr]:
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, exp.Expr)]


def _cast(type_: exp.Expr, this: int) -> int:
    """The size of a value that had another type before."""
    kind = type_.this if isinstance(type_, exp.DataType) else None
    if kind in _NUMBERS:
        return 1
    if kind in _TEXTS:
        return 4 * this + 24
    if kind in (exp.DType.BIT, exp.DType.USERDEFINED):
        return 8 * this
    if kind is exp.DType.MAP or (kind in _LISTS and not type_.args.get("values")):
        return this * sum(_places(t) for t in type_.expressions)
    return max(this, _places(type_)) if kind in _LISTS else this + _places(type_)


def _places(type_: exp.Expr) -> int:
    """What a value of a type holds whatever it is: the places of arrays and fields, with the names that are written."""
    if isinstance(type_, exp.ColumnDef):
        return len(type_.name) + _places(type_.args["kind"])
    if not isinstance(type_, exp.DataType):
        return len(type_.name) + 1
    inner = sum(_places(t) for t in type_.expressions)
    for length in type_.args.get("values") or ():
        inner *= int(length.name) if length.name.isdigit() else 1
    return max(1, inner)


def _steps(pattern: exp.Expr, size: int) -> int:
    """The most steps of a regular expression for a character: what is repeated is there as often."""
    counts = re.findall(r"\d+", pattern.name) if isinstance(pattern, exp.Literal) else []
    return size * max(1, *map(int, counts), 1)


def _found(node: exp.Expr, path: exp.Expr, document: int, rest: int) -> int:
    """What a path finds in a document: each `..` all that is below each place, and each of several paths all of it."""
    if isinstance(path, exp.Literal):
        return document ** (1 + path.name.count("..")) + rest
    if isinstance(path, exp.Array):
        return document * max(1, len(path.expressions))
    if path.find(exp.Column) is None and not isinstance(path, exp.Identifier):  # only constants have wildcards
        raise Refused(node, "a path that is computed", "write the path as a text: '$.a.b'")
    return document + rest


def _grown(node: exp.Expr, name: str, arguments: Sequence[exp.Expr], sizes: Sequence[int]) -> int:
    """The size of what a function makes."""
    if name in builtins.FIXED:
        return 1
    if name in builtins.SCALED:
        return builtins.SCALED[name] * (sum(sizes) + 8)
    if name in builtins.FINDERS and len(arguments) > 1:
        return _found(node, arguments[1], sizes[0], sum(sizes[1:]))
    if name in builtins.PRODUCTS:
        return sizes[0] * max(1, sum(sizes[builtins.PRODUCTS[name] :])) + sum(sizes) if sizes else 1
    if name in builtins.GENERATORS:
        at = builtins.GENERATORS[name]
        count = max(0, _constant(node, arguments[at])) if at < len(arguments) else 1
        if name == "repeat":
            return count * sizes[0]
        return count * (sizes[2] if name in builtins.RESIZERS and len(sizes) > 2 else 1) + sum(sizes)
    if name in builtins.SERIES:
        return _series(node, arguments)
    if name in builtins.PATTERNS:
        return _pattern(node, arguments, max(sizes[1:], default=1))
    return max(1, sum(sizes))


def _constant(node: exp.Expr, argument: exp.Expr) -> int:
    sign = 1
    while isinstance(argument, (exp.Neg, exp.Paren)):
        sign, argument = -sign if isinstance(argument, exp.Neg) else sign, argument.this
    if not isinstance(argument, exp.Literal) or argument.is_string or not argument.name.isdigit():
        raise Refused(
            node,
            f"{node.name.lower()} with a length that is no constant",
            f"write a whole number: {node.name.lower()}(..., 10)",
        )
    return sign * int(argument.name)


def _series(node: exp.Expr, arguments: Sequence[exp.Expr]) -> int:
    if len(arguments) == 3 and isinstance(arguments[2], exp.Interval):
        return _times(node, arguments)
    numbers = [_constant(node, a) for a in arguments]
    first, last = (0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1]) if len(numbers) > 1 else (0, 0)
    step = numbers[2] if len(numbers) > 2 else 1
    return max(1, (last - first) // step + 1) if step else 1


def _times(node: exp.Expr, arguments: Sequence[exp.Expr]) -> int:
    """How many times lie between two, so far apart from each other."""
    if any(a.find(exp.Column, exp.Identifier, exp.Anonymous) is not None for a in arguments):
        raise Refused(
            node, f"{node.name.lower()} of times that are no constants", "write TIMESTAMP '2024-01-01 00:00:00'"
        )
    first, last, step = (f"epoch_us({sql_of(render(a))})" for a in arguments)
    (count,) = types.folded(f"abs({last} - {first}) // greatest(abs({step}), 1) + 1").to_pylist()
    return int(count or 1)


def _pattern(node: exp.Expr, arguments: Sequence[exp.Expr], largest: int) -> int:
    """The length of a pattern with the widths it asks for and the values it shows, one as often as it likes."""
    pattern = arguments[0] if arguments else None
    if not isinstance(pattern, exp.Literal) or not pattern.is_string or _WIDTH_ELSEWHERE.search(pattern.name):
        raise Refused(
            node, f"{node.name.lower()} with a pattern that is no constant", "write the widths into the pattern"
        )
    shown = pattern.name.count("{") + pattern.name.count("%")
    return len(pattern.name) + sum(int(n) for n in re.findall(r"\d+", pattern.name)) + shown * (4 * largest + 24)
