"""What a leader of thresholds remembers of raw scores: how many of each cell are how far from the threshold.

Distances are counted on both sides in bins whose width is a quarter of a power of two, so that they are finer the
nearer they are: what is moved across the threshold is what lies near it. Old scores count less and less: at `MOST` in a
cell, all its counts are halved.
"""

from __future__ import annotations

import math

import numpy as np

from fairlayer.compiled import compiled

BINS = 128  # on either side
PER_OCTAVE = 4
DEPTH = 16  # octaves below the unit, in which bins end; about as many are above it
MOST = 8192.0  # scores of a cell after which their weight is halved
ABOVE, BELOW = 0, 1


@compiled(small=True)
def _bin_of(distance, unit):
    """The bin of a distance, and how far into it the distance lies, from 0 to 1."""
    scaled = distance / unit
    if scaled < 2.0**-DEPTH:
        return 0, scaled * 2.0**DEPTH
    mantissa, exponent = math.frexp(scaled)
    place = (2.0 * mantissa - 1.0) * PER_OCTAVE
    part = int(place)
    at = 1 + PER_OCTAVE * (exponent - 1 + DEPTH) + part
    if at >= BINS:
        return BINS - 1, 1.0
    return at, place - part


@compiled
def note_scores(raw, cell, threshold, near, weight, unit):
    """Count scores. unit: of distances, 0 before the first; returned."""
    for i in range(raw.size):
        c, distance = cell[i], float(raw[i]) - threshold
        if unit == 0.0 and distance != 0.0:
            _, exponent = math.frexp(abs(distance))
            unit = 2.0**exponent
        at = 0
        if unit > 0.0:
            at, _ = _bin_of(abs(distance), unit)
        near[c, ABOVE if distance >= 0.0 else BELOW, at] += 1.0
        weight[c] += 1.0
        if weight[c] > MOST:
            fade(near, weight, c, 0.5)
    return unit


@compiled
def fade(near, weight, c, share):
    """Let what is known of a cell count less."""
    near[c] *= share
    weight[c] *= share


@compiled
def cumulated(near, weight):
    """(G, 2, BINS + 1) the share of a cell's scores on each side that are nearer than the start of each bin."""
    G = weight.size
    shares = np.zeros((G, 2, BINS + 1))
    for c in range(G):
        for side in range(2):
            for b in range(BINS):
                shares[c, side, b + 1] = shares[c, side, b] + near[c, side, b] / max(weight[c], 1e-300)
    return shares


@compiled
def share_above(shares, c, x, unit):
    """The share of a cell's scores that are at least x above the threshold, or less than -x below it."""
    side = ABOVE if x > 0.0 else BELOW
    at, part = _bin_of(abs(x), unit)
    nearer = shares[c, side, at] + part * (shares[c, side, at + 1] - shares[c, side, at])
    return shares[c, ABOVE, BINS] + (nearer if side == BELOW else -nearer)
