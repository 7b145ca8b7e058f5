"""Statistics are counted, and a later job over the same alignment trains by their weights of evidence."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.needs import needs_onnx
from tests.node.test_trainings import Tap
from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import LinearEncoder
from vfl_node.data.evidence import KeptEvidence
from vfl_node.errors import PeerError, PeerLost, StateError, UsageError, VflError
from vfl_node.execution.conversations import conversations
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.run import set_up
from vfl_node.export.card import HOLDS
from vfl_node.export.exporting import export_half
from vfl_node.export.folders import open_folder
from vfl_node.job import Job
from vfl_node.models import storage
from vfl_node.node.partners import Partner
from vfl_node.node.reuse import check_reuse
from vfl_node.node.store import Store
from vfl_node.process.files import read_checked, write_checked
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.protection import Compare
from vfl_node.training.hidden.rows import RowEncoder
from vfl_node.transport.memory import memory_channels, run_together

ROLES = {"clinic": "active", "lab": "passive", "notary": "coordinator"}
DATA = ("clinic", "lab")
UNBOUNDED = ["exact", "rounded-statistics"]
PARTIES = "parties: {active: clinic, passive: lab, coordinator: notary}\n"
EVALUATE = "evaluate: {test_fraction: 0.3, metrics: [auc], epsilon: 100}\n"
COUNT = "align: {protocol: psu}\nstatistics: {bins: 6, epsilon: 100, least_rows: 5}\n" + EVALUATE
TRAIN = "align: {protocol: psu, reuse: counted}\ntrain: {algorithm: hidden, epsilon: 100, transform: woe}\n" + EVALUATE
PLAIN = TRAIN.replace(", transform: woe", "")
PSI = COUNT.replace("psu", "psi")
LOGISTIC = (
    "align: {protocol: psi, reuse: counted}\n"
    "train: {algorithm: logistic, flow: coordinator-open-scores, iterations: 15, key_bits: 2048, transform: woe}\n"
    "evaluate: {test_fraction: 0.3, metrics: [auc]}\n"
)


def write_tables(folder: Path, people: int = 1000, seed: int = 0) -> dict[str, Path]:
    """Labels follow two numbers of which the middle is good and both ends are bad, and a category."""
    rng = np.random.default_rng(seed)
    x, z, noise = rng.normal(size=(3, people))
    city = rng.choice(["a", "b", "c"], people)
    score = 2 * (np.abs(x) > 0.97) + 2 * (np.abs(z) > 0.97) + (city == "b") - 1.6
    label = (score + noise > 0).astype(int)
    files = {name: folder / f"{name}.csv" for name in DATA}
    of_clinic = [f"p{k},{x[k]:.4f},{noise[::-1][k]:.4f},{label[k]}" for k in range(people) if k % 10]
    of_lab = [f"p{k},{'' if k % 17 == 0 else f'{z[k]:.4f}'},{city[k]}" for k in range(people) if k % 10 != 5]
    files["clinic"].write_text("\n".join(["id,income,noise,label", *of_clinic]) + "\n")
    files["lab"].write_text("\n".join(["id,calls,city", *of_lab]) + "\n")
    return files


class Jobs:
    """Jobs of two parties and a coordinator in memory, whose folders lie beside each other at each party, as in nodes."""

    def __init__(self, files: Mapping[str, Path], folder: Path) -> None:
        self.files, self.folder = dict(files), folder
        self.sent: list[str] = []

    def run(
        self, job_id: str, text: str, *, attempt: int = 1, dies_before: str = "", kept: Sequence[str] = (), without: str = ""
    ) -> list[Any]:
        """What became of it at each party; the lab dies before it sends a message of the type ``dies_before``.

        Raises:
            VflError: the error of a party that ended before it met the others.
        """
        job = self.job(text)
        names = [name for name in ROLES if name in job.parties.all]
        channels: dict[str, dict[str, Any]] = {name: {} for name in names}
        for place, first in enumerate(names):
            for second in names[place + 1 :]:
                channels[first][second], channels[second][first] = memory_channels(first, second, job_id=job_id)
        for channel in channels["lab"].values():
            channel._pipe = Tap(channel._pipe, dies_before, self.sent)
        runs = []
        for name, own in channels.items():
            run = set_up(
                self.settings(name),
                job,
                job_id,
                read_input(self.settings(name), job) if name in DATA else None,
                Randomness(f"{job_id} {name}".encode().ljust(32)),
                self.job_folder(job_id, name),
                LiveProgress(job_id, Stop()),
                attempt,
                {peer: Partner(self.folder / "partners" / name, peer) for peer in job.remembered_parties(name)},
                own,
                kept=() if name == without else kept,
            )
            ends = [[channel] for channel in own.values()] if name == "notary" else [list(own.values())]
            runs += list(zip(conversations(run), ends, strict=True))
        return run_together(*runs)

    def job(self, text: str) -> Job:
        return parse(f"name: demo\n{PARTIES}{text}", Job, source="job")

    def settings(self, name: str) -> Settings:
        own: dict[str, Any] = {}
        if name in DATA:
            own["data"] = Data(path=self.files[name], label="label" if name == "clinic" else None)
        if name == "clinic":
            own["compare"] = Compare(boosted_tree=False)
        return Settings(
            name=name,
            role=ROLES[name],
            insecure_loopback=True,
            device="cpu",
            policy={
                "everyone": {"budgets": {"epsilon": None, "trainings": 100}, "least_rows": 5, "unbounded_models": UNBOUNDED}
            },
            **own,
        )

    def job_folder(self, job_id: str, name: str) -> JobFolder:
        return JobFolder(self.folder / name / job_id)

    def end(self, *jobs: str) -> None:
        """As nodes end jobs that all have done."""
        for job_id in jobs:
            for name in ROLES:
                self.job_folder(job_id, name).destroy_secrets()

    def report(self, job_id: str, name: str = "clinic") -> dict[str, Any]:
        return json.loads((self.job_folder(job_id, name).artefacts / "report.json").read_text())

    def auc(self, job_id: str) -> float:
        return self.report(job_id)["metrics"]["auc"]

    def model(self, job_id: str, name: str) -> tuple[dict[str, Any], dict[str, str]]:
        weights, head = storage.load(self.job_folder(job_id, name).artefacts / "model.safetensors")
        return {key: value.numpy() for key, value in weights.items()}, dict(head)


DONE = [None] * 4
"""Of a job that all ended: two data parties, and the coordinator's conversations with them."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def jobs(files: dict[str, Path], ram: Path) -> Jobs:
    made = Jobs(files, ram)
    assert made.run("counted", COUNT) == DONE
    made.end("counted")
    return made


