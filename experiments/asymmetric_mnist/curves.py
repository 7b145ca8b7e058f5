"""Loss and AUC of each iteration for all ξ in one drawing; curves that coincide still show, each thinner than the one below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from vfl_node.report.charts import AxisScale, ticks

WIDTH, HEIGHT = 400, 300
"""Size of each panel."""

COLOURS = ("#c6dbf5", "#7fb2ea", "#1559b0", "#f0a04b", "#1c2127")
LINES = (14.0, 10.0, 6.5, 3.5, 1.2)
"""Widths of one curve after the other, from below; then again from the first."""


def drawing(results: Sequence[dict[str, Any]]) -> str:
    """An SVG file: a panel of losses and, where scores were in clear, one of AUCs; ``results`` as run.py keeps them."""
    panels = [("loss", "losses"), *([("AUC", "aucs")] if results[0]["aucs"][0] is not None else [])]
    width, height = len(panels) * WIDTH, HEIGHT + 48
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width=str(width))
    style = "text { font: 13px system-ui, sans-serif; fill: #1c2127 } polyline { fill: none; stroke-linejoin: round }"
    ET.SubElement(svg, "style").text = style
    ET.SubElement(svg, "rect", width=str(width), height=str(height), fill="#ffffff")
    for place, (label, key) in enumerate(panels):
        _panel(svg, place * WIDTH, label, [result[key] for result in results])
    for place, result in enumerate(results):
        x = 56 + place * (width - 60) / len(results)
        _line(svg, [(x, HEIGHT + 24), (x + 26, HEIGHT + 24)], place)
        _text(svg, x + 34, HEIGHT + 20, f"ξ = {result['xi']:g}")
        _text(svg, x + 34, HEIGHT + 37, f"m = {result['size']:,}")
    return ET.tostring(svg, encoding="unicode") + "\n"


def _panel(svg: ET.Element, left: float, label: str, curves: Sequence[Sequence[float]]) -> None:
    values = [value for curve in curves for value in curve]
    levels = ticks(min(values), max(values))
    x = AxisScale(1, max(2, len(curves[0])), left + 56, left + WIDTH - 24)
    y = AxisScale(levels[0], levels[-1], HEIGHT - 42, 30)
    for level in levels:
        start, end = x.start - 4, x.end + 4
        ET.SubElement(svg, "path", d=f"M{start:.1f} {y(level):.1f}H{end:.1f}", stroke="#dfe3e8")
        _text(svg, start - 6, y(level) + 4, f"{level:g}", "end")
    for tick in ticks(1, len(curves[0]), 6):
        if 1 <= tick <= x.high and tick == int(tick):
            _text(svg, x(tick), HEIGHT - 23, f"{tick:g}", "middle")
    _text(svg, left + 8, 16, label)
    _text(svg, (x.start + x.end) / 2, HEIGHT - 4, "iteration", "middle")
    for place, curve in enumerate(curves):
        _line(svg, [(x(iteration), y(value)) for iteration, value in enumerate(curve, 1)], place)


def _line(svg: ET.Element, points: Sequence[tuple[float, float]], place: int) -> None:
    ET.SubElement(
        svg,
        "polyline",
        {
            "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
            "stroke": COLOURS[place % len(COLOURS)],
            "stroke-width": str(LINES[place % len(LINES)]),
        },
    )


def _text(svg: ET.Element, x: float, y: float, text: str, anchor: str = "start") -> None:
    ET.SubElement(svg, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}).text = text
