"""Functions OVER a partition, with an order that is total: rows that tie are ordered by other values, given as SQL.

Where a function counts rows (or its frame does) the ties are sort keys. Where the frame counts peers they must stay
peers, so the ties only order what FIRST_VALUE and its like choose from, by an ORDER BY among the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.testing.tokens import Token, Tokens, closing, is_at, render, split, top_level

_COUNTING = frozenset({"ROW_NUMBER", "NTILE", "LAG", "LEAD"})
_CHOOSING = frozenset({"FIRST_VALUE", "LAST_VALUE", "NTH_VALUE"})
_IN_ORDER = frozenset(
    {
        "ARG_MAX", "ARG_MIN", "MAX_BY", "MIN_BY", "ARGMAX", "ARGMIN", "FIRST", "LAST", "ANY_VALUE", "ARBITRARY",
        "STRING_AGG", "GROUP_CONCAT", "LISTAGG", "LIST", "ARRAY_AGG", "MODE",
    }
)  # fmt: skip
_FRAMES = ("ROWS", "RANGE", "GROUPS")


def with_windows(tokens: Tokens, named: Tokens) -> Tokens:
    """The tokens with windows in the place of the names that a WINDOW clause gives them.

    >>> from windrow.testing.tokens import render, tokenize
    >>> render(with_windows(tokenize("sum(a) OVER w"), tokenize("w AS (ORDER BY b)")))
    'sum ( a ) OVER ( ORDER BY b )'
    """
    known = {part[0].name: part[2:] for part in split(named, ",") if part}
    out: list[Token] = []
    for i, token in enumerate(tokens):
        called = i > 0 and tokens[i - 1].upper == "OVER" and token.name in known
        out += known[token.name] if called else [token]
    return out


def with_ties(tokens: Tokens, ties: Sequence[str]) -> list[Token]:
    """The tokens with every OVER ordered to the end.

    >>> from windrow.testing.tokens import render, tokenize
    >>> render(with_ties(tokenize("lag(a) OVER (ORDER BY b)"), ["c"]))
    'lag ( a ) OVER ( ORDER BY b , c ASC NULLS LAST )'
    """
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        if is_at(tokens, i, "(", "SELECT"):  # it has ties of its own
            end = closing(tokens, i) + 1
            out += tokens[i:end]
            i = end
            continue
        call = _call(tokens, i)
        if call is None or not ties:
            out.append(tokens[i])
            i += 1
            continue
        end, over = call
        out += _ordered(tokens[i:over], tokens[over + 2 : end], [Token("sql", f"{t} ASC NULLS LAST") for t in ties])
        i = end + 1
    return out


def _call(tokens: Tokens, i: int) -> tuple[int, int] | None:
    """The end of the OVER of a call at `i`, and where it begins."""
    if not tokens[i].upper.isidentifier() or not is_at(tokens, i + 1, "("):
        return None
    over = closing(tokens, i + 1) + 1
    if is_at(tokens, over, "FILTER", "("):
        over = closing(tokens, over + 1) + 1
    return (closing(tokens, over + 1), over) if is_at(tokens, over, "OVER", "(") else None


def _ordered(call: Tokens, window: Tokens, ties: list[Token]) -> list[Token]:
    comma = Token("punctuation", ",")
    listed = [t for tie in ties for t in (comma, tie)]
    by = [Token("name", "ORDER"), Token("name", "BY")]
    frame = next((i for i in top_level(window) if window[i].upper in _FRAMES), len(window))
    order = next((i for i in top_level(window) if window[i].upper == "ORDER"), None)
    keys = window[order + 2 : frame] if order is not None else []
    name = call[0].upper
    if name in _COUNTING or is_at(window, frame, "ROWS"):
        window = [*window[: frame if order is None else order], *by, *keys, *listed[not keys :], *window[frame:]]
    elif name in _CHOOSING:
        call = [*call[:-1], *by, *keys, *listed[not keys :], call[-1]]
    return [*call, Token("name", "OVER"), Token("punctuation", "("), *window, Token("punctuation", ")")]


def in_order(tokens: Tokens, settling: Sequence[str]) -> list[Token]:
    """The tokens with rows in a certain order for every aggregate that can tell.

    >>> from windrow.testing.tokens import render, tokenize
    >>> render(in_order(tokenize("list(a ORDER BY b)"), ["c"])), render(in_order(tokenize("list(DISTINCT a)"), ["c"]))
    ('list ( a ORDER BY b , c ASC NULLS LAST )', 'list ( DISTINCT a ORDER BY a ASC NULLS LAST )')
    """
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        out.append(tokens[i])
        if is_at(tokens, i, "(", "SELECT"):
            end = closing(tokens, i) + 1
            out += tokens[i + 1 : end]
            i = end
            continue
        i += 1
        if tokens[i - 1].upper not in _IN_ORDER or not is_at(tokens, i, "(") or _call(tokens, i - 1) is not None:
            continue
        end = closing(tokens, i)
        arguments = tokens[i + 1 : end]
        written = next((k for k in top_level(arguments) if arguments[k].upper == "ORDER"), None)
        terms = [Token("sql", f"{c} ASC NULLS LAST") for c in settling]
        if is_at(arguments, 0, "DISTINCT"):
            stop = next((k for k in top_level(arguments) if arguments[k].text == ","), written or len(arguments))
            terms = [] if written is not None else [Token("sql", f"{render(arguments[1:stop])} ASC NULLS LAST")]
        by = [Token("name", "ORDER"), Token("name", "BY")] if written is None else [Token("punctuation", ",")]
        listed = [t for term in terms for t in (Token("punctuation", ","), term)][1:]
        out += [tokens[i], *arguments, *(by if listed else []), *listed, tokens[end]]
        i = end + 1
    return out
