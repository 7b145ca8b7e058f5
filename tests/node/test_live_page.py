"""What the page of a job is made of, by two real nodes: curves, events and what was agreed."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any

import pytest
from nodes import Federation

JOB = """
train: {epochs: 4, batch_size: 64, patience: 4}
evaluate: {test_fraction: 0.2, validation_fraction: 0.2, metrics: [auc, nll]}
"""


@pytest.fixture(scope="module")
def pair(federations: Any, tmp_path_factory: pytest.TempPathFactory) -> Federation:
    made: Federation = federations(tmp_path_factory.mktemp("live"))
    made.start_both()
    return made


def whole_view(federation: Federation, name: str, job_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(read(federation, name, f"/api/jobs/{job_id}"))
    return answer


def read(federation: Federation, name: str, path: str) -> bytes:
    token = (federation.folder / name / "state" / "token").read_text()
    with closing(http.client.HTTPConnection(federation.running(name)["http"], timeout=240)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().read()


def test_live_curves_are_those_of_the_report_and_a_stream_lasts_until_the_job_ends(pair: Federation) -> None:
    job_id = pair.submit(JOB)
    stream = read(pair, "clinic", f"/api/jobs/{job_id}/events").decode()
    assert stream.rstrip().split("\n\n")[-1].endswith('event: end\ndata: {"state":"done","report":true}')
    told = [json.loads(event.split("data: ")[1]) for event in stream.split("\n\n") if "event: epochs" in event]
    pair.end("clinic", job_id)
    view, report = whole_view(pair, "clinic", job_id), pair.report("clinic", job_id)
    epochs, points = report["training"]["epochs"], view["live"]["curves"]["points"]
    for name in ("loss", "auc", "validation_loss", "validation_auc", "seconds"):
        assert points[name] == [[number, epoch[name]] for number, epoch in enumerate(epochs, 1)], name
    assert len(points["loss"]) == view["live"]["epoch"] == 4
    assert {name for event in told for name in event["points"]} <= points.keys()
    phases = [span["name"] for span in view["live"]["spans"] if span["kind"] == "work"]
    assert phases[0] == "align"
    assert "train" in phases
    moved = {phase: each["bytes_sent"] for phase, each in report["phases"].items()}
    assert moved["train"] == view["live"]["bytes"]["train"]["sent"]
    other = whole_view(pair, "lab", job_id)
    assert "loss" not in other["live"]["curves"]["points"]  # it is not told
    assert view["spec"] == other["spec"]
    assert view["spec"]["json"]["train"]["epochs"] == 4
    assert "epochs: 4" in view["spec"]["yaml"]


def test_a_job_that_waits_or_was_cancelled_has_what_was_agreed(pair: Federation) -> None:
    pair.kill("lab")
    job_id = pair.submit(JOB)
    waiting = whole_view(pair, "clinic", job_id)
    assert (waiting["state"], waiting["spec"]["json"]["name"]) == ("waiting", "trial")
    pair.client("clinic").cancel(job_id)
    pair.end("clinic", job_id)
    cancelled = whole_view(pair, "clinic", job_id)
    assert (cancelled["state"], cancelled["spec"]) == ("cancelled", waiting["spec"])
