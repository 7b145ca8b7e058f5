"""Charts as inline SVG, so that a report needs no script, font or other file.

Colours and fonts come from the page's style sheet by class name, which is how one drawing
serves light, dark and paper. Each drawing carries a description for readers
who cannot see it, and marks carry a tooltip. Elements are built as a tree: text and
attributes are escaped by construction.
Numbers are rounded as a browser rounds them, halves away from zero: :mod:`vfl_node.report.curves` says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from xml.etree import ElementTree as ET

from markupsafe import Markup

from vfl_node.training.words import Bars

WIDTH = 380
"""Width of every drawing, in its own units: about a telephone's screen or half a page, so that its text stays legible."""

TEXT = 13
"""Font size, in the same units."""

LABEL_LENGTH = 36
"""Longest label drawn whole; the description always has it in full."""

SIZES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
"""Units of large figures."""

TENTH = Decimal("0.1")


@dataclass(frozen=True)
class AxisScale:
    """A linear map from values ``low … high`` to positions ``start … end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The position of ``value``."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(frozen=True)
class Mark:
    """A value with its interval, one line of a :func:`dot_chart`; ``style`` is a class of the style sheet."""

    label: str
    value: float
    low: float
    high: float
    style: str


@dataclass(frozen=True)
class CalibrationChart:
    """One model's curve in a :func:`calibration_chart`: (mean prediction, share of positives, rows) of at least one group."""

    label: str
    points: Sequence[tuple[float, float, int]]
    style: str


@dataclass(frozen=True)
class Bar:
    """A bar from ``start`` to ``end`` in the units of its chart."""

    start: float
    end: float
    style: str


@dataclass(frozen=True)
class Row:
    """A line of a :func:`bar_chart`: words to the left, figures to the right, its bars below."""

    label: str
    figures: str
    bars: tuple[Bar, ...]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers (multiples of 1, 2 or 5 times a power of ten), about ``about`` of them, that enclose ``low … high``."""
    largest = max(abs(low), abs(high))
    span = high - low
    if span <= 1e-9 * max(largest, 1e-9):  # nearer than a label's digits can tell
        span = largest if largest > 1e-9 else 1.0
    raw = span / about
    exponent = Decimal(raw).adjusted()
    power = float(f"1e{exponent}")
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, max(0, -exponent)) for index in range(first, max(last, first + 1) + 1)]


def dot_chart(
    name: str, title: str, marks: Sequence[Mark], *, most: float = math.inf, figure: Callable[[float], str] = "{:.3f}".format
) -> Markup:
    """Values with their intervals on one axis, a line each; ``most`` is the largest value that has a meaning.

    ``figure`` writes a value.
    """
    parts = [
        f"{m.label} {figure(m.value)}" + (f" (interval {figure(m.low)} to {figure(m.high)})" if m.low < m.high else "")
        for m in marks
    ]
    height = 26 * len(marks) + 34
    svg = _drawing(name, title, "; ".join(parts) + ".", height)
    low, high = min(m.low for m in marks), max(m.high for m in marks)
    room = 0.12 * (high - low) or 0.05 * abs(high) or 0.05
    x = AxisScale(low - room, high + room, 80, WIDTH - 52)
    floor = height - 26
    for tick in ticks(x.low, x.high):
        if x.low <= tick <= min(x.high, most):
            add_element(svg, "line", class_="grid", x1=x(tick), x2=x(tick), y1=2.0, y2=float(floor))
            add_text(svg, x(tick), floor + 17, write_value(tick, 6), "tick middle")
    for index, mark in enumerate(marks):
        y = 15.0 + 26 * index
        add_text(svg, 0, y + 4, mark.label, "label")
        if mark.low < mark.high:
            add_element(svg, "line", class_=f"whisker {mark.style}", x1=x(mark.low), x2=x(mark.high), y1=y, y2=y)
        dot = add_element(svg, "circle", class_=f"dot {mark.style}", cx=x(mark.value), cy=y, r=5.0)
        add_element(dot, "title", parts[index])
        add_text(svg, WIDTH - 40, y + 4, figure(mark.value), "value")
    return to_markup(svg)


def calibration_chart(name: str, title: str, curves: Sequence[CalibrationChart]) -> Markup:
    """Observed frequency against mean predicted probability, a curve each; a point's area grows with its rows."""
    parts = [
        f"{curve.label}: {len(curve.points)} groups of rows, the largest gap between prediction and frequency is "
        f"{max(abs(confidence - frequency) for confidence, frequency, _ in curve.points):.2f}"
        for curve in curves
    ]
    svg = _drawing(name, title, "; ".join(parts) + ".", 360)
    words = "predicted probability", "share of positives among them"
    _draw_calibration(svg, curves, [0, 0.2, 0.4, 0.6, 0.8, 1], words, ("predicted", "observed"), "{:.3f}".format)
    return to_markup(svg)


