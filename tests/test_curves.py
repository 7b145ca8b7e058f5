"""Curves of a report and of the live page: one drawing, written by Python and by charts.js, both held to ``curves.json``.

``pytest tests/test_curves.py --record-transcripts`` writes that file anew.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from vfl_node.report.curves import ChartLine, line_chart

RECORDED = Path(__file__).with_name("curves.json")
"""Name of a case → its markup."""

CHARTS_JS = Path(__file__).parents[1] / "vfl_node" / "web" / "static" / "charts.js"
HOSTILE = '</text><script>alert("1")</script>&\' onload=x'
STYLES = ("joint", "alone", "first", "second", "third", "fourth", "fifth")


def chart(*lines: Sequence[tuple[int, float]], **changes: Any) -> dict[str, Any]:
    """What is drawn, as lineChart of charts.js takes it; ``last`` is the newest number unless ``changes`` say more."""
    named = [{"name": f"line {style}", "style": style, "points": points} for style, points in zip(STYLES, lines, strict=False)]
    last = max(points[-1][0] for points in lines)
    return {"name": "loss", "title": "Loss", "lines": named, "unit": "epoch", "last": last} | changes


CASES: dict[str, dict[str, Any]] = {
    "one point": chart([(1, 0.7)]),
    "one point of many to come": chart([(1, 0.7)], last=30),
    "500 points": chart([(n, round(3 / (n + 4), 4)) for n in range(1, 501)]),
    "ends at the same height": chart([(1, 0.2), (2, 0.5)], [(1, 0.9), (2, 0.5)], [(2, 0.5)]),
    "ends at the bottom": chart([(1, 0.9), (2, 0.2)], [(1, 0.8), (2, 0.2)], [(1, 0.7), (2, 0.21)]),
    "limit and chance": chart([(1, 0.55), (3, 0.72)], reach=[1], chance=0.5, limit=0.8, height=110),
    "a limit at the top": chart([(1, 0.5), (2, 0.9)], limit=1),
    "constant": chart([(1, 0.5), (2, 0.5), (3, 0.5)]),
    "zero": chart([(1, 0), (2, 0)]),
    "negative": chart([(1, -0.4), (2, 0.125), (3, -1.125)], reach=[0]),
    "large": chart([(1, 123456.789), (2, 9999.5), (3, 12345)], unit="iteration"),
    "tiny": chart([(1, 1.25e-9), (2, 3e-8)]),
    "beyond any meaning": chart([(1, 1.5), (2, 2.5e15)]),
    "halves": chart([(1, 0.5625), (2, 0.0625), (3, 1.125), (4, 0.4375), (5, 0.8125)], last=17),
    "hostile": chart([(1, 0.5)], [(1, 0.6)]) | {"title": HOSTILE, "unit": HOSTILE},
}


def draw(chart: Mapping[str, Any]) -> str:
    """As a report has it."""
    lines = [ChartLine(**line) for line in chart["lines"]]
    return line_chart(**{**chart, "lines": lines})


def scattered(draws: random.Random) -> dict[str, Any]:
    """A chart of any size, of one to seven lines."""
    last, centre, spread = draws.randint(1, 60), draws.choice((0, 0.5, 1, -3, 700)), 10 ** draws.uniform(-6, 6)
    numbers = [sorted(draws.sample(range(1, last + 1), draws.randint(1, last))) for _ in range(draws.randint(1, 7))]
    lines = [[(number, centre + spread * draws.gauss(0, 1)) for number in own] for own in numbers]
    return chart(
        *lines,
        last=last,
        limit=draws.choice((None, centre)),
        chance=draws.choice((None, 0.5)),
        height=draws.choice((110, 140, 200)),
    )


@pytest.fixture(scope="module", autouse=True)
def recorded(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.config.getoption("--record-transcripts"):
        RECORDED.write_text(json.dumps({name: draw(case) for name, case in CASES.items()}, indent=1) + "\n")
    found: dict[str, str] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_report_draws_what_is_recorded(name: str, recorded: dict[str, str]) -> None:
    assert draw(CASES[name]) == recorded[name]


@pytest.mark.parametrize("name", CASES)
def test_a_drawing_is_wellformed_described_and_inside(name: str) -> None:
    drawn = ET.fromstring(f"<div>{draw(CASES[name])}</div>")
    figure = next(drawn.iter("figure"))
    assert figure.get("role") == "img"
    assert str(figure.get("aria-label")).startswith(f"{CASES[name]['title']} by {CASES[name]['unit']}: ")
    known = {"div", "span", "figure", "svg", "title", "line", "path", "circle", "text"}
    assert {element.tag for element in drawn.iter()} <= known
    assert not {key for element in drawn.iter() for key in element.attrib if key.startswith("on") or key in ("href", "style")}
    height = int(figure[0].get("height", ""))
    for element in drawn.iter():
        for key in ("x", "cx"):
            assert -7 <= float(element.get(key, "0").removesuffix("%")) <= 100
        for key in ("y", "cy"):
            assert 0 <= float(element.get(key, "0")) <= height
        for x, y in re.findall(r"([\d.-]+) ([\d.-]+)", element.get("d", "")):
            assert 0 <= float(x) <= 100
            assert 0 <= float(y) <= height - 24


def heights(markup: str, style: str) -> list[float]:
    """Of texts and dots of a style, from the first drawn."""
    drawn = ET.fromstring(f"<div>{markup}</div>")
    return [float(part.get("y") or part.get("cy") or "") for part in drawn.iter() if part.get("class", "").startswith(style)]


def test_a_curve_goes_down_on_the_page_where_values_fall_and_its_label_says_so() -> None:
    drawn = draw(chart([(1, 0.7), (2, 0.5), (3, 0.4)], [(2, 0.2)]))
    first, second, third = heights(drawn, "dot joint")
    assert first < second < third < heights(drawn, "dot alone")[0]
    assert 'aria-label="Loss by epoch: line joint from 0.7 at 1 to 0.4 at 3; line alone 0.2 at 2."' in drawn


def test_an_axis_takes_in_what_it_must_reach_and_goes_no_further() -> None:
    drawn = ET.fromstring(draw(chart([(1, 1), (2, 1)], reach=[0.9, 1])))
    levels = [float(str(text.text)) for text in drawn.iter("text") if text.get("class") == "tick end"]
    assert (min(levels), max(levels)) == (0.9, 1)


def test_values_at_the_end_of_curves_stand_apart_and_above_the_axis() -> None:
    draws = random.Random(3)
    for _ in range(50):
        case = scattered(draws)
        places = heights(draw(case), "value")
        assert len(places) == len(case["lines"])
        assert all(below - above > 12.8 for above, below in pairwise(places))
        assert places[-1] <= case["height"] + 4


# charts.js draws the same, in whatever runs it here.

NODE = """
const escape = text => text.replace(/[&<>"]/g, mark => `&#${mark.charCodeAt(0)};`);
const written = part => typeof part === "object" ? part.outerHTML : escape(String(part));
class Element {
  constructor(name) { Object.assign(this, {name, attributes: [], children: []}); }
  setAttribute(key, value) { this.attributes.push(` ${key}="${escape(String(value))}"`); }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  get innerHTML() { return this.children.map(written).join(""); }
  get outerHTML() { return `<${this.name}${this.attributes.join("")}>${this.innerHTML}</${this.name}>`; }
}
const document = {createElement: name => new Element(name), createElementNS: (_, name) => new Element(name)};
"""
"""As much of a document as charts.js asks for."""

DRAW = """
const drawn = CHARTS.map(chart => {
  const box = document.createElement("div");
  Charts.lineChart(box, chart);
  return box.innerHTML;
});
"""


def run_in_node(program: str, script: str, folder: Path) -> str:
    text = f"{NODE}{script}console.log(JSON.stringify(drawn));"
    return subprocess.run([program, "-"], input=text, capture_output=True, text=True, check=True, timeout=60).stdout


def run_in_chromium(program: str, script: str, folder: Path) -> str:
    page = folder / "page.html"
    script = script.replace("</", "<\\/")
    page.write_text(f"<pre></pre><script>{script}document.querySelector('pre').textContent = JSON.stringify(drawn);</script>")
    words = [program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--dump-dom", page.as_uri()]
    html = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
    return unescape(re.search(r"<pre>(.*?)</pre>", html, re.DOTALL)[1])


RUNNERS: dict[str, tuple[Callable[..., str], Sequence[str]]] = {
    "node": (run_in_node, ("node",)),
    "chromium": (run_in_chromium, ("chromium", "chromium-browser", "google-chrome")),
}


@pytest.mark.parametrize("engine", RUNNERS)
def test_the_live_page_draws_what_a_report_draws(engine: str, recorded: dict[str, str], tmp_path: Path) -> None:
    run, programs = RUNNERS[engine]
    program = next(filter(None, map(shutil.which, programs)), None)
    if not program:
        pytest.skip(f"no {engine} on this machine: charts.js is not run")
    draws = random.Random(7)
    others = [scattered(draws) for _ in range(200)]
    charts = [CASES[name] for name in recorded] + others
    found = json.loads(run(program, f"{CHARTS_JS.read_text()}const CHARTS = {json.dumps(charts)};{DRAW}", tmp_path))
    expected = [*recorded.values(), *map(draw, others)]
    for case, live, report in zip(charts, found, expected, strict=True):
        assert tree(live) == tree(report), case


def tree(markup: str) -> str:
    """Markup with one way to write an element without children, and to escape."""
    return ET.tostring(ET.fromstring(f"<div>{markup}</div>"), encoding="unicode")
