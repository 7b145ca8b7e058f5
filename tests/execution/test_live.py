"""What a job's owner sees of it while it runs."""

from __future__ import annotations

from typing import get_args

import pytest
from structlog.testing import capture_logs

from vfl_node.errors import Cancelled
from vfl_node.execution.live import ALONE, AT_REST, LiveProgress, Stop, changes
from vfl_node.progress import (
    Advanced,
    EpochJudged,
    EpochTrained,
    Event,
    HoursAwaited,
    InputRefused,
    LocalEpochTrained,
    MemoryAwaited,
    OverlapDoubted,
    OwnersAsked,
    PeersAwaited,
    PhaseBegan,
    PredictionsAudited,
    Queued,
    ResultDoubted,
    TrainingCostKnown,
    WorkEvent,
)

EVENTS: list[Event] = [
    PhaseBegan("train", 10, "batches"),
    Advanced(3),
    EpochTrained(0.5, {"spectral": 0.51}, {"spectral": 40}, None, {"work": {"static": 0.4, "constant": 0.1}}),
    EpochJudged({"norm": 0.7}),
    LocalEpochTrained(0.4, 1, 10),
    PredictionsAudited({"near_duplicate": 0.6}, {"near_duplicate": 9}),
    TrainingCostKnown("training on the union"),
    OverlapDoubted("no record is shared"),
    ResultDoubted("few rows"),
    Queued(2),
    PeersAwaited(("lab",), "lost lab", 30.0),
    OwnersAsked(("lab",)),
    HoursAwaited(),
    MemoryAwaited(),
    InputRefused("no column 'id'"),
]


@pytest.fixture
def progress() -> LiveProgress:
    return LiveProgress("job", Stop())


def test_a_live_view_has_the_keys_of_one_at_rest(progress: LiveProgress) -> None:
    assert progress.snapshot() == AT_REST | {"phase": "waiting"}
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    for event in EVENTS:
        assert set(changes(AT_REST, event)) <= set(AT_REST)


def test_figures_stay_until_newer_ones_are_known(progress: LiveProgress) -> None:
    progress.emit(EpochTrained(0.5, {"spectral": 0.51, "longitudinal": None}, {"spectral": 40}))
    progress.emit(LocalEpochTrained(0.4, 2, 10))
    view = progress.snapshot()
    assert (view["loss"], view["attacks"]) == (0.5, {"spectral": 0.51, "longitudinal": None})
    assert (view["judged"], view["note"]) == ({"spectral": 40}, ALONE)
    assert view["alone"] == {"epoch": 2, "epochs": 10}
    progress.emit(EpochTrained(attacks={"spectral": 0.6}))  # a party that is not told the loss
    view = progress.snapshot()
    assert (view["loss"], view["attacks"], view["note"]) == (0.5, {"spectral": 0.6}, "")
    progress.emit(EpochTrained(0.3))
    view = progress.snapshot()
    assert (view["loss"], view["attacks"], view["judged"]) == (0.3, {"spectral": 0.6}, {"spectral": 40})
    progress.emit(EpochTrained(0.3, validation_loss=0.45))
    assert (progress.snapshot()["loss"], progress.snapshot()["validation_loss"]) == (0.3, 0.45)
    progress.emit(PredictionsAudited({"near_duplicate": 0.7}, {"near_duplicate": 9}))
    view = progress.snapshot()
    assert (view["loss"], view["attacks"], view["judged"]) == (0.3, {"near_duplicate": 0.7}, {"near_duplicate": 9})


def test_a_meter_stays_until_a_newer_figure_is_known(progress: LiveProgress) -> None:
    progress.emit(EpochTrained(0.5, {"spectral": 0.7}))
    progress.emit(EpochJudged({"norm": 0.9}))
    progress.emit(EpochTrained(0.4))
    view = progress.snapshot()
    assert view["labels"] == {"norm": 0.9}
    assert {name: of["value"] for name, of in view["meters"].items()} == {"labels": 0.9, "membership": 0.7}


def test_a_remark_outlives_phases_and_a_note_does_not(progress: LiveProgress) -> None:
    progress.emit(TrainingCostKnown("training on the union"))
    progress.emit(PeersAwaited(("lab",)))
    assert progress.snapshot()["note"] == "waiting for lab"
    progress.emit(PhaseBegan("train", 10, "batches"))
    progress.emit(Advanced(3))
    view = progress.snapshot()
    assert (view["remark"], view["note"], view["done"]) == ("training on the union", "", 3)
    assert (view["phase"], view["total"], view["unit"]) == ("train", 10, "batches")


