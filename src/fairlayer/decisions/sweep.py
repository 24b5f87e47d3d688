"""One attribute, exactly: the best numbers of yeses of disjoint groups whose rates differ little.

Were the lowest rate r known, every group would be free of the others: its best number of yeses is the one it has,
brought into [r N, (r + tolerance) N]. Of a ratio, let q be the highest rate: the numbers lie in [ratio q N, q N]. The
rate to be known is one that some group can have, so there are no more than n + G to try.

Few of them need to be tried. With fractions of a sample allowed, the cost is convex in r, so that whatever beats an
answer already found lies in an interval. Counts are compared as whole numbers, and the tolerance as the fraction that
it is; with weights, in floats, slightly inside, and it is for the caller to check what comes out.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fairlayer.compiled import compiled
from fairlayer.decisions.cost import Best, Costs

_ROUNDING = 2.0**-50
_LOW = np.uint64(0xFFFFFFFF)
_HALF, _WORD = np.uint64(32), np.uint64(64)
_ONE, _NOUGHT = np.uint64(1), np.uint64(0)
_MOST_STEPS = 200


def sweep(costs: Costs, allowed: float | Fraction, ratio: bool) -> Best:
    """The cheapest numbers of yeses. allowed: the largest difference of rates; with `ratio`, the least ratio.

    Of weights, `least` is what they cost with fractions of samples.
    """
    share = Fraction(min(max(allowed, 0), 1))
    exponent = share.denominator.bit_length() - 1
    if share.numerator.bit_length() > 63 or share.denominator != 1 << exponent:
        raise ValueError(f"{allowed} is no float")
    parts = float(share), np.uint64(share.numerator), np.uint64(exponent)
    count, cost, least = run_sweep(*costs[:5], *costs.possible(), *parts, ratio, costs.whole)
    found = bool(np.isfinite(cost))
    return Best(count if found else count[:0], float(cost), float(cost if found and costs.whole else least))


def closest(costs: Costs, ratio: bool) -> Fraction:
    """The least difference of rates, or the greatest ratio, that the possible numbers of yeses allow."""
    a, j, b, i = closest_pair(costs.start, costs.mass, costs.total, *costs.possible(), ratio)
    first, second = (
        Fraction(float(costs.mass[costs.start[u] + at])) / Fraction(float(costs.total[u])) for u, at in ((a, j), (b, i))
    )
    if not ratio:
        return second - first
    return second / first if first else Fraction(1)


@compiled(small=True)
def _product(a, b):
    """a * b in two words, the high one first."""
    a1, a0, b1, b0 = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
    low, first, second = a0 * b0, a1 * b0, a0 * b1
    middle = (low >> _HALF) + (first & _LOW) + (second & _LOW)
    high = a1 * b1 + (first >> _HALF) + (second >> _HALF) + (middle >> _HALF)
    return high, (low & _LOW) | ((middle & _LOW) << _HALF)


@compiled(small=True)
def share_of(numerator, exponent, amount, up):
    """amount * numerator / 2^exponent as a whole number, rounded down, or up."""
    high, low = _product(numerator, np.uint64(amount))
    if exponent >= _WORD + _WORD:
        whole, rest = _NOUGHT, high | low
    elif exponent >= _WORD:
        over = exponent - _WORD
        whole, rest = high >> over, (high & ((_ONE << over) - _ONE)) | low
    elif exponent == _NOUGHT:
        whole, rest = low, _NOUGHT
    else:
        whole, rest = (low >> exponent) | (high << (_WORD - exponent)), low & ((_ONE << exponent) - _ONE)
    if up and rest != _NOUGHT:
        whole += _ONE
    return np.int64(whole)


@compiled(small=True)
def _first_from(mass, begin, end, wanted):
    """The first place from begin to end - 1 whose mass is at least `wanted`; end where there is none."""
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if mass[middle] >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


@compiled(inner=True)
def _interval(start, mass, total, a, j, b, share, numerator, exponent, ratio, whole):
    """The fewest and the most yeses that group b may have where group a, with j of them, has the extreme rate."""
    begin, end = start[b], start[b + 1]
    if whole:
        own, other, offset = np.int64(total[a]), np.int64(total[b]), np.int64(mass[begin])
        yes = np.int64(mass[start[a]]) + j
        if ratio:
            most = yes * other // own
            fewest = -(-share_of(numerator, exponent, yes * other, True) // own)
        else:
            fewest = -(-yes * other // own)
            most = (yes * other + share_of(numerator, exponent, own * other, False)) // own
        return fewest - offset, most - offset
    rate = mass[start[a] + j] / total[a]
    low, high = (share * rate, rate) if ratio else (rate, rate + share)
    fewest = _first_from(mass, begin, end, low * total[b] * (1.0 + _ROUNDING)) - begin
    most = _first_from(mass, begin, end, high * total[b] * (1.0 - _ROUNDING)) - begin
    if begin + most == end or mass[begin + most] > high * total[b] * (1.0 - _ROUNDING):
        most -= 1
    if a == b:  # its own number is allowed, whatever rounding says
        fewest, most = (fewest, j) if ratio else (j, most)
    return fewest, max(most, j) if a == b else most


@compiled(inner=True)
def _try(start, cost, mass, now, total, low, high, a, j, share, numerator, exponent, ratio, whole, best):
    """What it costs that group a, with j yeses, has the extreme rate; infinite where that is more than `best`."""
    spent = 0.0
    for b in range(now.size):
        fewest, most = _interval(start, mass, total, a, j, b, share, numerator, exponent, ratio, whole)
        fewest, most = max(fewest, low[b]), min(most, high[b])
        if fewest > most:
            return np.inf
        spent += cost[start[b] + min(max(now[b], fewest), most)]
        if spent > best:
            return np.inf
    return spent


@compiled(inner=True)
def _between(start, cost, mass, u, low, high, wanted):
    """The cost of a weight of yeses, fractions of samples allowed."""
    begin = start[u]
    at = _first_from(mass, begin + low, begin + high + 1, wanted)
    if at == begin + low:
        return cost[at]
    if at > begin + high:
        return cost[begin + high]
    part = (wanted - mass[at - 1]) / (mass[at] - mass[at - 1])
    return cost[at - 1] + part * (cost[at] - cost[at - 1])


@compiled(inner=True)
def _relaxed(start, cost, mass, now, total, low, high, rate, share, ratio):
    """The cost of an extreme rate, fractions of samples allowed; infinite where it is not possible."""
    spent = 0.0
    for b in range(now.size):
        begin = start[b]
        bottom, top = (
            (share * rate * total[b], rate * total[b]) if ratio else (rate * total[b], (rate + share) * total[b])
        )
        least, most = mass[begin + low[b]], mass[begin + high[b]]
        if bottom > most * (1.0 + _ROUNDING) or top < least * (1.0 - _ROUNDING):
            return np.inf
        held = mass[begin + now[b]]
        wanted = min(max(held, bottom), top)
        if wanted != held:
            spent += _between(start, cost, mass, b, low[b], high[b], min(max(wanted, least), most))
    return spent


@compiled
def run_sweep(start, cost, mass, now, total, low, high, share, numerator, exponent, ratio, whole):
    """(yeses of each group, their cost, a bound below on any cost); the cost is infinite where there is no answer."""
    G = now.size
    # Rates that are possible at all.
    left, right = 0.0, np.inf
    for b in range(G):
        least, most = mass[start[b] + low[b]] / total[b], mass[start[b] + high[b]] / total[b]
        if ratio:
            left, right = max(left, least), min(right, most / share)
        else:
            left, right = max(left, least - share), min(right, most)
    left, right = min(left, right), max(left, right)
    first, last = left, right
    for _ in range(_MOST_STEPS):  # to the bottom of a convex function
        one, two = first + (last - first) / 3.0, last - (last - first) / 3.0
        at_one = _relaxed(start, cost, mass, now, total, low, high, one, share, ratio)
        at_two = _relaxed(start, cost, mass, now, total, low, high, two, share, ratio)
        if at_one <= at_two:
            last = two
        else:
            first = one
    bottom = 0.5 * (first + last)
    least = _relaxed(start, cost, mass, now, total, low, high, bottom, share, ratio)
    least = min(least, _relaxed(start, cost, mass, now, total, low, high, first, share, ratio))
    least = min(least, _relaxed(start, cost, mass, now, total, low, high, last, share, ratio))
    best, of, at = np.inf, -1, -1
    for a in range(G):
        near = _first_from(mass, start[a], start[a + 1], bottom * total[a]) - start[a]
        for j in range(max(near - 3, low[a]), min(near + 4, high[a] + 1)):
            spent = _try(start, cost, mass, now, total, low, high, a, j, share, numerator, exponent, ratio, whole, best)
            if spent < best:
                best, of, at = spent, a, j
    # Whatever is better lies where the convex function is lower.
    if np.isfinite(best) and np.isfinite(least):
        for side in range(2):
            inside, outside = bottom, left if side == 0 else right
            for _ in range(_MOST_STEPS):
                middle = 0.5 * (inside + outside)
                if _relaxed(start, cost, mass, now, total, low, high, middle, share, ratio) <= best:
                    inside = middle
                else:
                    outside = middle
            left, right = (outside, right) if side == 0 else (left, outside)
    for a in range(G):
        begin = max(_first_from(mass, start[a], start[a + 1], left * total[a]) - start[a] - 1, low[a])
        end = min(_first_from(mass, start[a], start[a + 1], right * total[a]) - start[a] + 1, high[a])
        for j in range(begin, end + 1):
            spent = _try(start, cost, mass, now, total, low, high, a, j, share, numerator, exponent, ratio, whole, best)
            if spent < best:
                best, of, at = spent, a, j
    count = np.zeros(G, dtype=np.int64)
    if of >= 0:
        for b in range(G):
            fewest, most = _interval(start, mass, total, of, at, b, share, numerator, exponent, ratio, whole)
            count[b] = min(max(now[b], max(fewest, low[b])), min(most, high[b]))
    return count, best, min(max(least * (1.0 - 1e-9), 0.0), best)


@compiled
def closest_pair(start, mass, total, low, high, ratio):
    """Where rates are as close as can be: the group of the lowest rate (of a ratio, the highest) and its yeses, and
    the group farthest from it and its own."""
    best, found = np.inf, (0, low[0], 0, low[0])
    for a in range(total.size):
        for j in range(low[a], high[a] + 1):
            rate = mass[start[a] + j] / total[a]
            worst, farthest, its = -1.0, a, j
            for b in range(total.size):
                begin = start[b]
                i = _first_from(mass, begin, start[b + 1], rate * total[b] * (1.0 - _ROUNDING)) - begin
                if ratio:
                    if begin + i == start[b + 1] or mass[begin + i] > rate * total[b] * (1.0 + _ROUNDING):
                        i -= 1
                    i = min(i, high[b])
                    beyond = i < low[b]
                else:
                    i = max(i, low[b])
                    beyond = i > high[b]
                if beyond:
                    worst = np.inf
                    break
                other = mass[begin + i] / total[b]
                gap = abs(rate - other) if not ratio else 1.0 - other / rate if rate > 0.0 else 0.0
                if gap > worst:
                    worst, farthest, its = gap, b, i
            if worst < best:
                best, found = worst, (a, j, farthest, its)
    return found