def split_digests(jobs: Jobs, ids: Collection[str]) -> set[str]:
    return {jobs.report(job_id, name)["training"]["split_digest"] for job_id in ids for name in DATA}


def test_a_model_by_evidence_follows_what_goes_up_and_down(jobs: Jobs) -> None:
    """The control, by the columns as they are, over the same held-out rows, does not."""
    assert jobs.run("woe", TRAIN) == DONE
    assert jobs.run("plain", PLAIN) == DONE
    assert jobs.auc("woe") > 0.78
    assert jobs.auc("plain") < 0.7
    assert len(split_digests(jobs, ("counted", "woe", "plain"))) == 1
    assert jobs.report("woe")["training"]["columns"][0]["name"] == "income"
    for name, read in (
        ("clinic", {"income": "numeric", "noise": "numeric"}),
        ("lab", {"calls": "numeric", "city": "categorical"}),
    ):
        assert RowEncoder.from_json(jobs.model("woe", name)[1]["encoder"]).kinds == read
    assert {jobs.report("woe", name)["training"]["hidden"]["columns"]["lab"] for name in DATA} == {2}


def test_weights_are_those_that_were_counted(jobs: Jobs) -> None:
    assert jobs.run("woe", TRAIN) == DONE
    for name in DATA:
        weights, _ = jobs.model("counted", name)
        evidence = RowEncoder.from_json(jobs.model("woe", name)[1]["encoder"]).evidence
        assert evidence is not None
        assert evidence.job == "counted"
        for column, counted in zip(evidence.columns, weights["evidence"], strict=True):
            count = len(column.weights)
            assert column.weights == (*counted[: count - 1].tolist(), counted[-1])
    (calls, city) = evidence.columns
    assert calls.weights[0] > 0 > calls.weights[2]
    assert city.weights[1] > city.weights[0]


def test_a_regression_under_encryption_reads_them_too(files: dict[str, Path], ram: Path) -> None:
    jobs = Jobs(files, ram)
    assert jobs.run("counted", PSI) == DONE
    jobs.end("counted")
    assert jobs.run("woe", LOGISTIC) == DONE
    assert jobs.run("plain", LOGISTIC.replace(", transform: woe", "")) == DONE
    assert jobs.auc("woe") > 0.78
    assert jobs.auc("plain") < 0.7
    assert len(split_digests(jobs, ("counted", "woe", "plain"))) == 1
    encoder = LinearEncoder.from_json(jobs.model("woe", "lab")[1]["encoder"])
    assert encoder.kinds == {"calls": "numeric", "city": "categorical"}
    assert encoder.width == 2


