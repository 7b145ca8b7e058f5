"""Curves by epoch, drawn twice: here for a report, and by ``web/static/charts.js`` on the page of a job while it runs.

Both write the same markup for the same values, so a curve reads the same in both, and rules of the style sheet exist once;
tests/test_curves.py holds both to the same file. Across, coordinates are per cent: a chart fits any width, and its letters
keep their size. A browser rounds halves away from zero, and so does this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from markupsafe import Markup

from vfl_node.report.charts import AxisScale, add_element, add_text, ticks, to_markup, write_place, write_value

MOST_DOTS = 20
"""Most points of a line that each have a dot; of a longer one only the newest has."""

LETTERS = 13
"""Height of a line of text."""


@dataclass(frozen=True)
class ChartLine:
    """One of the curves of a :func:`line_chart`: (number, value) of ascending number, from 1, at least one."""

    name: str
    points: Sequence[tuple[int, float]]
    style: str


def line_chart(
    name: str,
    title: str,
    lines: Sequence[ChartLine],
    *,
    unit: str,
    last: int,
    reach: Sequence[float] = (),
    chance: float | None = None,
    limit: float | None = None,
    height: int = 140,
) -> Markup:
    """Curves over numbers of a ``unit`` from 1 to ``last``, the newest value beside each, and a key above several.

    The vertical axis takes in the values ``reach``, too; ``chance`` and ``limit`` are values with a line across.
    """
    values = [*reach, *(value for line in lines for _, value in line.points)]
    values += [value for value in (chance, limit) if value is not None]
    levels = ticks(min(values), max(values))
    x, y = AxisScale(1, max(last, 2), 0, 100), AxisScale(levels[0], levels[-1], height, 0)

    whole = ET.Element("div")
    if len(lines) > 1:
        _add_legend(whole, lines)
    label = f"{title} by {unit}: {'; '.join(_describe(line) for line in lines)}."
    figure = add_element(whole, "figure", class_="chart", id=f"{name}-curve", role="img", aria_label=label)
    svg = add_element(figure, "svg", height=height + 24)
    size = {"viewBox": f"0 0 100 {height}", "preserveAspectRatio": "none", "width": "100%", "height": str(height)}
    plane = add_element(svg, "svg", **size, overflow="visible")

    add_element(plane, "path", class_="grid", d="".join(f"M0 {write_place(y(level))}H100" for level in levels))
    for level in levels:
        add_text(svg, -7, y(level) + 4, write_value(level, 6), "tick end")
    add_text(svg, 0, height + 18, f"{unit} 1", "tick")
    for tick in ticks(1, last, 4):
        if tick % 1 == 0 and tick <= last and 4 * (tick - 1) >= last - 1 > 0:  # clear of the first
            add_text(svg, _percent(x, tick), height + 18, f"{tick:,.0f}", "tick middle")
    marks = [(*line.points[-1], write_value(line.points[-1][1]), f"value {line.style}") for line in lines]
    if chance is not None:
        add_element(plane, "path", class_="guide", d=f"M0 {write_place(y(chance))}H100")
        marks.append((max(last, 2), chance, "chance", "tick"))
    if limit is not None:
        add_element(plane, "path", class_="guide bound", d=f"M0 {write_place(y(limit))}H100")
        side = LETTERS if y(limit) < LETTERS else -5  # below the line where it is the top one
        add_text(svg, 4, y(limit) + side, f"limit {write_value(limit)}", "tick limit")

    for line in lines:
        if len(line.points) > 1:
            track = "L".join(f"{write_place(x(number))} {write_place(y(value))}" for number, value in line.points)
            add_element(plane, "path", class_=f"curve {line.style}", d=f"M{track}")
        for number, value in line.points if len(line.points) <= MOST_DOTS else line.points[-1:]:
            dot = add_element(svg, "circle", class_=f"dot {line.style}", cx=_percent(x, number), cy=y(value), r=3.5)
            add_element(dot, "title", f"{line.name}, {unit} {number:,}: {write_value(value)}")
    place = -math.inf
    for rank, (number, value, words, style) in enumerate(sorted(marks, key=lambda mark: -mark[1]), 1):
        lowest = height + 4 - (len(marks) - rank) * LETTERS
        place = min(max(y(value) + 4, place + LETTERS), lowest)  # none upon another, none below the axis
        add_text(svg, _percent(x, number), place, words, style).set("dx", "8")
    return Markup("").join(to_markup(part) for part in whole)


def _add_legend(whole: ET.Element, lines: Sequence[ChartLine]) -> None:
    legend = add_element(whole, "div", class_="legend")
    for line in lines:
        key = add_element(add_element(legend, "span"), "svg", aria_hidden="true")
        add_element(key, "line", class_=f"curve {line.style}", x1=0, x2=18, y1=5, y2=5)
        key.tail = line.name


def _describe(line: ChartLine) -> str:
    """The first and the newest value, in words."""
    first, newest = (f"{write_value(value)} at {number:,}" for number, value in (line.points[0], line.points[-1]))
    return f"{line.name} from {first} to {newest}" if len(line.points) > 1 else f"{line.name} {newest}"


def _percent(x: AxisScale, number: float) -> str:
    return f"{write_place(x(number))}%"