def agreement_chart(name: str, title: str, curves: Sequence[CalibrationChart], *, figure: Callable[[float], str]) -> Markup:
    """Mean actual number against mean predicted one, a curve each; a point's area grows with its rows.

    ``figure`` writes a number.
    """
    parts = [
        f"{curve.label}: {len(curve.points)} groups of rows, predicted from {figure(curve.points[0][0])} to "
        f"{figure(curve.points[-1][0])}, actual from {figure(curve.points[0][1])} to {figure(curve.points[-1][1])}"
        for curve in curves
    ]
    svg = _drawing(name, title, "; ".join(parts) + ".", 360)
    values = [value for curve in curves for a, b, _ in curve.points for value in (a, b)]
    _draw_calibration(
        svg, curves, ticks(min(values), max(values)), ("predicted", "actual mean"), ("predicted", "actual"), figure
    )
    return to_markup(svg)


def _draw_calibration(
    svg: ET.Element,
    curves: Sequence[CalibrationChart],
    levels: Sequence[float],
    axes: tuple[str, str],
    words: tuple[str, str],
    figure: Callable[[float], str],
) -> None:
    """Points of ``curves`` on two axes of the same ``levels``, named by ``axes``, and the diagonal."""
    largest = max(count for curve in curves for *_, count in curve.points)
    x, y = AxisScale(levels[0], levels[-1], 48, WIDTH - 20), AxisScale(levels[0], levels[-1], 318, 30)
    _horizontal_grid(svg, levels, y, x.start, x.end)
    for tick in levels:
        add_text(svg, x(tick), 337, write_value(tick, 6), "tick middle")
    add_text(svg, 0, 14, axes[1], "axis")
    add_text(svg, (x.start + x.end) / 2, 356, axes[0], "axis middle")
    add_element(svg, "line", class_="ideal", x1=x.start, y1=y.start, x2=x.end, y2=y.end)
    for curve in curves:
        if len(curve.points) > 1:
            line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b, _ in curve.points)
            add_element(svg, "polyline", class_=f"curve thin {curve.style}", points=line)
        for said, actual, count in curve.points:
            radius = 2.5 + 4 * math.sqrt(count / largest)
            dot = add_element(svg, "circle", class_=f"dot {curve.style}", cx=x(said), cy=y(actual), r=radius)
            add_element(dot, "title", f"{curve.label}, {count} rows: {words[0]} {figure(said)}, {words[1]} {figure(actual)}")


