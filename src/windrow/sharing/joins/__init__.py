"""Shared aggregation over joins of two streams: one join state and one synopsis for all queries (thesis 8.3.2).

    members     a query as a member: windows, predicates per side, keys, aggregates
    recognise   which plans these are, and what remains of them above
    side        the rows of one stream's longest window, with what queries need of them
    kernels     pairs of rows, and synopses of pairs by expiration time
    synopsis    running, interval and basic interval join synopses; which is cheapest
    operator    rows in, sums of every window that is due out
    combine     sums of several tasks into answers

A result of two rows lives until the first of them leaves its window. In a (w, w)-join at t are the results whose older
row came after t - w: so results are kept by the time of their older row, and every window length reads a suffix. Where
the windows differ by d, the row of the longer one counts d later: results are kept once more for each difference d that
occurs. That is the generalised synopsis of the thesis, with a value per interval and difference, by which it holds for
any two lengths (its three values per interval do so for differences of one interval only).
"""
