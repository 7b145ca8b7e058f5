"""What the page of a job shows besides its newest figures."""

from __future__ import annotations

from types import SimpleNamespace

from structlog.testing import capture_logs

from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.progress import (
    Advanced,
    EpochJudged,
    EpochTrained,
    LocalEpochTrained,
    PeersAwaited,
    PhaseBegan,
    Queued,
    TrainingCostKnown,
)
from vfl_node.transport.pipe import Traffic


def test_curves_are_of_the_first_repeat_and_labels_of_the_epoch_that_was_judged() -> None:
    progress = LiveProgress("job", Stop())
    progress.emit(
        EpochTrained(0.5, {"spectral": 0.3}, auc=0.7, validation_loss=0.6, validation_auc=0.65, seconds=2.0, number=1)
    )
    progress.emit(EpochJudged({"norm": 0.9, "direction": 0.8}))
    progress.emit(EpochTrained(0.4, rebuilt={"work": {"static": 0.5, "constant": 0.0}}, auc=0.8, seconds=1.0, number=2))
    progress.emit(EpochTrained(0.9, auc=0.1, number=1, repeat=2))
    progress.emit(EpochJudged({"norm": 1.0}))
    details = progress.details()
    assert (details["epoch"], details["repeat"]) == (2, 2)
    assert details["meters"]["labels"]["value"] == 1.0
    assert details["curves"]["points"] == {
        "loss": [(1, 0.5), (2, 0.4)],
        "validation_loss": [(1, 0.6)],
        "auc": [(1, 0.7), (2, 0.8)],
        "validation_auc": [(1, 0.65)],
        "seconds": [(1, 2.0), (2, 1.0)],
        "membership": [(1, 0.7)],
        "labels": [(1, 0.9)],
        "columns": [(2, 0.5)],
    }


def test_the_log_of_a_page_has_the_lines_of_the_nodes_log_and_no_name_of_a_column() -> None:
    progress = LiveProgress("job", Stop())
    with capture_logs() as logs:
        progress.emit(Queued(1))
        progress.emit(PeersAwaited(("lab",)))
        progress.emit(PeersAwaited(("lab",)))
        progress.emit(TrainingCostKnown("training on the union"))
        progress.emit(PhaseBegan("train", 1000, "batches"))
        progress.emit(LocalEpochTrained(0.4, 1, 3))
        progress.emit(LocalEpochTrained(0.3, 2, 3))
        progress.emit(Advanced(500))
        progress.emit(EpochTrained(0.51234, rebuilt={"secret": {"static": 0.9}}, validation_loss=0.6, number=1))
        progress.emit(EpochTrained(0.4, number=2))
    lines = progress.details()["log"]
    assert [line["text"] for line in lines] == [
        "waiting for lab",
        "training on the union",
        "train begins: 1,000 batches",
        "own model alone, epoch 1 of 3: loss 0.4",
        "epoch 1 trained: loss 0.5123, on validation rows 0.6",
    ]
    assert len(lines) == len(logs)


def test_a_job_tells_its_pace_its_spans_and_the_bytes_of_its_conversations() -> None:
    progress = LiveProgress("job", Stop())
    rest = progress.details()
    assert (rest["rate"], rest["left_s"], rest["bytes"], rest["spans"]) == (None, None, {}, [])
    channels = [SimpleNamespace(traffic={"align": Traffic(1, 2), "train": Traffic(10, 20)}), SimpleNamespace(traffic={})]
    with progress.conversing(channels):  # type: ignore[arg-type]
        progress.emit(PhaseBegan("train", 100, "batches"))
        for _ in range(50):
            progress.emit(Advanced(1))
        channels[1].traffic["train"] = Traffic(5, 5)
        during = progress.details()
    assert during["rate"] > 0
    assert during["step"]["work"] > 0
    assert during["step"]["waiting"] == during["step"]["sending"] == 0
    assert during["left_s"] > 0
    assert during["bytes"] == {"align": {"sent": 1, "received": 2}, "train": {"sent": 15, "received": 25}}
    assert [span["ended"] for span in during["spans"]] == [None]
    channels[1].traffic["train"].bytes_sent = 99  # of another attempt
    after = progress.details()
    assert after["reached"] == {"phase": "train", "done": 50, "total": 100, "unit": "batches"}
    assert (after["bytes"], after["rate"]) == (during["bytes"], None)
    assert after["spans"][0]["ended"]
