"""The manifest: its bytes and digests, what it refuses to be, and that every job learns only what was declared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.declared import leaving_out, undeclared
from tests.golden.test_golden_transcripts import JOBS, tables
from vfl_node.configuration.models import parse
from vfl_node.configuration.registry import load
from vfl_node.errors import PolicyError
from vfl_node.execution.private import private_settings, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.training import TRAINERS
from vfl_node.ledger import UNDECLARED
from vfl_node.training.predictor import Predicted, ServiceCount, predictor_of
from vfl_node.transport.bounds import MOST_MANIFEST_BYTES
from vfl_node.trust import manifest
from vfl_node.trust.manifest import Manifest, make_manifest, parse_manifest, read_manifest

SPLIT = "train: {epochs: 2}"
NOW = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)


def job_of(text: str = SPLIT, *, parties: str = "active: clinic, passive: lab", name: str = "weekly") -> Job:
    return parse(f"name: {name}\nparties: {{{parties}}}\n{text}\n", Job, source="job")


def made(job: Job | None = None, job_id: str = "weekly-1", **changes: Any) -> Manifest:
    how: dict[str, Any] = {"federation": "trial", "submitter": "clinic", "cards": {}, "trained": None, "now": NOW}
    return make_manifest(job or job_of(), job_id, **(how | changes))


def read(data: bytes, job: Job | None = None, job_id: str = "weekly-1") -> Manifest:
    return read_manifest(data, job or job_of(), job_id, federation="trial", trained=None)


# The bytes.


def test_the_bytes_are_canonical_and_the_digest_is_theirs() -> None:
    one = made(cards={"lab": "ab" * 32})
    data = one.to_bytes()
    assert data == json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert one.digest == hashlib.sha256(data).hexdigest()
    assert read(data) == one
    assert json.loads(data)["job"] == job_of().canonical()
    assert [(party.name, party.role, party.card_sha256) for party in one.parties] == [
        ("clinic", "active", None),
        ("lab", "passive", "ab" * 32),
    ]
    assert one.expires - one.created == timedelta(days=7)
    assert not one.has_expired(NOW + timedelta(days=6))
    assert one.has_expired(NOW + timedelta(days=8))


def test_terms_are_the_same_where_only_the_run_differs() -> None:
    one, again = made(), made(job_id="weekly-2", submitter="lab", now=NOW + timedelta(days=1))
    assert one.digest != again.digest
    assert one.terms == again.terms
    assert made(job_of("train: {epochs: 3}")).terms != one.terms
    assert made(cards={"lab": "ab" * 32}).terms != one.terms


def changed(**fields: Any) -> bytes:
    document = json.loads(made().to_bytes()) | fields
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{}", "lacks something"),
        (b"[" * 100_000, "lacks something"),
        (b"x" * (MOST_MANIFEST_BYTES + 1), "at most 262144 are read"),
        (changed(more=1), "has what no manifest has"),
        (made().to_bytes().replace(b'":', b'": ', 1), "not written in the one form"),
        (changed(id="weekly-2"), "of another job"),
        (changed(federation="other"), "of another job"),
        (changed(job=job_of("train: {epochs: 3}").canonical()), "of another job"),
        (changed(name="monthly"), "says other things"),
        (changed(purpose="<script>"), "says other things"),
        (changed(parties=[{"name": "clinic", "role": "active", "card_sha256": None}]), "says other things"),
        (changed(requested_by={"party": "eve", "person": None}), "takes no part"),
        (changed(expires="2027-11-29T12:00:00Z"), "longer than 7 days"),
        (changed(reveals=[]), "reveals"),
        (changed(v=2), "lacks something"),
    ],
)
def test_what_is_no_manifest_of_this_job_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(PolicyError, match=why) as caught:
        read(data)
    assert caught.value.code == "E_MANIFEST"


def test_a_submitter_that_leaves_out_what_the_job_reveals_is_refused() -> None:
    document = json.loads(made().to_bytes())
    document["reveals"] = [each for each in document["reveals"] if each["what"] != "gradients"]
    data = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    with pytest.raises(PolicyError, match="reveals gradients to lab"):
        read(data)
    parse_manifest(data)  # it is only the job that tells


# Whatever can be named in a job declares what it reveals.


@pytest.mark.parametrize("name", ALIGNMENTS.own)
def test_every_alignment_declares(name: str) -> None:
    assert callable(load(ALIGNMENTS[name].reveals, what=name))


@pytest.mark.parametrize("name", TRAINERS.own)
def test_every_trainer_declares(name: str) -> None:
    parts = TRAINERS[name].parts
    assert callable(load(parts.reveals, what=name))
    if parts.serving:
        assert callable(load(parts.serving_reveals, what=name))


def test_what_does_not_declare_is_shown_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TRAINERS["split"], "parts", replace(TRAINERS["split"].parts, reveals=""))
    told = made().reveals
    assert {(each.to, each.what) for each in told if each.what == UNDECLARED} == {("clinic", UNDECLARED), ("lab", UNDECLARED)}


def test_keywords_are_those_of_the_reference() -> None:
    page = Path("docs/reference/ledger.md").read_text()
    texts = (*JOBS.values(), "align: {protocol: psi-pairs}", *(text for text, _ in FURTHER), SERVED["hidden, parties"])
    for text in texts:
        job = job_of(text, parties="active: clinic, passive: lab" + (", coordinator: hub" if needs_hub(text) else ""))
        for each in manifest.declare(job, None):
            assert f"| `{each.what}` |" in page
            assert each.bound.isprintable()
            assert len(each.bound) <= 220, each
            assert not each.bound.endswith(".")


# A job learns what was declared, and no more.

KEYS = "keys: {born: {kind: number, distance: 5}}"
FURTHER = (
    ("align: {protocol: psi-pairs}\ntrain: {epochs: 1, task: regression}", "split-pairs"),
    ("align: {protocol: psi}\ntrain: {algorithm: linear, iterations: 2, key_bits: 2048, least_rows: 0}", "linear"),
)


def needs_hub(text: str) -> bool:
    return "randomness: parties" not in text and any(
        word in text for word in ("flow: coordinator", "algorithm: hidden", "algorithm: trees", "statistics", "linkage")
    )


def run(job: Job, folder: Path) -> dict[str, Mapping[str, Any]]:
    """Party → its report of the job."""
    ordered = {"clinic": private_settings({"data": {"order": "c0"}}, source="settings")} if job.evaluate.hold_out else {}
    folders = simulate(job, {}, folder / "out", settings=trial_settings(job, tables(folder, job), given=ordered))
    return {name: json.loads((place / "report.json").read_text()) for name, place in folders.items()}


class Entry:
    def __init__(self, what: str) -> None:
        self.what = what


def entries(report: Mapping[str, Any]) -> dict[str, list[Entry]]:
    return {name: [Entry(entry["what"]) for entry in learnt] for name, learnt in report["learnt"].items()}


@pytest.mark.parametrize("text", ["align-psu", "align-apsi", "split-psi", "logistic-two-party", "hidden-psu"])
def test_a_job_learns_what_was_declared(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other kinds are looked at wherever tests run them: ``nothing_undeclared`` in tests/conftest.py."""
    job = job_of(JOBS[text], parties="active: clinic, passive: lab" + (", coordinator: hub" if needs_hub(JOBS[text]) else ""))
    reports = run(job, tmp_path)
    assert set(reports) == set(job.parties.all)
    for report in reports.values():
        assert undeclared(job, entries(report)) == set()
    every, declare = {each["what"] for learnt in reports["clinic"]["learnt"].values() for each in learnt}, manifest.declare
    assert len(every) > 1
    for what in every:  # the control: without one declaration it is seen
        monkeypatch.setattr(manifest, "declare", lambda *jobs, what=what: leaving_out(what, declare(*jobs)))
        assert {found for _, found in undeclared(job, entries(reports["clinic"]))} == {what}