def bar_chart(name: str, title: str, rows: Sequence[Row], *, guides: Sequence[float] = (), reach: float = 0) -> Markup:
    """Horizontal bars from a common zero; ``guides`` are values marked by a line through all rows.

    With ``reach`` the scale is from there below 0 to there above it.
    """
    thickness = 12
    heights = [26 + (thickness + 3) * len(row.bars) + 8 for row in rows]
    svg = _drawing(name, title, "; ".join(f"{row.label}: {row.figures}" for row in rows) + ".", sum(heights))
    x = AxisScale(-reach, reach or max((bar.end for row in rows for bar in row.bars), default=0) or 1, 0, WIDTH)
    for guide in guides:
        add_element(svg, "line", class_="guide", x1=x(guide), x2=x(guide), y1=24.0, y2=sum(heights) - 8.0)
    top = 0.0
    for row, height in zip(rows, heights, strict=True):
        label = row.label if len(row.label) <= LABEL_LENGTH else row.label[: LABEL_LENGTH - 1] + "…"
        add_text(svg, 0, top + 17, label, "label")
        add_text(svg, WIDTH, top + 17, row.figures, "value end")
        for index, bar in enumerate(row.bars):
            y = top + 26 + index * (thickness + 3)
            add_element(svg, "rect", class_="track", x=0.0, y=y, width=float(WIDTH), height=thickness, rx=3)
            if bar.end > bar.start:
                width = max(2.0, x(bar.end) - x(bar.start))
                start = min(x(bar.start), WIDTH - width)
                add_element(svg, "rect", class_=f"bar {bar.style}", x=start, y=y, width=width, height=thickness, rx=3)
        top += height
    return to_markup(svg)


def _drawing(name: str, title: str, description: str, height: int) -> ET.Element:
    svg = ET.Element(
        "svg",
        {
            "viewBox": f"0 0 {WIDTH} {height}",
            "width": str(WIDTH),
            "height": str(height),
            "font-size": str(TEXT),
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-text",
        },
    )
    add_element(svg, "title", title, id=f"{name}-title")
    add_element(svg, "desc", description, id=f"{name}-text")
    return svg


def _horizontal_grid(svg: ET.Element, levels: Sequence[float], y: AxisScale, left: float, right: float) -> None:
    for level in levels:
        add_element(svg, "line", class_="base" if level == levels[0] else "grid", x1=left, x2=right, y1=y(level), y2=y(level))
        add_text(svg, left - 10, y(level) + 4, write_value(level, 6), "tick end")


def write_value(value: float, digits: int = 3) -> str:
    """A value in at most so many digits, short enough to stand beside an axis: 0.123, 12.3k, 1.23e-7."""
    size, sign = next(((size, sign) for size, sign in SIZES if 10 * size <= abs(value) < 1e13), (1.0, ""))
    short = float(Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal_from_float(value / size))
    return f"{short + 0.0:.13g}".replace("e-0", "e-") + sign


def write_place(value: float) -> str:
    """A coordinate, to a tenth of a unit."""
    return f"{float(Decimal(value).quantize(TENTH, ROUND_HALF_UP)) + 0.0:g}"


def add_text(parent: ET.Element, x: float | str, y: float, text: str, style: str) -> ET.Element:
    """A text that stands at ``x`` and ``y``; ``style`` is classes of the style sheet."""
    return add_element(parent, "text", text, class_=style, x=x, y=float(y))


def add_element(parent: ET.Element, tag: str, text: str = "", **attributes: float | str) -> ET.Element:
    """A child; an underscore in the name of an attribute is a hyphen, and one at its end is nothing."""
    written = {
        key.rstrip("_").replace("_", "-"): write_place(value) if isinstance(value, float) else str(value)
        for key, value in attributes.items()
    }
    child = ET.SubElement(parent, tag, written)
    child.text = text or None
    return child


def to_markup(element: ET.Element) -> Markup:
    """An element as a page holds it."""
    return Markup(ET.tostring(element, encoding="unicode"))  # noqa: S704 - the serialiser has escaped it


def draw_bars(drawn: Sequence[Bars]) -> dict[str, Markup]:
    """Title → numbers on both sides of 0, all on one scale."""
    reach = max((abs(value) for bars in drawn for _, value, _ in bars.values), default=0.0) or 1.0
    charted = {}
    for number, bars in enumerate(drawn):
        rows = [
            Row(label, f"{beside} {value:+.2f}".strip(), (Bar(min(0, value), max(0, value), "first"),))
            for label, value, beside in bars.values
        ]
        charted[bars.title] = bar_chart(f"bars-{number}", bars.title, rows, guides=(0,), reach=reach)
    return charted
