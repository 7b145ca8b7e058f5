"""Charts as inline SVG, so that a report needs no script, font or other file.

Colours and fonts come from the page's style sheet by class name, which is how one drawing
serves light, dark and paper. Each drawing carries a title and a description for readers
who cannot see it, and marks carry a tooltip. Elements are built as a tree: text and
attributes are escaped by construction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from markupsafe import Markup

WIDTH = 380
"""Width of every drawing, in its own units: about a telephone's screen or half a page, so that its text stays legible."""

TEXT = 13
"""Font size, in the same units."""

LABEL_LENGTH = 36
"""Longest label drawn whole; the description always has it in full."""


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
class LineChart:
    """One of several curves of a :func:`curves_chart`: points of ascending x, at least one."""

    label: str
    points: Sequence[tuple[float, float]]
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
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(index * step, digits) for index in range(first, max(last, first + 1) + 1)]


def line_chart(
    name: str,
    title: str,
    points: Sequence[tuple[float, float]],
    *,
    x_label: str,
    y_label: str,
    reach: Sequence[float] = (),
    second: LineChart | None = None,
) -> Markup:
    """A curve through ``points`` (at least one, x ascending), its last value beside it.

    Half as high as other drawings, so that two fit beside one. The vertical axis takes in
    the values ``reach`` too. A ``second`` curve is over the same x; the reader needs a key beside it.
    """
    (first_x, first_y), (last_x, last_y) = points[0], points[-1]
    description = f"{y_label} by {x_label}: from {first_y:.4g} at {first_x:g} to {last_y:.4g} at {last_x:g}"
    if second:
        description += f"; {second.label} from {second.points[0][1]:.4g} to {second.points[-1][1]:.4g}"
    svg = _drawing(name, title, f"{description}.", 200)
    others = [value for _, value in second.points] if second else []
    x, y = _axes(svg, 200, points, x_label=x_label, y_label=y_label, reach=[*reach, *others])
    _curve(svg, x, y, points, "curve", "dot joint", x_label)
    if second:
        _curve(svg, x, y, second.points, f"curve {second.style}", f"dot {second.style}", f"{second.label}, {x_label}")
    _text(svg, x(last_x) + 8, y(last_y) + 4, f"{last_y:.3g}", "value")
    return _to_markup(svg)


def curves_chart(
    name: str,
    title: str,
    curves: Sequence[LineChart],
    *,
    x_label: str,
    y_label: str,
    guides: Sequence[tuple[float, str]] = (),
    reach: Sequence[float] = (),
) -> Markup:
    """Several curves on the same axes; ``guides`` are named values, a line across at each. The reader needs a key beside it."""
    ends = [f"{curve.label} from {curve.points[0][1]:.3f} to {curve.points[-1][1]:.3f}" for curve in curves]
    svg = _drawing(name, title, f"{y_label} by {x_label}: {'; '.join(ends)}.", 260)
    points = sorted(point for curve in curves for point in curve.points)
    x, y = _axes(svg, 260, points, x_label=x_label, y_label=y_label, reach=[*reach, *(value for value, _ in guides)])
    for value, label in guides:
        _add(svg, "line", class_="guide", x1=48.0, x2=WIDTH - 20.0, y1=y(value), y2=y(value))
        _text(svg, x.end + 6, y(value) - 5, label, "tick")  # right of every curve
    for curve in curves:
        _curve(svg, x, y, curve.points, f"curve {curve.style}", f"dot {curve.style}", f"{curve.label}, {x_label}")
    return _to_markup(svg)


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
            _add(svg, "line", class_="grid", x1=x(tick), x2=x(tick), y1=2.0, y2=float(floor))
            _text(svg, x(tick), floor + 17, _short(tick), "tick middle")
    for index, mark in enumerate(marks):
        y = 15.0 + 26 * index
        _text(svg, 0, y + 4, mark.label, "label")
        if mark.low < mark.high:
            _add(svg, "line", class_=f"whisker {mark.style}", x1=x(mark.low), x2=x(mark.high), y1=y, y2=y)
        dot = _add(svg, "circle", class_=f"dot {mark.style}", cx=x(mark.value), cy=y, r=5.0)
        _add(dot, "title", parts[index])
        _text(svg, WIDTH - 40, y + 4, figure(mark.value), "value")
    return _to_markup(svg)


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
    return _to_markup(svg)


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
    return _to_markup(svg)


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
        _text(svg, x(tick), 337, _short(tick), "tick middle")
    _text(svg, 0, 14, axes[1], "axis")
    _text(svg, (x.start + x.end) / 2, 356, axes[0], "axis middle")
    _add(svg, "line", class_="ideal", x1=x.start, y1=y.start, x2=x.end, y2=y.end)
    for curve in curves:
        if len(curve.points) > 1:
            line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b, _ in curve.points)
            _add(svg, "polyline", class_=f"curve thin {curve.style}", points=line)
        for said, actual, count in curve.points:
            radius = 2.5 + 4 * math.sqrt(count / largest)
            dot = _add(svg, "circle", class_=f"dot {curve.style}", cx=x(said), cy=y(actual), r=radius)
            _add(dot, "title", f"{curve.label}, {count} rows: {words[0]} {figure(said)}, {words[1]} {figure(actual)}")


