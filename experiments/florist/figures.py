"""Panels of curves as one SVG drawing, without script; curves that coincide still show, each thinner than the one below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from vfl_node.report.charts import AxisScale, ticks

WIDTH, HEIGHT, LINE = 400, 290, 18
"""Size of each panel, and height of a line of the key."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c564b")
"""Told apart by people who do not see all colours (Okabe and Ito 2008, but for the last)."""

GREY = "#6b7280"


@dataclass(frozen=True)
class Curve:
    """Points (x, y, half the height of their whisker), x ascending; ``baseline``: grey and dashed."""

    label: str
    points: Sequence[tuple[float, float, float]]
    baseline: bool = False


@dataclass(frozen=True)
class Panel:
    """What is drawn on one pair of axes; whiskers end at the ``limits`` of what can be."""

    title: str
    x_label: str
    curves: Sequence[Curve]
    limits: tuple[float, float] = (-math.inf, math.inf)

    def ends(self, point: tuple[float, float, float]) -> tuple[float, float]:
        """Ends of a whisker, the lower first."""
        _, y, whisker = point
        return max(y - whisker, self.limits[0]), min(y + whisker, self.limits[1])


def drawing(columns: Sequence[Sequence[Panel]]) -> str:
    """Panels in columns, whose panels have the same curves, with one key below each."""
    deepest = max(len(column) for column in columns)
    keys = max(len(column[0].curves) for column in columns)
    width, height = WIDTH * len(columns), HEIGHT * deepest + LINE * keys + 12
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width=str(width))
    ET.SubElement(svg, "style").text = "text { font: 13px system-ui, sans-serif; fill: #1c2127 } polyline { fill: none }"
    ET.SubElement(svg, "rect", width=str(width), height=str(height), fill="#ffffff")
    for across, column in enumerate(columns):
        for down, panel in enumerate(column):
            _panel(svg, WIDTH * across, HEIGHT * down, panel)
        for place, curve in enumerate(column[0].curves):
            x, y = WIDTH * across + 56.0, HEIGHT * deepest + LINE * place + 10.0
            _line(svg, [(x, y - 4), (x + 30, y - 4)], _style(column[0].curves, place))
            _text(svg, x + 38, y, curve.label)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _panel(svg: ET.Element, left: float, top: float, panel: Panel) -> None:
    points = [point for curve in panel.curves for point in curve.points]
    ends = [panel.ends(point) for point in points]
    across = ticks(min(point[0] for point in points), max(point[0] for point in points))
    levels = ticks(min(low for low, _ in ends), max(high for _, high in ends))
    x = AxisScale(across[0], across[-1], left + 56, left + WIDTH - 22)
    y = AxisScale(levels[0], levels[-1], top + HEIGHT - 44, top + 30)
    for level in levels:
        ET.SubElement(svg, "path", d=f"M{x.start - 4:.1f} {y(level):.1f}H{x.end:.1f}", stroke="#e3e6ea")
        _text(svg, x.start - 9, y(level) + 4, f"{level:g}", "end")
    for tick in across:
        _text(svg, x(tick), y.start + 18, f"{tick:g}", "middle")
    _text(svg, x.start, top + 18, panel.title)
    _text(svg, (x.start + x.end) / 2, y.start + 36, panel.x_label, "middle")
    for place, curve in enumerate(panel.curves):
        style = _style(panel.curves, place)
        if len(curve.points) > 1:
            _line(svg, [(x(a), y(b)) for a, b, _ in curve.points], style)
        for point in curve.points:
            place_x, (low, high) = f"{x(point[0]):.1f}", panel.ends(point)
            whisker = {"x1": place_x, "x2": place_x, "y1": f"{y(low):.1f}", "y2": f"{y(high):.1f}", "stroke": style["stroke"]}
            ET.SubElement(svg, "line", whisker)
            ET.SubElement(svg, "circle", cx=place_x, cy=f"{y(point[1]):.1f}", r="2.6", fill=style["stroke"])


def _style(curves: Sequence[Curve], place: int) -> dict[str, str]:
    if curves[place].baseline:
        before = sum(curve.baseline for curve in curves[:place])
        return {"stroke": GREY, "stroke-width": "1.8", "stroke-dasharray": ("7 4", "2 3")[before % 2]}
    return {"stroke": COLOURS[place % len(COLOURS)], "stroke-width": f"{max(1.4, 4.2 - 0.5 * place):.1f}"}


def _line(svg: ET.Element, points: Sequence[tuple[float, float]], style: dict[str, str]) -> None:
    ET.SubElement(svg, "polyline", {"points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points)} | style)


def _text(svg: ET.Element, x: float, y: float, text: str, anchor: str = "start") -> None:
    ET.SubElement(svg, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}).text = text
