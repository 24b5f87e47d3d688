"""The figure: time of forward+backward against batch size, a line per peer."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

from peers.catalogue import FAIRLAYER, PEERS
from problems import Case

matplotlib.use("Agg")

# Okabe and Ito's palette, told apart with any kind of colour vision; peers that share an adapter share a
# colour and differ by line and marker, so that the figure can also be read in grey.
COLOURS = {
    "fairlayer_layer": "#000000",
    "fairness_training": "#D55E00",
    "cvxpylayers_once": "#0072B2",
    "moreau_direct": "#56B4E9",
    "qpth_dense": "#E69F00",
    "proxsuite_dense": "#009E73",
    "pinet_layer": "#CC79A7",
    "jaxopt_boxosqp": "#7A6A00",
    "qpax_dense": "#6E4B9E",
}
FLOOR = "#9A9A9A"
STYLES = (("-", "o"), ("--", "s"), (":", "^"))


def draw(path: Path, rows: Sequence[dict[str, Any]], case: Case) -> None:
    """Draw the rows of one case and save the figure."""
    figure, axes = plt.subplots(figsize=(10, 6.2), layout="constrained")
    drawn = []
    used: Counter[str] = Counter()
    for peer in PEERS:
        family = "floor" if peer.floor else peer.adapter
        line_style, marker = STYLES[used[family] % len(STYLES)]
        used[family] += 1
        points = sorted((row["n"], row["forward_backward_ms"]) for row in rows if _belongs(row, peer.name, case))
        if not points:
            continue
        ours = peer.name.startswith(FAIRLAYER)
        (line,) = axes.plot(
            *zip(*points, strict=True),
            line_style,
            marker=marker,
            color=FLOOR if peer.floor else COLOURS[peer.adapter],
            linewidth=3 if ours else 1.6,
            markersize=7 if ours else 5,
            label=peer.name,
            zorder=3 if ours else 2,
        )
        drawn.append((points[-1], line))
    axes.set(xscale="log", yscale="log", xlabel="batch size n", ylabel="forward + backward, ms")
    box = "in the box [0, 1]" if case.box else "without a box"
    rows_text = f"{case.k} attributes, gaps at most {case.tolerance:g}"
    axes.set_title(f"Fair projection: {rows_text}, {box}, new groups each call", loc="left", fontsize=11)
    axes.grid(which="major", color="#DDDDDD", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    # The legend in the order of the lines' right ends, slowest on top.
    handles = [line for _, line in sorted(drawn, key=lambda item: -item[0][1])]
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=9)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def _belongs(row: dict[str, Any], name: str, case: Case) -> bool:
    return (
        row["peer"] == name and (row["k"], row["box"]) == (case.k, case.box) and row["forward_backward_ms"] is not None
    )
