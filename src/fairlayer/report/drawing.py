"""What a plot is made of: scales and marks, in percent of the plot's own box.

A plot is an SVG without a viewBox. Places are percentages and text is in pixels, so a plot fills whatever width there
is and its text keeps its size: the same page reads on a phone, on a desk and on paper. `templates/plot.html.jinja`
draws the marks; colours are the page's, by class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairlayer.audit.tables import FigureTable
from fairlayer.audit.words import count, fixed, number

Places = tuple[tuple[float, float], ...]  # (x, y) in percent
Legend = Sequence[tuple[str, Sequence["Mark"]]]  # what marks mean; each has a small box of its own
MOST_GROUPS = 12  # drawn in one chart, the largest ones; the table has more
STYLES = ("one", "two", "three", "four", "five", "six")  # of things that are told apart by colour


@dataclass(frozen=True)
class Scale:
    """From values to percent of the way from `low` to `high`, with ticks at round values."""

    low: float
    high: float
    ticks: tuple[float, ...]
    step: float

    def __call__(self, value: float) -> float:
        """Percent of the way; values beyond the ends stay at the ends, and what is not a number is none here either."""
        if math.isnan(value):
            return value
        share = (value - self.low) / (self.high - self.low)
        return round(100 * min(max(0.0, share), 1.0), 3)

    def down(self, value: float) -> float:
        """Percentages along a vertical axis, which run downwards."""
        return round(100 - self(value), 3)

    @property
    def reversed(self) -> Scale:
        """A scale that runs from `high` to `low`."""
        return replace(self, low=self.high, high=self.low)

    def label(self, tick: float) -> str:
        """A tick as text: all ticks of a scale have the same number of decimals."""
        if not 1e-4 <= self.step < 1e6:
            return number(tick)
        decimals = max(-math.floor(math.log10(self.step) + 1e-9), 0)
        return fixed(tick, decimals)


def scale(values: Iterable[float], include: Iterable[float] = (), ticks: int = 5, margin: float = 0.0) -> Scale:
    """A scale over all finite values, from round value to round value unless a margin is asked for.

    margin: room left at both ends, as a share of the range of the values; the ends are then not rounded.
    """
    finite = [float(value) for value in (*values, *include) if value is not None and math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        low, high = low - (abs(low) * 0.05 or 0.5), high + (abs(high) * 0.05 or 0.5)
    if margin:
        low, high = low - margin * (high - low), high + margin * (high - low)
    step = _round_step((high - low) / ticks)
    if not margin:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Scale(low, high, tuple(k * step for k in range(first, last + 1)), step)


def _round_step(width: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least `width`."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= width * (1 - 1e-9))


class Mark:
    """What is drawn. A mark at a place that is not a number is left out."""

    @property
    def kind(self) -> str:
        """What templates tell marks apart by."""
        return type(self).__name__.lower()

    @property
    def places(self) -> Iterable[float]:
        """All percentages that it has."""
        return [place for place in vars(self).values() if isinstance(place, float)]

    @property
    def drawable(self) -> bool:
        """Whether all its places are numbers."""
        return all(map(math.isfinite, self.places))


@dataclass(frozen=True)
class Band(Mark):
    """A filled rectangle."""

    x0: float
    x1: float
    style: str
    y0: float = 0.0
    y1: float = 100.0


@dataclass(frozen=True)
class Line(Mark):
    """A straight line."""

    x0: float
    y0: float
    x1: float
    y1: float
    style: str


@dataclass(frozen=True)
class Point(Mark):
    """A marker; `shape` is circle, square, diamond, triangle, down or plus. `text` shows on pointing at it."""

    x: float
    y: float
    shape: str
    style: str
    text: str = ""


@dataclass(frozen=True)
class Curve(Mark):
    """A line through points, filled down to the bottom where `filled`."""

    points: Places
    style: str
    filled: bool = False

    @property
    def places(self) -> Iterable[float]:
        """All percentages that it has."""
        return [place for point in self.points for place in point]

    @property
    def path(self) -> str:
        """For an SVG path."""
        path = "M" + "L".join(f"{x:g},{y:g}" for x, y in self.points)
        return f"{path}L{self.points[-1][0]:g},100L{self.points[0][0]:g},100Z" if self.filled else path


@dataclass(frozen=True)
class Row:
    """One line of a chart of rows: a label, a track with marks on the chart's horizontal scale, and the figures."""

    label: str
    marks: Sequence[Mark]
    text: str  # what the marks show, in words: read aloud, and shown on pointing
    figure: str = ""  # the main figure, at the end of the row
    note: str = ""  # a smaller second line under the label
    verdict: str = ""  # satisfied, violated or undecided


