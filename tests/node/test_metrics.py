"""What a node tells Prometheus: names, bounds, and nothing that is not the operator's to see."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Counter, Histogram
from prometheus_client.parser import text_string_to_metric_families

from tests.metrics_sample import FAMILIES, count_each, full, running
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.node import reasons
from vfl_node.node.prometheus import MOST_SERIES, write_figures
from vfl_node.node.service import Node
from vfl_node.node.states import STANDING
from vfl_node.process import counters
from vfl_node.progress import Advanced, PhaseBegan, Queued

PAGE = Path(__file__).parents[2] / "docs/reference/metrics-for-prometheus.md"


def documented() -> dict[str, tuple[set[str], str]]:
    """Name → labels and type, as the page shows them."""
    rows = re.findall(r"^\| `(\w+)` \| (.*?) ?\| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    return {name: (set(re.findall(r"`(\w+)`", labels)), kind) for name, labels, kind in rows}


def parse(text: str) -> dict[str, Any]:
    """Name of each family, as documented → family."""
    families = list(text_string_to_metric_families(text))
    return {family.name + ("_total" if family.type == "counter" else ""): family for family in families}


@pytest.fixture
def counted() -> Iterator[None]:
    """Every counter with a series."""
    count_each()
    yield
    clear()


def clear() -> None:
    """Begin to count anew, as a new process does."""
    for family in FAMILIES:
        family.metric.clear()
        family._known.clear()


def test_every_name_is_documented_and_every_documented_name_is_told(node: Node, counted: None) -> None:
    told, page = parse(node.metrics_text().decode()), documented()
    assert told.keys() == page.keys()
    assert {name: family.type for name, family in told.items()} == {name: kind for name, (_, kind) in page.items()}


def test_labels_are_those_of_the_page(counted: None) -> None:
    page = documented()
    for columns in (False, True):
        for name, family in parse(write_figures(full(1, columns=columns)).decode()).items():
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            more = {"column"} if columns and name == "vfl_feature_attack" else set()
            assert labels == page[name][0] - {"column"} | more, name


def test_there_are_never_more_series_than_said() -> None:
    for family in FAMILIES:
        for number in range(1000):
            series = family.series(*[f"E_{number}"] * len(family.metric._labelnames))
            series.inc() if isinstance(series, Counter) else series.observe(1)
        assert family.series("E_NEW", *["x"] * (len(family.metric._labelnames) - 1)) is family.series(
            *[counters.OTHER] * len(family.metric._labelnames)
        )
    for columns in (False, True):
        text = write_figures(full(1000, columns=columns)).decode()
        series = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert 1000 < len(series) <= MOST_SERIES
    clear()


def test_names_of_columns_are_told_only_where_the_owner_wants_it() -> None:
    view = running(rebuilt={"salary": {"static": 0.4, "stacked": None}, "height": {"static": 0.9}})
    text = write_figures(full(0, running=[view], columns=False)).decode()
    assert "salary" not in text
    assert 'vfl_feature_attack{attack="static",job="running-1"} 0.9' in text
    text = write_figures(full(0, running=[view], columns=True)).decode()
    assert 'vfl_feature_attack{attack="static",column="salary",job="running-1"} 0.4' in text


def test_a_jobs_series_end_with_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node._jobs, "running", lambda: [running(done=3, total=9)])
    assert 'vfl_job_steps{job="running-1",phase="train"} 9.0' in node.metrics_text().decode()
    assert 'vfl_job_steps_done{job="running-1",phase="train"} 3.0' in node.metrics_text().decode()
    monkeypatch.setattr(node._jobs, "running", list)
    assert "running-1" not in node.metrics_text().decode()


def test_waiting_jobs_are_counted_by_the_reasons_that_the_list_shows() -> None:
    text = write_figures(full(0, waits={"quota": 2, "consent": 1}, states=["asked", "waiting"])).decode()
    told = dict(re.findall(r'^vfl_queue_jobs\{reason="(\w+)"\} (\S+)$', text, re.MULTILINE))
    assert told == dict.fromkeys(reasons.KINDS, "0.0") | {"quota": "2.0", "consent": "2.0"}


def test_a_node_that_is_not_ready_says_why(node: Node) -> None:
    assert "vfl_ready 1.0" in (text := node.metrics_text().decode())
    assert "vfl_not_ready{" not in text
    node.drain(on=True)
    text = node.metrics_text().decode()
    assert "vfl_ready 0.0" in text
    assert re.findall(r"^vfl_not_ready\{.*$", text, re.MULTILINE) == ['vfl_not_ready{code="E_DRAINING"} 1.0']


def test_phases_and_waits_are_timed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    clear()
    now = [0.0]
    monkeypatch.setattr(counters.time, "monotonic", lambda: now[0])
    progress = LiveProgress("a", Stop())
    for second, event in ((10, Queued(2)), (30, Queued(1)), (70, PhaseBegan("align", 5, "rows")), (75, Advanced(5))):
        now[0] = second
        progress.emit(event)
    now[0] = 80
    progress.rest()
    text = write_figures(full(0)).decode()
    assert 'vfl_job_wait_seconds_sum{reason="place"} 60.0' in text
    assert 'vfl_job_wait_seconds_count{reason="place"} 1.0' in text
    assert 'vfl_job_phase_duration_seconds_sum{phase="align"} 10.0' in text
    clear()


def test_lines_of_the_log_with_a_code_are_counted() -> None:
    clear()
    for method, event in (
        ("warning", {"code": "E_DISK_FULL"}),
        ("error", {"code": "E_DISK_FULL"}),
        ("info", {"code": "E_DISK_FULL"}),
        ("error", {"code": "not one of ours"}),
        ("exception", {}),
        ("warning", {}),
    ):
        assert counters.count_log_line(None, method, dict(event)) == event
    text = write_figures(full(0)).decode()
    found = dict(re.findall(r'^vfl_errors_total\{code="(\w+)"\} (\S+)$', text, re.MULTILINE))
    assert found == {"E_DISK_FULL": "2.0", "other": "1.0", "E_INTERNAL": "1.0"}
    clear()


def test_a_job_that_goes_on_is_none_that_has_ended() -> None:
    assert set(STANDING) == {"asked", "waiting", "running", "paused"}  # see endings.conclude


def check(text: bytes) -> subprocess.CompletedProcess[bytes]:
    """What promtool says of metrics."""
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)


def test_promtool_has_nothing_to_say(counted: None) -> None:
    assert isinstance(counters.WAIT_SECONDS.series("place"), Histogram)
    said = check(write_figures(full(3)))
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")


def test_promtool_finds_what_is_no_convention() -> None:
    said = check(b"# HELP vfl_job_total Steps\n# TYPE vfl_job_total gauge\nvfl_job_total 4\n")
    assert said.returncode != 0
    assert b"vfl_job_total" in said.stderr + said.stdout
