from __future__ import annotations

import math
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfl_node.report.charts import (
    AxisScale,
    Bar,
    CalibrationChart,
    Mark,
    Row,
    bar_chart,
    calibration_chart,
    dot_chart,
    ticks,
)

HOSTILE = '</text><script>alert("1")</script>&\' onload=x'

DRAWINGS = {
    "dots": lambda text: dot_chart(
        "a", text, [Mark(text, 0.9, 0.8, 0.95, "joint"), Mark(text, 0.7, 0.7, 0.7, "alone")], most=1
    ),
    "one dot": lambda text: dot_chart("a", text, [Mark(text, 0.0, 0.0, 0.0, "joint")]),
    "calibration": lambda text: calibration_chart(
        "a",
        text,
        [
            CalibrationChart(text, [(0.1, 0.0, 5), (0.5, 0.6, 5), (0.9, 1.0, 7)], "joint"),
            CalibrationChart(text, [(0.2, 0.1, 17)], "alone"),
        ],
    ),
    "bars": lambda text: bar_chart("a", text, [Row(text, text, (Bar(0, 5, "first"), Bar(2, 9, "second")))], guides=[2]),
    "empty bars": lambda text: bar_chart("a", text, [Row(text, "0", (Bar(0, 0, "first"),))]),
}


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_a_drawing_is_wellformed_named_described_and_escaped(draw) -> None:
    svg = ET.fromstring(draw(HOSTILE))
    assert svg.tag == "svg"
    assert svg.get("role") == "img"
    assert svg.get("aria-labelledby") == "a-title a-text"
    assert svg.find("title").text == HOSTILE
    assert svg.find("desc").text
    assert {element.tag for element in svg.iter()} <= {"svg", "title", "desc", "line", "text", "polyline", "circle", "rect"}
    assert not {name for element in svg.iter() for name in element.attrib if name.startswith("on") or "href" in name}


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_every_coordinate_is_finite_and_inside(draw) -> None:
    svg = ET.fromstring(draw("x"))
    _, _, width, height = map(float, svg.get("viewBox").split())
    for element in svg.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert 0 <= float(element.get(name, "0")) <= width
        for name in ("y", "y1", "y2", "cy"):
            assert 0 <= float(element.get(name, "0")) <= height
        assert float(element.get("width", "0")) >= 0
        for point in element.get("points", "").split():
            a, b = map(float, point.split(","))
            assert 0 <= a <= width
            assert 0 <= b <= height


def test_each_calibration_curve_has_its_own_style_points_and_words() -> None:
    svg = ET.fromstring(
        calibration_chart(
            "a",
            "calibration",
            [
                CalibrationChart("federated", [(0.1, 0.0, 5), (0.9, 1.0, 5)], "joint"),
                CalibrationChart("clinic alone", [(0.2, 0.5, 4), (0.8, 0.7, 6), (0.9, 0.9, 5)], "alone"),
            ],
        )
    )
    assert [line.get("class") for line in svg.iter("polyline")] == ["curve thin joint", "curve thin alone"]
    assert [dot.get("class") for dot in svg.iter("circle")] == ["dot joint"] * 2 + ["dot alone"] * 3
    assert svg.find("desc").text == (
        "federated: 2 groups of rows, the largest gap between prediction and frequency is 0.10; "
        "clinic alone: 3 groups of rows, the largest gap between prediction and frequency is 0.30."
    )


def test_bars_are_to_scale_and_show_where_sets_overlap() -> None:
    svg = ET.fromstring(
        bar_chart("a", "sets", [Row("a", "60", (Bar(0, 60, "first"),)), Row("b", "70", (Bar(30, 100, "second"),))])
    )
    first, second = (element for element in svg.iter("rect") if "bar" in element.get("class"))
    assert float(first.get("width")) / float(second.get("width")) == pytest.approx(60 / 70, abs=1e-3)
    assert float(second.get("x")) == pytest.approx(0.3 * 380)


def test_a_long_label_is_cut_in_the_drawing_and_whole_in_the_description() -> None:
    name = "a" * 63
    svg = ET.fromstring(bar_chart("a", "sets", [Row(name, "1", (Bar(0, 1, "first"),))]))
    assert name in svg.find("desc").text
    assert max(len(text.text) for text in svg.iter("text")) < 40


def test_no_tick_beyond_what_has_a_meaning() -> None:
    marks = [Mark("federated", 0.99, 0.97, 1.01, "joint")]
    texts = [
        text.text for text in ET.fromstring(dot_chart("a", "AUC", marks, most=1)).iter("text") if "tick" in text.get("class")
    ]
    assert texts
    assert all(float(text) <= 1 for text in texts)
    assert "1.01" in [text.text for text in ET.fromstring(dot_chart("a", "AUC", marks)).iter("text")]


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.integers(2, 10))
def test_ticks_enclose_and_ascend(low: float, span: float, about: int) -> None:
    high = low + span
    found = ticks(low, high, about)
    slack = 1e-6 * max(abs(low), abs(high)) + 1e-9
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    assert all(a < b for a, b in pairwise(found))
    assert 2 <= len(found) <= about + 3
    assert all(math.isfinite(value) for value in found)


def test_scale_maps_ends_to_ends() -> None:
    scale = AxisScale(2, 4, 100, 0)
    assert [scale(2), scale(3), scale(4)] == [100, 50, 0]
