"""Ids that do not meet: who stops, who is warned, who learns nothing, and what each party's own ids suggest."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.configuration.models import parse
from vfl_node.data.identifiers import Identifiers
from vfl_node.errors import PolicyError
from vfl_node.execution import overlap
from vfl_node.execution.overlap import doubt_overlap, is_doubtful
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session.memory import MemoryOfOneRun

RECORDS = 60
TRAIN = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 1, batch_size: 16}\nevaluate: {test_fraction: 0.3}\n"
APSI = "protocol: apsi, obfuscation: {fraction: 0.5}"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The same 60 records at both parties; the clinic spells their ids with capitals."""
    tables = {"clinic": tmp_path / "clinic.csv", "lab": tmp_path / "lab.csv"}
    for name, path in tables.items():
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "x", *(["label"] if name == "clinic" else [])])
            for number in range(RECORDS):
                spelled = f"canary-{number:03d}"
                row = [spelled.capitalize(), number % 7, number % 2] if name == "clinic" else [spelled, number % 5]
                writer.writerow(row)
    return tables


def job(align: str, more: str = "") -> Job:
    return parse(f"name: trial\nparties: {{active: clinic, passive: lab}}\nalign: {{{align}}}\n{more}", Job, source="job")


def reports(out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    clinic, lab = (json.loads((out / name).read_text()) for name in ("report.json", "lab/report.json"))
    return clinic, lab


@pytest.mark.parametrize("protocol", ["psi", "psu", "psi, padding: 2", "psu, padding: 2"])
def test_a_job_that_would_train_on_nothing_stops_with_advice(
    protocol: str, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr(MemoryOfOneRun, "count", lambda _, what: counted.append(what.kind))
    with pytest.raises(PolicyError) as caught, capture_logs() as lines:
        simulate(job(f"protocol: {protocol}", TRAIN), files, tmp_path / "out")
    assert "trainings" not in counted
    error = caught.value
    assert (error.code, error.peer_code, error.for_peer) == ("E_TOO_FEW_SHARED", "E_STOPPED", "its owner does not go on")
    assert error.message.startswith("no record is shared with lab, fewer than the 1 that the job expects")
    assert "All your 60 ids have capital letters" in error.hint
    assert "align.id_form: nocase" in error.hint
    assert "canary-" not in f"{error}{lines}".casefold()
    assert not list((tmp_path / "out").rglob("report.json"))
    lab, clinic = sorted(line["event"] for line in lines if line["log_level"] == "warning")
    assert clinic.startswith("no record is shared with lab, so few that the ids may not meet. All your 60 ids have capital")
    assert lab.startswith(
        "no record is shared with clinic, so few that the ids may not meet. All your 60 ids have letters, none"
    )


def test_both_stop_each_by_what_it_knows_itself(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[PolicyError] = []
    check = overlap.OverlapDoubt.check

    def noted(doubt: overlap.OverlapDoubt) -> None:
        try:
            check(doubt)
        except PolicyError as error:
            stops.append(error)
            raise

    monkeypatch.setattr(overlap.OverlapDoubt, "check", noted)
    with pytest.raises(PolicyError):
        simulate(job("protocol: psi", TRAIN), files, tmp_path / "out")
    assert [error.code for error in stops] == ["E_TOO_FEW_SHARED"] * 2
    assert ["shared with lab" in error.message for error in stops] == [True, False]


def test_what_the_hint_says_helps(files: dict[str, Path], tmp_path: Path) -> None:
    simulate(job("protocol: psi, id_form: nocase", TRAIN), files, tmp_path / "out")
    for report in reports(tmp_path / "out"):
        assert report["alignment"]["intersection"] == RECORDS
        assert report["alignment"]["warnings"] == []


@pytest.mark.parametrize("protocol", ["psi", "psu"])
def test_a_job_that_only_aligns_is_done_with_a_warning(protocol: str, files: dict[str, Path], tmp_path: Path) -> None:
    simulate(job(f"protocol: {protocol}"), files, tmp_path / "out")
    for report, peer in zip(reports(tmp_path / "out"), ("lab", "clinic"), strict=True):
        assert report["alignment"]["intersection"] == 0
        (warning,) = report["alignment"]["warnings"]
        assert warning.startswith(f"no record is shared with {peer}, so few that the ids may not meet.")
        assert report["training"] is report["metrics"] is None
    assert "so few that the ids may not meet" in (tmp_path / "out" / "report.html").read_text()


def test_under_an_asymmetric_intersection_only_the_active_party_is_advised(files: dict[str, Path], tmp_path: Path) -> None:
    simulate(job(APSI), files, tmp_path / "out")
    clinic, lab = reports(tmp_path / "out")
    assert "All your 60 ids have capital letters" in clinic["alignment"]["warnings"][0]
    assert (lab["alignment"]["warnings"], lab["alignment"]["intersection"]) == ([], None)
    with pytest.raises(PolicyError) as caught:
        simulate(job(APSI, TRAIN), files, tmp_path / "trained")
    assert caught.value.code == "E_STOPPED"  # obfuscation.min_intersection, at this owner's discretion as ever
    assert "align.id_form: nocase" in caught.value.hint
    assert "a set is held to one align.id_form (E_PROMISE)" in caught.value.hint
    assert not list((tmp_path / "trained").rglob("report.json"))


def test_a_larger_expectation_stops_nobody_who_knows_more_than_the_other(files: dict[str, Path], tmp_path: Path) -> None:
    simulate(job(f"{APSI}, id_form: nocase, expect: {{at_least: 61}}", TRAIN), files, tmp_path / "out")
    clinic, lab = reports(tmp_path / "out")
    assert clinic["alignment"]["warnings"][0].startswith("60 records are shared with lab")
    assert lab["alignment"]["warnings"] == []
    with pytest.raises(PolicyError, match="60 records are shared with lab, fewer than the 61 that the job expects"):
        simulate(job("protocol: psi, id_form: nocase, expect: {at_least: 61}", TRAIN), files, tmp_path / "psi")


@pytest.mark.parametrize("more", ["", TRAIN])
def test_under_dummies_nobody_stops_and_each_is_advised_by_its_own_bound(
    more: str, files: dict[str, Path], tmp_path: Path
) -> None:
    """They train: to stop would tell both what the dummies hide. The metrics are of the active party's real rows."""
    simulate(job("protocol: psu, dummies: 5", more), files, tmp_path / "out")  # at most 5 are shared, as either knows
    for report, peer in zip(reports(tmp_path / "out"), ("lab", "clinic"), strict=True):
        assert report["alignment"]["intersection"] is None
        (warning,) = report["alignment"]["warnings"]
        assert re.match(f"(no record is|at most (1 record is|[2-5] records are)) shared with {peer}, so few", warning)
        assert "a set is held to one align.id_form (E_PROMISE)" in warning
        bound = int(warning.split()[2]) if warning.startswith("at most") else 0
        (window,) = [entry["text"] for entry in report["learnt"][report["party"]] if entry["what"] == "intersection size"]
        assert window.endswith(f"not more than {bound}")  # what the ledger says anyway


@pytest.mark.parametrize(
    ("shared", "smaller", "expected", "doubtful"),
    [
        (0, 0, 1, True),
        (0, 5, 1, True),
        (1, 5, 1, False),  # small tables share few
        (9, 100, 1, True),
        (10, 100, 1, False),
        (49, 1_000, 1, True),
        (50, 1_000, 1, False),
        (99, 10_000, 1, True),  # less than one in a hundred
        (100, 10_000, 1, False),
        (100, 1_000, 101, True),
    ],
)
def test_how_few_are_doubted(shared: int, smaller: int, expected: int, doubtful: bool) -> None:
    assert is_doubtful(shared, smaller, expected) == doubtful


@pytest.mark.parametrize("shared", [0, 60])
def test_where_the_peer_may_not_know_the_work_does_not_depend_on_what_is_shared(
    shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(overlap, "spelling_hints", lambda ids, form: looked.append(len(ids)) or ())
    ids = Identifiers.from_items(f"text:{number}".encode() for number in range(60))
    rows = np.arange(60, dtype=np.int64)
    for protocol, terms in (("apsi", APSI), ("psi", "protocol: psi")):
        alignment = Alignment(ALIGNMENTS[protocol], "curve25519", rows, 60, {"lab": PeerFacts(records=60, intersection=shared)})
        assert (doubt_overlap(job(terms).align, alignment, ids) is None) == (shared == 60)
    assert looked == [60, 60][: 1 + (shared == 0)]
    bound = PeerFacts(records=60, most_shared=shared)
    doubt = doubt_overlap(job("dummies: 9").align, Alignment(ALIGNMENTS["psu"], "curve25519", rows, 60, {"lab": bound}), ids)
    assert (doubt is None) == (shared == 60)
    assert looked[-1] == 60
    assert len(looked) == 2 + (shared == 0)


def test_with_several_parties_a_union_tells_the_active_one_alone_how_few_all_share() -> None:
    """It is warned and goes on; no promise binds its id_form, since such a job hides nothing from it."""
    ids = Identifiers.from_items(f"text:{number}".encode() for number in range(60))
    rows, peers = np.arange(60, dtype=np.int64), {"lab": PeerFacts(60), "insurer": PeerFacts(60)}
    terms = job("protocol: psu").align
    assert (
        doubt_overlap(terms, Alignment(ALIGNMENTS["psu"], "curve25519", rows, 60, peers), ids) is None
    )  # as a passive party sees it
    doubt = doubt_overlap(terms, Alignment(ALIGNMENTS["psu"], "curve25519", rows, 60, peers, common=0), ids)
    assert doubt
    assert doubt.text.startswith("no record is shared with lab and insurer, so few")
    assert "E_PROMISE" not in doubt.text
    doubt.check()
    intersection = Alignment(ALIGNMENTS["psi"], "curve25519", rows[:0], 60, peers, common=0)
    known = doubt_overlap(job("protocol: psi").align, intersection, ids)
    assert known
    with pytest.raises(PolicyError, match="no record is shared with lab and insurer"):
        known.check()