SERVED = {
    "split": "align: {protocol: psi}\ntrain: {epochs: 2}",
    "logistic": "align: {protocol: psi}\ntrain: {algorithm: logistic}",
    "hidden": "align: {protocol: psi}\ntrain: {algorithm: hidden}",
    "hidden, parties": "align: {protocol: psi}\ntrain: {algorithm: hidden, randomness: parties}",
}


@pytest.mark.parametrize("to", ["active", "passive"])
@pytest.mark.parametrize("rows", ["known", "new"])
@pytest.mark.parametrize("name", SERVED)
def test_predictions_tell_what_was_declared(name: str, rows: str, to: str) -> None:
    hub = ", coordinator: hub" if needs_hub(SERVED[name]) else ""
    trained = job_of(f"{SERVED[name]}\nserve: {{to: both}}", parties=f"active: clinic, passive: lab{hub}")
    job = trained.model_copy(update={"train": None, "serve": None})
    job = Job.model_validate(job.model_dump() | {"predict": {"model": "weekly-1", "to": to, "rows": rows}})
    nothing = np.empty(0)
    exchanged = ServiceCount(16, 1, 1) if rows == "known" else Predicted(nothing.astype(np.int64), nothing, shared=3)
    learnt = predictor_of(trained.train).learnt(job, exchanged)
    assert undeclared(job, learnt, trained) == set()
    assert any(undeclared(job, learnt, None))  # the control