@dataclass(frozen=True)
class RowChart:
    """Rows on one horizontal scale, such as intervals by group."""

    title: str
    rows: Sequence[Row]
    across: Scale
    axis: str
    figures: str  # what the figures at the ends of the rows are
    key: Legend = ()
    lead: str = ""
    tall: bool = False


@dataclass(frozen=True)
class Panel:
    """A plot with two axes."""

    title: str
    text: str
    marks: Sequence[Mark]
    across: Scale
    up: Scale
    axis: str = ""
    key: Legend = ()
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page. What it does not have is not drawn."""

    anchor: str
    title: str
    lead: str
    charts: Sequence[RowChart] = ()
    panels: Sequence[Panel] = ()
    small: bool = False  # whether its panels are small ones, many to a line
    key: Legend = ()  # of all its charts or panels together
    tables: tuple[FigureTable, ...] = ()
    folded: tuple[FigureTable, ...] = ()  # tables that open on demand
    aside: str = ""  # a last sentence


def marker(shape: str, style: str) -> Point:
    """A marker in the middle of its box, for a legend."""
    return Point(50, 50, shape, style)


def whisker(axis: Scale, ends: tuple[float, float] | None) -> tuple[Mark, ...]:
    """An interval as a horizontal line with caps; nothing where there is none."""
    if ends is None:
        return ()
    low, high = axis(ends[0]), axis(ends[1])
    caps = (Line(x, 39.0, x, 61.0, "whisker") for x in (low, high))
    return (Line(low, 50.0, high, 50.0, "whisker"), *caps)


def upright(axis: Scale, value: float, style: str) -> Line:
    """A vertical line through the whole height."""
    return Line(axis(value), 0, axis(value), 100, style)


def line_panel(
    title: str,
    axis: str,
    paths: Mapping[str, Sequence[tuple[float, float]]],
    *,
    across: Scale | None = None,
    promised: Sequence[float] = (),
    from_zero: bool = False,
    styles: Sequence[str] = STYLES,
    text: str = "",
    note: str = "",
) -> Panel:
    """A line through the values of each name, or a point where there is only one; dashed lines at what was promised.

    from_zero: whether the vertical axis has 0 on it. text: it in words; by default where each line begins and ends.
    """
    places = [place for path in paths.values() for place in path]
    across = across or scale([x for x, _ in places], include=[0.0])
    values = [y for _, y in places]
    up = scale(values, [0.0, *promised], ticks=4) if from_zero else scale(values, ticks=4, margin=0.06)
    marks: list[Mark] = [Line(0, up.down(value), 100, up.down(value), "dashed") for value in promised]
    key: list[tuple[str, Sequence[Mark]]] = []
    words = []
    for (name, path), style in zip(paths.items(), styles, strict=False):
        if path:
            line = tuple((across(x), up.down(y)) for x, y in path)
            marks.append(Curve(line, style) if len(line) > 1 else Point(*line[0], "circle", f"mark {style}"))
            key.append((name, [Curve(((0, 50), (100, 50)), style)]))
            words.append(f"{name}: from {number(path[0][1])} to {number(path[-1][1])}")
    if promised:
        key.append(("promised", [Line(0, 50, 100, 50, "dashed")]))
    return Panel(title, text or "; ".join(words), marks, across, up, axis, key, note)


def steps(edges: Sequence[float], heights: Sequence[float], across: Scale, up: Scale) -> Places:
    """The outline of a histogram, from its edges and the height over each bin."""
    points = [(across(edges[0]), 100.0)]
    for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
        points += [(across(left), up.down(height)), (across(right), up.down(height))]
    return (*points, (across(edges[-1]), 100.0))


def largest(items: Sequence, most: int = MOST_GROUPS) -> tuple[list, str]:
    """The `most` items with the most samples, in the order they came in; and what to say of the others."""
    chosen = sorted(range(len(items)), key=lambda i: -items[i].count)[:most]
    omitted = f"The {len(chosen)} largest of {count(len(items))} groups." if len(chosen) < len(items) else ""
    return [items[i] for i in sorted(chosen)], omitted
