"""The time line of a job: what Perfetto and Chrome's tracer read, of one party and of several."""

from __future__ import annotations

import csv
import json
import random
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vfl_node.cli import app
from vfl_node.configuration.models import parse
from vfl_node.errors import UsageError
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.report import timeline
from vfl_node.report.merged import compare_clocks, merge
from vfl_node.report.timeline import TRACE, Timeline, TraceAbout, parse_trace, read_trace, tell
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.trace import Trace

EPOCHS = 3
JOB = f"""\
name: trial
parties: {{active: clinic, passive: lab}}
align: {{protocol: psi}}
train: {{bottom: [4], active_bottom: [4], top: [4], epochs: {EPOCHS}, batch_size: 32}}
evaluate: {{test_fraction: 0.3}}
"""
CANARIES = ("canaryid", "canarycolumn", "canarykind", "sick-canary", "healthy-canary", "0.87654321")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small trial, whose tables are full of canaries."""
    folder = tmp_path_factory.mktemp("trial")
    rows = random.Random(1)
    for name, labelled in (("clinic", True), ("lab", False)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["id", "canarycolumn", "group", *(["label"] if labelled else [])])
            for row in range(120):
                label = ["sick-canary" if row % 3 else "healthy-canary"] if labelled else []
                table.writerow([f"canaryid{row}", rows.choice([0.87654321, rows.random()]), f"canarykind{row % 2}", *label])
    files = {name: folder / f"{name}.csv" for name in ("clinic", "lab")}
    columns = {"id": "id", "label": {"column": "label", "positive": "sick-canary"}}
    simulate(parse(JOB, Job, source="job"), files, folder / "out", columns=columns)
    return folder / "out"


@pytest.fixture(scope="module")
def halves(ended: Path) -> list[Timeline]:
    return [read_trace(ended / TRACE), read_trace(ended / "lab" / TRACE)]


def check_format(text: bytes) -> list[dict[str, Any]]:
    """The events of a file, which has what the Trace Event Format asks of complete events, instants and metadata.

    Spans of one thread lie beside or within each other, without which Perfetto shows them wrongly.
    """
    document = json.loads(text)
    events: list[dict[str, Any]] = document["traceEvents"]
    needed = {"X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"}, "i": {"name", "cat", "ph", "ts", "pid", "tid", "s"}}
    needed["M"] = {"name", "ph", "pid", "tid", "args"}
    names = {(event["pid"], event["tid"]) for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    assert {event["pid"] for event in events if event["name"] == "process_name"} == {event["pid"] for event in events}
    open_spans: dict[tuple[int, int], list[int]] = {}
    before = 0
    for event in events:
        assert event.keys() >= needed[event["ph"]], event
        assert {type(event[key]) for key in ("ts", "pid", "tid")} == {int}
        thread = event["pid"], event["tid"]
        assert thread in names
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            continue
        assert event["ts"] >= before
        before = event["ts"]
        ends = open_spans.setdefault(thread, [])
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert not ends or event["ts"] + event["dur"] <= ends[-1], event
            ends.append(event["ts"] + event["dur"])
    return events


def test_the_trace_of_each_party_is_as_the_format_says(ended: Path) -> None:
    for path in (ended / TRACE, ended / "lab" / TRACE):
        events = check_format(path.read_bytes())
        assert sum(event["name"].startswith("epoch ") for event in events) == EPOCHS


def test_messages_are_those_that_the_report_counts(ended: Path, halves: list[Timeline]) -> None:
    for folder, half in zip((ended, ended / "lab"), halves, strict=True):
        spans = {event.name: event for event in half.traceEvents if event.cat == "phase" and event.tid > 1}
        for phase, moved in json.loads((folder / "report.json").read_text())["phases"].items():
            first, last = spans[phase].ts, spans[phase].ts + (spans[phase].dur or 0)
            within = [event for event in half.traceEvents if event.cat == "message" and first <= event.ts <= last]
            sizes = {ph: [event.args.bytes or 0 for event in within if event.ph == ph and event.args] for ph in ("X", "i")}
            assert (len(sizes["X"]), sum(sizes["X"])) == (moved["messages_sent"], moved["bytes_sent"])
            assert (len(sizes["i"]), sum(sizes["i"])) == (moved["messages_received"], moved["bytes_received"])


def test_what_one_party_sends_the_other_receives(halves: list[Timeline]) -> None:
    def keys(half: Timeline, ph: str) -> list[tuple[Any, ...]]:
        messages = [event.args for event in half.traceEvents if event.ph == ph and event.cat == "message" and event.args]
        return sorted((args.sender, args.number, args.bytes) for args in messages)

    clinic, lab = halves
    for one, other in ((clinic, lab), (lab, clinic)):
        assert set(keys(other, "i")) <= set(keys(one, "X"))
        assert len(keys(other, "i")) > 10


def test_no_trace_has_anything_of_a_table(ended: Path) -> None:
    report = (ended / "report.json").read_text() + (ended / "report.html").read_text()
    assert any(canary in report for canary in CANARIES)  # so they are what a leak would look like
    for path in (ended / TRACE, ended / "lab" / TRACE):
        text = path.read_text()
        assert [canary for canary in CANARIES if canary in text] == []


def test_old_messages_are_one_span_in_their_phase() -> None:
    trace = Trace(count(step=50_000).__next__, most=4)
    trace.begin("train")
    for number in range(10):
        phase = "align" if number < 3 else "train"
        head = session_pb2.Frame(phase=phase, sequence=number, type="vfl.v1.Chunk")
        trace.add("lab", 1, head, trace.now(), sent=number % 2 == 0)
    told = tell(trace, "job", "clinic")
    events = check_format(told.to_json())
    sums = [event for event in events if event["cat"] == "sum"]
    assert [(event["name"], event["args"]["sent"]) for event in sums] == [("3 earlier messages", 2), ("3 earlier messages", 1)]
    assert [event["name"] for event in events if event["cat"] == "phase"] == ["train", "align", "train"]
    assert sum(event["cat"] == "message" for event in events) == 4
    assert tell(Trace(), "job", "clinic").otherData.parties == ["clinic"]


class Talk:
    """Two machines whose clocks differ, and messages between them."""

    def __init__(self, *, ahead_us: int, travel_us: int) -> None:
        self.at = 10**9
        clocks = {"clinic": 0, "lab": ahead_us}
        self.traces = {name: Trace(lambda ahead=ahead: 1000 * (self.at + ahead)) for name, ahead in clocks.items()}  # type: ignore[misc]
        for trace in self.traces.values():
            trace._from_utc = 0
        self.travel_us = travel_us
        self.numbers = dict.fromkeys(clocks, 0)

    def say(self, sender: str, receiver: str, *, lies_us: int = 0) -> None:
        """``lies_us``: how long it lies at the receiver before that asks for it."""
        number, self.numbers[sender] = self.numbers[sender], self.numbers[sender] + 1
        head = session_pb2.Frame(phase="train", sequence=number, type="vfl.v1.Chunk")
        since = self.traces[receiver].now()
        self.traces[sender].add(receiver, 1, head, self.traces[sender].now(), sent=True)
        self.at += self.travel_us + lies_us
        since = self.traces[receiver].now() if lies_us else since
        self.traces[receiver].add(sender, 1, head, since, sent=False)

    def told(self, *names: str) -> list[Timeline]:
        return [tell(self.traces[name], "job-1", name) for name in names]


@pytest.mark.parametrize("ahead_us", [-3_600_000_000 // 4, -40, 0, 7_000, 600_000_000])
def test_clocks_that_differ_are_brought_together(ahead_us: int) -> None:
    talk = Talk(ahead_us=ahead_us, travel_us=2_000)
    for turn in range(40):
        talk.say("clinic", "lab", lies_us=90_000 if turn % 3 else 0)  # most lie there for long before they are read
        talk.say("lab", "clinic")
    clinic, lab = talk.told("clinic", "lab")
    clock = compare_clocks(clinic, lab)
    assert clock is not None
    assert (clock.ahead_us, clock.travel_us) == (ahead_us, 2_000)
    merged = merge([clinic, lab])
    events = check_format(merged.to_json())
    assert merged.otherData.moved_us == {"lab": ahead_us}
    sent = {
        (event["args"]["sender"], event["args"]["number"]): event["ts"]
        for event in events
        if event["cat"] == "message" and event["ph"] == "X"
    }
    come = [event for event in events if event["cat"] == "message" and event["ph"] == "i"]
    assert len(come) == 80
    assert all(event["ts"] >= sent[event["args"]["sender"], event["args"]["number"]] + 2_000 for event in come)


def test_traces_of_one_machine_are_not_moved(halves: list[Timeline]) -> None:
    merged = merge(halves, same_clock=True)
    check_format(merged.to_json())
    assert (merged.otherData.parties, merged.otherData.moved_us) == (["clinic", "lab"], {"lab": 0})
    assert len(merged.traceEvents) == sum(len(half.traceEvents) for half in halves)


def test_traces_that_do_not_fit_are_refused(halves: list[Timeline]) -> None:
    clinic, lab = halves
    other = lab.model_copy(update={"otherData": TraceAbout(job="another", parties=["lab"])})
    silent = lab.model_copy(update={"traceEvents": []})
    cases = {
        "not of one job": [clinic, other],
        "of one party": [clinic, clinic],
        "merged already": [merge(halves, same_clock=True), lab],
        "no message in these traces is between lab and clinic": [clinic, silent],
    }
    for said, given in cases.items():
        with pytest.raises(UsageError, match="(?i)" + said.replace("and", "(and|or)")) as caught:
            merge(given)
        assert caught.value.code == "E_TRACE"
        assert caught.value.hint


EVENT = '{"name": "x", "cat": "phase", "ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
ABOUT = '"displayTimeUnit": "ms", "otherData": {"format": 1, "job": "j", "parties": ["lab"], "moved_us": {}}'


def test_a_file_of_another_owner_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def file(events: str, about: str = ABOUT) -> bytes:
        return f'{{"traceEvents": [{events}], {about}}}'.encode()

    assert parse_trace(file(EVENT), "it").traceEvents[0].name == "x"
    wrong = [
        b"",
        b"{}",
        b"\xff\xfe",
        file(EVENT, about=ABOUT.replace('"format": 1', '"format": 2')),
        file(EVENT, about=ABOUT.replace('["lab"]', "[]")),
        file(EVENT.replace('"X"', '"B"')),
        file(EVENT.replace('"dur": 1', '"dur": -1')),
        file(EVENT.replace('"ts": 1', '"ts": 1e400')),
        file(EVENT.replace('"ts": 1', '"ts": "1"')),
        file(EVENT.replace('"x"', f'"{"x" * 201}"')),
        file(EVENT.replace('"dur": 1', '"dur": 1, "more": 1')),
    ]
    monkeypatch.setattr(timeline, "MOST_BYTES", 1000)
    wrong.append(file(", ".join([EVENT] * 20)))
    for text in wrong:
        (tmp_path / "trace.json").write_bytes(text)
        with pytest.raises(UsageError, match="is no trace of a job") as caught:
            read_trace(tmp_path / "trace.json")
        assert caught.value.code == "E_TRACE"
    with pytest.raises(UsageError, match="cannot read"):
        read_trace(tmp_path / "none")


def test_the_command_merges_a_trial(ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["trace", str(ended)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "at clinic and lab" in done.stdout
    assert "moved" not in done.stdout
    check_format((tmp_path / "out.trace.json").read_bytes())
    with pytest.raises(UsageError, match=r"no trace\.json"):
        CliRunner().invoke(app, ["trace", str(tmp_path)], catch_exceptions=False)
    with pytest.raises(UsageError, match="name the node"):
        CliRunner().invoke(app, ["trace", "job-1"], catch_exceptions=False)
