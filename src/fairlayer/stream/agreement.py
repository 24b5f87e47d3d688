"""How closely decisions follow the raw outputs: what they still say about people, apart from who is in which group.

Early in a stream there is little that could make up for a gap, so decisions are drawn together; later ones may differ
as the raw outputs do. The correlation of both says how much of that is left, without knowing what came true.
"""

from __future__ import annotations

import math

from fairlayer.compiled import compiled
from fairlayer.stream.cell_sums import RAW


@compiled
def note_raw(raw, value, cell, sums, moments):
    """Enter raw outputs into the sums of their cells, and both into the running moments.

    moments: count, means of raw outputs and of decisions, and sums of their squared deviations and of the products.
    """
    for i in range(raw.size):
        sums[cell[i], RAW] += raw[i]
        moments[0] += 1.0
        step, other = raw[i] - moments[1], value[i] - moments[2]
        moments[1] += step / moments[0]
        moments[2] += other / moments[0]
        moments[3] += step * (raw[i] - moments[1])
        moments[4] += other * (value[i] - moments[2])
        moments[5] += step * (value[i] - moments[2])


def correlation(moments: list[float]) -> float | None:
    """Of raw outputs and decisions; None where either are all alike, or nearly."""
    count, _, _, raw, decided, both = moments
    if count < 2 or raw <= 0.0 or decided <= 1e-12 * raw:
        return None
    return min(max(both / math.sqrt(raw) / math.sqrt(decided), -1.0), 1.0)
