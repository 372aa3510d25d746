"""Compiled arithmetic on limbs: a number is the sum of `limb[k] * 2**(32 * (first + k) + bias)`, limbs signed 64-bit.

Limbs are added without carrying, so up to 2**31 terms of 32 bits fit; every kernel that reads a number
carries first. Nothing is rounded before the last step, and then once, to nearest even.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

import math

import numpy as np
from numba import njit

_MASK = np.uint64(0xFFFFFFFF)
_FRACTION = np.int64((1 << 52) - 1)
_U32 = np.uint64(32)
_U53 = np.uint64(53)
_ONE = np.uint64(1)


@njit(cache=True)
def float_span(bits, valid, some_null):  # pragma: no cover - compiled
    """The least and greatest exponent field of finite non-zero values, and the numbers of NaN, +inf, -inf."""
    low, high, nan, up, down = 5000, -1, 0, 0, 0
    if not some_null:  # without a branch, many at once; a zero, less one, is greater than all
        least, most = ~np.uint64(0), np.uint64(0)
        for i in range(len(bits)):
            magnitude = np.uint64(bits[i]) << _ONE
            least, most = min(least, magnitude - _ONE), max(most, magnitude)
        if most >> _U53 < np.uint64(0x7FF):
            found = np.int64((least + _ONE) >> _U53), np.int64(most >> _U53)
            return (*found, nan, up, down) if most else (low, high, nan, up, down)
    for i in range(len(bits)):
        if some_null and not valid[i]:
            continue
        b = bits[i]
        e = (b >> 52) & 0x7FF
        if e == 0x7FF:
            if b & _FRACTION:
                nan += 1
            elif b < 0:
                down += 1
            else:
                up += 1
        elif b << 1:
            if e < low:
                low = e
            if e > high:
                high = e
    return low, high, nan, up, down


@njit(cache=True)
def float_limbs(bits, valid, some_null, cell, sign, grouped, first, out, column):  # pragma: no cover - compiled
    """Add the limbs of doubles, in units of 2**-1074, into `out[:, column:]`, whose first limb weighs 2**(32 first).

    Value i goes to row i or, when `grouped`, times `sign[i]` to row `cell[i]`.
    """
    for i in range(len(bits)):
        if some_null and not valid[i]:
            continue
        b = bits[i]
        e = (b >> 52) & 0x7FF
        m = b & _FRACTION
        if e == 0x7FF or (e == 0 and m == 0):
            continue
        if e > 0:
            m |= np.int64(1) << 52
            e -= 1
        k = np.uint64(column - first + (e >> 5))  # unsigned: no index is looked at for being negative
        r = e & 31
        low = (m & 0xFFFFFFFF) << r
        high = (m >> 32) << r
        c, s = (np.uint64(cell[i]), np.int64(sign[i])) if grouped else (np.uint64(i), np.int64(1))
        if b < 0:
            s = -s
        out[c, k] += s * (low & 0xFFFFFFFF)
        out[c, k + np.uint64(1)] += s * ((low >> 32) + (high & 0xFFFFFFFF))
        out[c, k + np.uint64(2)] += s * (high >> 32)


@njit(cache=True)
def float_square_limbs(bits, valid, some_null, cell, sign, grouped, first, out, column):  # pragma: no cover - compiled
    """The same for squares of doubles, in units of 2**-2148."""
    for i in range(len(bits)):
        if some_null and not valid[i]:
            continue
        b = bits[i]
        e = (b >> 52) & 0x7FF
        m = b & _FRACTION
        if e == 0x7FF or (e == 0 and m == 0):
            continue
        if e > 0:
            m |= np.int64(1) << 52
            e -= 1
        k = column + (e >> 4) - first
        r = np.uint64((2 * e) & 31)
        a = np.uint64(m) & _MASK
        c = np.uint64(m) >> _U32
        aa, ac, cc = a * a, a * c, c * c
        # m*m = aa + 2 ac 2**32 + cc 2**64, in 32-bit digits
        d0 = aa & _MASK
        t = (aa >> _U32) + ((ac & _MASK) << np.uint64(1))
        d1 = t & _MASK
        t = (t >> _U32) + ((ac >> _U32) << np.uint64(1)) + (cc & _MASK)
        d2 = t & _MASK
        d3 = (t >> _U32) + (cc >> _U32)
        at, s = (cell[i], np.int64(sign[i])) if grouped else (i, np.int64(1))
        t = d0 << r
        out[at, k] += s * np.int64(t & _MASK)
        t = (t >> _U32) + (d1 << r)
        out[at, k + 1] += s * np.int64(t & _MASK)
        t = (t >> _U32) + (d2 << r)
        out[at, k + 2] += s * np.int64(t & _MASK)
        t = (t >> _U32) + (d3 << r)
        out[at, k + 3] += s * np.int64(t & _MASK)
        out[at, k + 4] += s * np.int64(t >> _U32)


@njit(cache=True)
def add_rows(values, cell, sign, out, column):  # pragma: no cover - compiled
    """Add `sign[i] * values[i]` to row `cell[i]` of `out[:, column:]`."""
    for i in range(values.shape[0]):
        for k in range(values.shape[1]):
            out[cell[i], column + k] += np.int64(sign[i]) * values[i, k]


@njit(cache=True)
def square_limbs(limbs, out, column):  # pragma: no cover - compiled
    """Write the limbs of squares of numbers given by limbs in [0, 2**32) into `out[:, column:]`."""
    n, width = limbs.shape
    for i in range(n):
        for a in range(width):
            for b in range(width):
                t = np.uint64(limbs[i, a]) * np.uint64(limbs[i, b])
                out[i, column + a + b] += np.int64(t & _MASK)
                out[i, column + a + b + 1] += np.int64(t >> _U32)


@njit(cache=True)
def carry(limbs, first, last):  # pragma: no cover - compiled
    """Bring limbs `[first, last)` of every row to balanced digits in [-2**31, 2**31); the last limb takes the rest."""
    for i in range(limbs.shape[0]):
        _carry_one(limbs, i, first, last)


@njit(cache=True)
def carry_at(limbs, rows, first, last):  # pragma: no cover - compiled
    """The same for some rows."""
    for i in rows:
        _carry_one(limbs, i, first, last)


@njit(cache=True)
def _carry_one(limbs, i, first, last):  # pragma: no cover - compiled
    for k in range(first, last - 1):
        c = (limbs[i, k] + (np.int64(1) << 31)) >> 32
        limbs[i, k] -= c << 32
        limbs[i, k + 1] += c


@njit(cache=True)
def clear_at(limbs, rows):  # pragma: no cover - compiled
    """Set some rows to zero."""
    for i in rows:
        for k in range(limbs.shape[1]):
            limbs[i, k] = 0


@njit(cache=True)
def _magnitude(limbs, row, first, last, buffer):  # pragma: no cover - compiled
    """Write the 32-bit digits of the absolute value into `buffer`; return (number of digits used, negative)."""
    c = np.int64(0)
    n = last - first
    for k in range(n):
        t = limbs[row, first + k] + c
        buffer[k] = np.uint64(t) & _MASK
        c = t >> 32
    buffer[n] = np.uint64(c) & _MASK
    buffer[n + 1] = np.uint64(c >> 32) & _MASK
    negative = c < 0
    if negative:
        carry_in = np.uint64(1)
        for k in range(n + 2):
            t2 = (buffer[k] ^ _MASK) + carry_in
            buffer[k] = t2 & _MASK
            carry_in = t2 >> _U32
    used = n + 2
    while used > 0 and buffer[used - 1] == 0:
        used -= 1
    return used, negative


@njit(cache=True)
def _head(buffer, used):  # pragma: no cover - compiled
    """The leading 64 bits of digits, the last one sticky, and the exponent of their lowest bit."""
    top = buffer[used - 1]
    second = buffer[used - 2] if used >= 2 else np.uint64(0)
    third = buffer[used - 3] if used >= 3 else np.uint64(0)
    # leading zeros: the exponent of a double below 2**53 is exact
    shift = np.uint64(32 - math.frexp(float(top))[1])
    m = (top << _U32) | second
    rest = third
    if shift > 0:
        m = (m << shift) | (third >> (_U32 - shift))
        rest = (third << shift) & _MASK
    sticky = rest != 0
    k = used - 4
    while k >= 0 and not sticky:
        sticky = buffer[k] != 0
        k -= 1
    if sticky:
        m |= np.uint64(1)
    return m, 32 * (used - 2) - np.int64(shift)


@njit(cache=True)
def _double(m, exponent):  # pragma: no cover - compiled
    """Round `m * 2**exponent`, m with its top bit set and its last bit sticky, to a double."""
    if exponent + 63 < -1022:
        cut = -1074 - exponent
        if cut > 64:
            return 0.0
        if cut == 64:
            q, rest, half = np.uint64(0), m, np.uint64(1) << np.uint64(63)
        else:
            q = m >> np.uint64(cut)
            rest = m & ((np.uint64(1) << np.uint64(cut)) - np.uint64(1))
            half = np.uint64(1) << np.uint64(cut - 1)
        if rest > half or (rest == half and (q & np.uint64(1)) == np.uint64(1)):
            q += np.uint64(1)
        return math.ldexp(float(q), -1074)
    value = float(m)  # one rounding: the conversion is to nearest even
    if exponent > 960 + 63:
        return math.inf
    return math.ldexp(value, exponent)


@njit(cache=True)
def round_sums(limbs, first, last, bias):  # pragma: no cover - compiled
    """The doubles nearest to the numbers in limbs `[first, last)`, the first of which weighs 2**bias.

    In balanced digits the part below any digit is at most half a unit of it. So some 58 leading bits and the
    sign of what is below them decide the rounding; results near the ends of the range, and a leading digit
    that would overflow, go the long way.
    """
    n, width = limbs.shape[0], last - first
    out = np.zeros(n)
    digits = np.zeros(width + 4, np.int64)  # two zeros below, two places for carries above
    buffer = np.zeros(width + 2, np.uint64)
    half = np.int64(1) << 31
    for i in range(n):
        c = np.int64(0)
        for k in range(width):
            t = limbs[i, first + k] + c
            c = (t + half) >> 32
            digits[k + 2] = t - (c << 32)
        digits[width + 2] = c - (((c + half) >> 32) << 32)
        digits[width + 3] = (c + half) >> 32
        top = width + 3
        while top > 1 and digits[top] == 0:
            top -= 1
        if top == 1:
            continue
        x = (digits[top] << 32) + digits[top - 1]  # at least 31 bits
        length = (np.float64(abs(x)).view(np.int64) >> 52) - 1022
        shift = 58 - length
        below = digits[top - 2]
        if shift >= 0:
            y = (x << shift) + (below >> (32 - shift))
            rest = below & ((np.int64(1) << (32 - shift)) - 1)
        else:
            y = x >> -shift
            rest = x & ((np.int64(1) << -shift) - 1)
            if rest == 0:
                rest = below
        k = top - 3
        while rest == 0 and k > 1:
            rest = digits[k]
            k -= 1
        y = 4 * y + (1 if rest > 0 else (-1 if rest < 0 else 0))
        e = bias + 32 * (top - 3) - shift - 2
        if e < -1020 or e > 960 or digits[top] == -half:
            used, negative = _magnitude(limbs, i, first, last, buffer)
            m, e2 = _head(buffer, used)
            value = _double(m, e2 + bias)
            out[i] = -value if negative else value
        else:
            out[i] = np.float64(y) * np.int64((e + 1023) << 52).view(np.float64)
    return out


@njit(cache=True)
def _divide(buffer, used, divisor, quotient):  # pragma: no cover - compiled
    """Digits of buffer / divisor with four more digits below the point, the lowest one sticky; return digits used."""
    rest = np.uint64(0)
    for k in range(used - 1, -1, -1):
        t = (rest << _U32) | buffer[k]
        quotient[k + 4] = t // divisor
        rest = t % divisor
    for k in range(3, -1, -1):
        t = rest << _U32
        quotient[k] = t // divisor
        rest = t % divisor
    if rest:
        quotient[0] |= np.uint64(1)
    used += 4
    while used > 0 and quotient[used - 1] == 0:
        used -= 1
    return used


@njit(cache=True)
def round_means(limbs, first, last, bias, divisors):  # pragma: no cover - compiled
    """The doubles nearest to number / divisor; divisors are positive and below 2**31 (others give 0)."""
    n = limbs.shape[0]
    out = np.zeros(n)
    buffer = np.zeros(last - first + 2, np.uint64)
    quotient = np.zeros(last - first + 6, np.uint64)
    for i in range(n):
        if divisors[i] <= 0:
            continue
        used, negative = _magnitude(limbs, i, first, last, buffer)
        if used:
            used = _divide(buffer, used, np.uint64(divisors[i]), quotient)
            m, e = _head(quotient, used)
            value = _double(m, e + bias - 128)
            out[i] = -value if negative else value
    return out


@njit(cache=True)
def whole_means(limbs, first, last, divisors):  # pragma: no cover - compiled
    """number / divisor as int64, rounded as the scalar engine rounds AVG of times: to the nearest, ties and what is
    negative towards zero."""
    n = limbs.shape[0]
    out = np.zeros(n, np.int64)
    buffer = np.zeros(last - first + 2, np.uint64)
    quotient = np.zeros(last - first + 6, np.uint64)
    half = np.uint64(1) << np.uint64(31)
    for i in range(n):
        if divisors[i] <= 0:
            continue
        used, negative = _magnitude(limbs, i, first, last, buffer)
        if used:
            quotient[:] = 0
            used = _divide(buffer, used, np.uint64(divisors[i]), quotient) - 4  # digits above the point
            value = np.int64(quotient[4])
            if used > 1:
                value |= np.int64(quotient[5] << _U32)
            below = quotient[2] | quotient[1] | quotient[0]
            if not negative and (quotient[3] > half or (quotient[3] == half and below)):
                value += 1
            out[i] = -value if negative else value
    return out


@njit(cache=True)
def deviations(limbs, s0, s1, s_at, q0, q1, q_at, bias, counts, divisors):  # pragma: no cover - compiled
    """(n * sum of squares - square of sum) / divisor, rounded twice.

    Sums stand in limbs `[s0, s1)` and weigh 2**(32 s_at) units, squares in `[q0, q1)` and weigh 2**(32 q_at)
    squared units.
    """
    n = limbs.shape[0]
    out = np.zeros(n)
    ns, nq = s1 - s0, q1 - q0
    low = min(2 * s_at, q_at)
    high = max(2 * (s_at + ns + 2), q_at + nq + 3) + 1
    sums = np.zeros(ns + 2, np.uint64)
    squares = np.zeros(nq + 2, np.uint64)
    total = np.zeros((1, high - low), np.int64)
    buffer = np.zeros(high - low + 2, np.uint64)
    for i in range(n):
        c = counts[i]
        if c <= 1:
            continue
        for k in range(high - low):
            total[0, k] = 0
        used, _ = _magnitude(limbs, i, q0, q1, squares)
        for k in range(used):
            t = squares[k] * np.uint64(c)
            total[0, q_at - low + k] += np.int64(t & _MASK)
            total[0, q_at - low + k + 1] += np.int64(t >> _U32)
        used, _ = _magnitude(limbs, i, s0, s1, sums)
        for a in range(used):
            for b in range(used):
                t = sums[a] * sums[b]
                total[0, 2 * s_at - low + a + b] -= np.int64(t & _MASK)
                total[0, 2 * s_at - low + a + b + 1] -= np.int64(t >> _U32)
        used, _ = _magnitude(total, 0, 0, high - low, buffer)
        if used:
            m, e = _head(buffer, used)
            out[i] = math.ldexp(float(m) / divisors[i], max(min(e + bias + 32 * low, 4000), -4000))
    return out