def test_they_are_handed_on_and_found_without_their_name(jobs: Jobs) -> None:
    """A newer alignment without evidence does not come before one that has some; one party without them is enough for none."""
    assert jobs.run("plain", PLAIN) == DONE
    assert jobs.run("anew", PLAIN.replace(", reuse: counted", "")) == DONE
    jobs.end("plain", "anew")
    auto, newest_first = TRAIN.replace("counted", "auto"), ("anew", "plain", "counted")
    assert jobs.run("woe", auto, kept=newest_first) == DONE
    assert jobs.report("woe")["alignment"]["reused"] == "plain"
    assert split_digests(jobs, ("counted", "woe")) == split_digests(jobs, ("counted",))
    assert jobs.run("again", PLAIN.replace("counted", "auto"), kept=newest_first) == DONE
    assert jobs.report("again")["alignment"]["reused"] == "anew"
    ours, theirs, *_ = jobs.run("none", auto, kept=newest_first, without="lab")
    for error in (ours, theirs):
        assert isinstance(error, StateError)
        assert error.code == "E_EVIDENCE"
        assert "an alignment of these records that all parties have kept" in error.message


@pytest.mark.parametrize("place", ["Reused", "ShareInputs", "MaskedShares"])
def test_a_later_attempt_goes_on_and_needs_the_earlier_job_no_more(jobs: Jobs, place: str) -> None:
    assert any(isinstance(each, PeerLost) for each in jobs.run("woe", TRAIN, dies_before=place))
    if place != "Reused":
        for name in DATA:
            jobs.job_folder("counted", name).forget_alignment()
            assert not jobs.job_folder("counted", name).evidence.exists()
    assert jobs.run("woe", TRAIN, attempt=2) == DONE
    assert jobs.auc("woe") > 0.78
    assert jobs.job_folder("woe", "lab").evidence.exists()
    jobs.end("woe")
    assert jobs.run("next", TRAIN.replace("counted", "woe")) == DONE
    for name in DATA:
        assert jobs.model("next", name)[1]["encoder"] == jobs.model("woe", name)[1]["encoder"]


def test_a_party_without_them_stops_and_says_what_to_do(jobs: Jobs) -> None:
    jobs.job_folder("counted", "lab").evidence.unlink()
    ours, theirs, *_ = jobs.run("woe", TRAIN)
    assert theirs.code == "E_EVIDENCE"
    assert theirs.message == "no weights of evidence are kept here that belong to the alignment of job counted"
    assert "run a job with statistics" in theirs.hint
    assert (
        theirs.for_peer == "it has no weights of evidence (train.transform: woe) that belong to the alignment to be used again"
    )
    assert isinstance(ours, PeerLost)  # in nodes it hears that, by the node that ends the job
    jobs.job_folder("counted", "clinic").evidence.write_bytes(b"damaged")
    assert jobs.run("anew", PLAIN.replace("counted", "auto"), kept=["counted"]) == DONE  # nor is that alignment offered
    assert jobs.report("anew")["alignment"]["reused"] is None
    with pytest.raises(StateError) as damaged:
        jobs.run("other", TRAIN)
    assert damaged.value.code == "E_STATE_CORRUPT"


def test_rows_whose_labels_were_counted_are_not_measured_on(jobs: Jobs) -> None:
    """A smaller part of those held out then may be, or none; the control counted all."""
    for error in jobs.run("larger", TRAIN.replace("0.3", "0.4"))[:2]:
        assert isinstance(error, UsageError)
        assert error.code == "E_EVIDENCE"
        assert "say evaluate.test_fraction: 0.3 or less" in error.hint
    assert jobs.run("smaller", TRAIN.replace("0.3", "0.2")) == DONE
    assert jobs.run("none", TRAIN.replace("0.3", "0")) == DONE
    assert jobs.run("whole", COUNT.replace("0.3", "0")) == DONE
    jobs.end("whole")
    assert jobs.run("after", PLAIN.replace("counted", "whole")) == DONE  # which holds out rows that were counted
    jobs.end("after")
    for earlier in ("whole", "after"):
        for error in jobs.run(f"of-{earlier}", TRAIN.replace("counted", earlier))[:2]:
            assert (error.code, "was 0 there" in error.message) == ("E_EVIDENCE", True)