def bar_chart(name: str, title: str, rows: Sequence[Row], *, guides: Sequence[float] = ()) -> Markup:
    """Horizontal bars from a common zero; ``guides`` are values marked by a line through all rows."""
    thickness = 12
    heights = [26 + (thickness + 3) * len(row.bars) + 8 for row in rows]
    svg = _drawing(name, title, "; ".join(f"{row.label}: {row.figures}" for row in rows) + ".", sum(heights))
    x = AxisScale(0, max((bar.end for row in rows for bar in row.bars), default=0) or 1, 0, WIDTH)
    for guide in guides:
        _add(svg, "line", class_="guide", x1=x(guide), x2=x(guide), y1=24.0, y2=sum(heights) - 8.0)
    top = 0.0
    for row, height in zip(rows, heights, strict=True):
        label = row.label if len(row.label) <= LABEL_LENGTH else row.label[: LABEL_LENGTH - 1] + "…"
        _text(svg, 0, top + 17, label, "label")
        _text(svg, WIDTH, top + 17, row.figures, "value end")
        for index, bar in enumerate(row.bars):
            y = top + 26 + index * (thickness + 3)
            _add(svg, "rect", class_="track", x=0.0, y=y, width=float(WIDTH), height=thickness, rx=3)
            if bar.end > bar.start:
                width = max(2.0, x(bar.end) - x(bar.start))
                start = min(x(bar.start), WIDTH - width)
                _add(svg, "rect", class_=f"bar {bar.style}", x=start, y=y, width=width, height=thickness, rx=3)
        top += height
    return _to_markup(svg)


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
    _add(svg, "title", title, id=f"{name}-title")
    _add(svg, "desc", description, id=f"{name}-text")
    return svg


def _axes(
    svg: ET.Element, height: int, points: Sequence[tuple[float, float]], *, x_label: str, y_label: str, reach: Sequence[float]
) -> tuple[AxisScale, AxisScale]:
    """Axes for ``points``, of ascending x; the vertical one takes in the values ``reach`` too."""
    first_x, last_x = points[0][0], points[-1][0]
    values = [*reach, *(y for _, y in points)]
    levels = ticks(min(values), max(values), height // 60 - 1)
    x = AxisScale(first_x, last_x if last_x > first_x else first_x + 1, 58, WIDTH - 56)
    y = AxisScale(levels[0], levels[-1], height - 42, 30)
    _horizontal_grid(svg, levels, y, 48, WIDTH - 20)
    for tick in ticks(first_x, last_x, 6):
        if first_x <= tick <= last_x and tick == int(tick):
            _text(svg, x(tick), height - 23, f"{tick:g}", "tick middle")
    _text(svg, 0, 14, y_label, "axis")
    _text(svg, (x.start + x.end) / 2, height - 4, x_label, "axis middle")
    return x, y


def _curve(
    svg: ET.Element, x: AxisScale, y: AxisScale, points: Sequence[tuple[float, float]], line: str, dot: str, said: str
) -> None:
    """A line through ``points``, and a dot at each, or at the first and last of many."""
    if len(points) > 1:
        _add(svg, "polyline", class_=line, points=" ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points))
    for index, (a, b) in enumerate(points):
        if len(points) <= 20 or index in (0, len(points) - 1):
            mark = _add(svg, "circle", class_=dot, cx=x(a), cy=y(b), r=3.0)
            _add(mark, "title", f"{said} {a:g}: {b:.4g}")


def _horizontal_grid(svg: ET.Element, levels: Sequence[float], y: AxisScale, left: float, right: float) -> None:
    for level in levels:
        _add(svg, "line", class_="base" if level == levels[0] else "grid", x1=left, x2=right, y1=y(level), y2=y(level))
        _text(svg, left - 10, y(level) + 4, _short(level), "tick end")


def _short(value: float) -> str:
    """A tick's value, short enough to stand beside an axis."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 10 * size <= abs(value) < 1e13:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def _text(parent: ET.Element, x: float, y: float, text: str, style: str) -> None:
    _add(parent, "text", text, class_=style, x=float(x), y=float(y))


def _add(parent: ET.Element, tag: str, text: str = "", **attributes: float | str) -> ET.Element:
    """A child element; lengths are written to a tenth of a unit."""
    written = {key.rstrip("_"): f"{value:.1f}" if isinstance(value, float) else str(value) for key, value in attributes.items()}
    child = ET.SubElement(parent, tag, written)
    child.text = text or None
    return child


def _to_markup(svg: ET.Element) -> Markup:
    return Markup(ET.tostring(svg, encoding="unicode"))  # noqa: S704 - the serialiser has escaped it