@pytest.mark.parametrize(
    ("event", "note"),
    [
        (PeersAwaited(("lab", "notary")), "waiting for lab and notary"),
        (PeersAwaited(("lab (absent)",), "the stream broke"), "the stream broke; waiting for lab (absent)"),
        (PeersAwaited(("lab",), "the stream broke", 30.0), "the stream broke; waiting up to 30 s for lab"),
        (Queued(2), "waiting for its turn, 2 in the queue"),
        (InputRefused("no column 'id'"), "no column 'id'"),
    ],
)
def test_a_wait_has_a_line(progress: LiveProgress, event: Event, note: str) -> None:
    progress.emit(event)
    view = progress.snapshot()
    assert (view["phase"], view["note"]) == ("waiting", note)


def test_a_job_back_in_the_queue_is_in_no_phase(progress: LiveProgress) -> None:
    progress.emit(PhaseBegan("align", 10, "group operations"))
    progress.emit(Queued(1))
    assert progress.snapshot()["phase"] == "waiting"


def test_milestones_are_logged_and_a_wait_only_once(progress: LiveProgress) -> None:
    with capture_logs() as lines:
        for event in EVENTS:
            progress.emit(event)
            if isinstance(event, PeersAwaited | Queued):
                progress.emit(event)
    assert [{name: value for name, value in line.items() if name not in ("job", "log_level")} for line in lines] == [
        {"event": "phase", "phase": "train", "total": 10, "unit": "batches"},
        {"event": "progress", "loss": 0.5, "attacks": {"spectral": 0.51}, "judged": {"spectral": 40}},
        {"event": "progress", "local_loss": 0.4},
        {"event": "progress", "attacks": {"near_duplicate": 0.6}, "judged": {"near_duplicate": 9}},
        {"event": "training on the union"},
        {"event": "no record is shared"},
        {"event": "few rows"},
        {"event": "lost lab; waiting up to 30 s for lab"},
        {"event": "waiting for lab: its owner is asked"},
        {"event": "waiting for the hours of this node's policy"},
        {"event": "waiting for memory that other jobs have"},
        {"event": "no column 'id'"},
    ]


def test_what_is_shown_does_not_change_behind_the_reader(progress: LiveProgress) -> None:
    attacks = {"spectral": 0.51}
    progress.emit(EpochTrained(attacks=attacks))
    view = progress.snapshot()
    attacks["spectral"] = 0.9
    progress.emit(EpochTrained(attacks={"row_loss": 0.7}))
    assert view["attacks"] == {"spectral": 0.51}
    assert AT_REST["attacks"] == {}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_stop_is_heard_in_the_middle_of_work(event: Event) -> None:
    stop = Stop()
    progress = LiveProgress("job", stop)
    stop.ask(Cancelled("cancelled"))
    if isinstance(event, WorkEvent):
        with pytest.raises(Cancelled):
            progress.emit(event)
        assert progress.snapshot() == AT_REST | {"phase": "waiting"}
    else:
        progress.emit(event)  # says no more than what is so


def test_beats_tell_of_steps_and_of_nothing_else(progress: LiveProgress) -> None:
    steps = []
    for event in EVENTS:
        before = progress.steps
        progress.emit(event)
        if progress.steps != before:
            steps.append(type(event))
    assert steps == [PhaseBegan, Advanced]


REBUILT = {
    "flag": {"constant": 0.97, "static": 0.98, "adaptive": None},
    "work": {"constant": 0.13, "static": 0.3, "adaptive": 0.35},
    "untried": {"constant": 0.5, "static": None},
}


def test_columns_that_are_rebuilt_are_shown_worst_first_and_never_logged() -> None:
    with capture_logs() as logs:
        progress = LiveProgress("job", Stop())
        progress.emit(EpochTrained(0.5, rebuilt=REBUILT))
        progress.emit(EpochTrained(0.4))  # without news of them
    assert progress.snapshot()["rebuilt"] == REBUILT
    assert list(progress.snapshot()["rebuilt"]) == ["work", "flag", "untried"]
    assert [line["loss"] for line in logs] == [0.5, 0.4]
    assert not any(name in str(logs) for name in REBUILT)


def test_the_log_of_a_long_phase_has_ten_lines_of_figures_with_four_digits(progress: LiveProgress) -> None:
    with capture_logs() as lines:
        progress.emit(PhaseBegan("train", 1000, "batches"))
        for _ in range(500):
            progress.emit(Advanced(2))
            progress.emit(EpochTrained(1 / 3, {"spectral": 2 / 3}, {"spectral": 123456}))
        for epoch in range(1, 101):
            progress.emit(LocalEpochTrained(1 / 3, epoch, 100))
    figures = [line for line in lines if line["event"] == "progress"]
    assert [line.get("loss") for line in figures] == [0.3333] * 11 + [None] * 2  # at its end, too
    assert figures[0]["attacks"] == {"spectral": 0.6667}
    assert figures[0]["judged"] == {"spectral": 123456}
    assert [line["local_loss"] for line in figures[-2:]] == [0.3333] * 2