def test_an_epsilon_does_not_cover_weights_without_noise(files: dict[str, Path], ram: Path) -> None:
    """One record moves the weight of a whole bin then. A training without an ε reads them, and hands on what they are."""
    jobs = Jobs(files, ram)
    exact = COUNT.replace("epsilon: 100, least_rows", "epsilon: null, least_rows")
    assert exact != COUNT
    assert jobs.run("counted", exact) == DONE
    jobs.end("counted")
    assert jobs.run("unbounded", TRAIN.replace("epsilon: 100, transform", "epsilon: null, epochs: 1, transform")) == DONE
    jobs.end("unbounded")
    for earlier in ("counted", "unbounded"):
        for error in jobs.run(f"of-{earlier}", TRAIN.replace("counted", earlier))[:2]:
            assert isinstance(error, UsageError)
            assert error.code == "E_EVIDENCE"
            assert "job counted counted weights of evidence without noise" in error.message
            assert "train.epsilon: null" in error.hint
            assert error.for_peer == "weights of evidence were counted without noise, and train.epsilon does not cover them"
    for error in jobs.run("found", TRAIN.replace("counted", "auto"), kept=["counted"])[:2]:
        assert (error.code, "without noise" in error.message) == ("E_EVIDENCE", True)


def test_parties_do_not_mix_weights_of_two_jobs(jobs: Jobs) -> None:
    """Both have counted over one alignment, which each party has kept. Without such weights they do not matter."""
    path = jobs.job_folder("counted", "lab").evidence
    kept = KeptEvidence.from_json(read_checked(path).decode())
    other = kept.model_copy(update={"columns": kept.columns.model_copy(update={"job": "another"})})
    write_checked(path, other.to_json().encode())
    errors = jobs.run("woe", TRAIN)[:2]
    assert any(isinstance(error, PeerError) and error.code == "E_REUSE_ALIGN" for error in errors)
    assert jobs.run("plain", PLAIN) == DONE


@needs_onnx
def test_an_owner_takes_its_half_away(jobs: Jobs, tmp_path: Path) -> None:
    """With its bins and weights; each file is compared with the half over the owner's own table."""
    assert jobs.run("woe", TRAIN.replace("transform", "reveal: owners, transform")) == DONE
    for name in DATA:
        half, report = open_folder(jobs.job_folder("woe", name).artefacts)
        table = read_input(jobs.settings(name), jobs.job(TRAIN))
        files = export_half(half, report, tmp_path / name, forms=("onnx", "sql", "card"), own=table)
        assert {file.name for file in files} == {f"{name}.onnx", f"{name}.sql", "card.json", "card.md"}
        card = json.loads((tmp_path / name / "card.json").read_text())
        assert HOLDS["evidence"] in card["holds"]
        assert set(card["reads"]) == {"clinic": {"income", "noise"}, "lab": {"calls", "city"}}[name]


def test_trees_hold_out_the_same_rows(jobs: Jobs) -> None:
    trees = PLAIN.replace("hidden, epsilon: 100", "trees, trees: 1, depth: 2, bins: 4, least_rows: 5")
    assert jobs.run("trees", trees) == DONE
    assert len(split_digests(jobs, ("counted", "trees"))) == 1


def test_a_node_refuses_early(jobs: Jobs, tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        record = store.add(jobs.job(COUNT), submitter="clinic", job_id="counted")
        store.update(record, state="done")
        ours, theirs = store.job_folder(record), jobs.job_folder("counted", "lab")
        for name in ("alignment", "rows"):
            (ours.path / name).write_bytes((theirs.path / name).read_bytes())
        check_reuse(store, jobs.job(PLAIN))
        with pytest.raises(StateError, match="no weights of evidence are kept here") as caught:
            check_reuse(store, jobs.job(TRAIN))
        assert caught.value.code == "E_EVIDENCE"
        ours.evidence.write_bytes(theirs.evidence.read_bytes())
        check_reuse(store, jobs.job(TRAIN))
        kept = KeptEvidence.from_json(read_checked(ours.evidence).decode()).model_copy(update={"noised": False})
        write_checked(ours.evidence, kept.to_json().encode())
        with pytest.raises(UsageError, match="without noise"):
            check_reuse(store, jobs.job(TRAIN))
        check_reuse(store, jobs.job(TRAIN.replace("epsilon: 100, transform", "epsilon: null, transform")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRAIN.replace(", reuse: counted", ""), "align.reuse: auto, or the id"),
        (TRAIN.replace("transform", "task: regression, transform").replace("[auc]", "[rmse]"), "two classes"),
        (TRAIN.replace("transform", "classes: 3, transform"), "two classes"),
        (TRAIN.replace("transform", "columns: bins, transform"), "leave one of them out"),
        (TRAIN.replace("transform", "reveal: owners, transform") + "export: {joint: active}\n", "is not handed over"),
    ],
)
def test_jobs_that_cannot_be_are_refused(text: str, said: str) -> None:
    with pytest.raises(VflError) as caught:
        parse(f"name: demo\n{PARTIES}{text}", Job, source="job")
    assert said in caught.value.message
