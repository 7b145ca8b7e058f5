"""Trainings over the same records are counted: each draws synthetic rows again, and comparing tells which rows are real."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import command
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerLost, PolicyError
from vfl_node.execution.conversations import conversations
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.run import set_up
from vfl_node.node.partners import Partner
from vfl_node.privacy.defences.dp import epsilon
from vfl_node.session.counted import OF_A_TABLE
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.protection import Compare
from vfl_node.transport.memory import memory_channels, run_together

ROLES = {"clinic": "active", "lab": "passive"}
TRAIN = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 2, batch_size: 64}\nevaluate: {test_fraction: 0.3}\n"


class Trainings:
    """Jobs of two parties over their tables, in memory; each party's folder of its partner is kept."""

    def __init__(self, trial: Any, folder: Path) -> None:
        self.trial, self.folder = trial, folder
        self.files = dict(trial.files)
        self.sent: list[str] = []
        """Types of what the lab has sent, in order."""

    def run(
        self,
        job_id: str,
        text: str = TRAIN,
        *,
        attempt: int = 1,
        dies_before: str = "",
        clinic: Any = None,
        kept: Mapping[str, Sequence[str]] | None = None,
        **budgets: int,
    ) -> list[Any]:
        """Both parties' results; ``budgets`` are the lab's, who dies before it sends a message of the type ``dies_before``.

        ``clinic`` are more settings of the other one; ``kept`` are the jobs whose alignment each of both has.
        """
        runs: list[Any] = []
        for name, channel in zip(ROLES, memory_channels(*ROLES, job_id=job_id), strict=True):
            peer = next(other for other in ROLES if other != name)
            if name == "lab":
                channel._pipe = Tap(channel._pipe, dies_before, self.sent)
            data = Data(path=self.files[name], label="label" if name == "clinic" else None)
            own = {"compare": Compare(boosted_tree=False)} | (clinic or {})  # a tree takes an eighth of such a job
            settings = Settings(
                name=name,
                role=ROLES[name],
                data=data,
                insecure_loopback=True,
                device="cpu",
                **{"policy": {"everyone": {"budgets": budgets}}} if name == "lab" else own,
            )
            run = set_up(
                settings,
                self.trial.job(text),
                job_id,
                read_input(settings, self.trial.job(text)),
                Randomness(f"{job_id} {name}".encode().ljust(32)),
                self.job_folder(job_id, name),
                LiveProgress(job_id, Stop()),
                attempt,
                {peer: Partner(self.folder / "partners" / name, peer)},
                {peer: channel},
                kept=(kept or {}).get(name, ()),
            )
            runs += [(protocol, channel) for protocol in conversations(run)]
        return run_together(*runs)

    def job_folder(self, job_id: str, name: str) -> JobFolder:
        return JobFolder(self.folder / job_id / name)

    def counted(self, name: str) -> int:
        """How many trainings over its table ``name`` remembers with the other."""
        others = (ROLES.keys() - {name}) if (self.folder / "partners" / name).exists() else ()
        entries = [entry for lab in others for entry in Partner(self.folder / "partners" / name, lab).lane.entries]
        lines = [line for entry in entries if entry.kind == "count" for line in entry.body["lines"].get("trainings", ())]
        return sum(line.startswith(OF_A_TABLE) for line in lines)

    def report(self, job_id: str, name: str = "clinic") -> dict[str, Any]:
        return json.loads((self.job_folder(job_id, name).artefacts / "report.json").read_text())

    def said(self, job_id: str, name: str) -> str:
        """What its report says that anyone learnt of membership by training."""
        learnt = json.loads((self.job_folder(job_id, name).artefacts / "report.json").read_text())["learnt"]
        told = (entry["text"] for entries in learnt.values() for entry in entries)
        return " ".join(text for text in told if "docs/explanations/privacy/" in text)


class Tap:
    """A pipe that keeps the types of what is ``sent``; its party dies before it sends one of the type ``last``."""

    def __init__(self, pipe: Any, last: str, sent: list[str]) -> None:
        self._pipe, self._last, self._sent, self._dead = pipe, last, sent, False

    async def put(self, frame: Any) -> None:
        kind = frame.type.rpartition(".")[2]
        self._dead = self._dead or kind == self._last
        self._check()
        self._sent.append(kind)
        await self._pipe.put(frame)

    async def get(self) -> Any:
        self._check()
        return await self._pipe.get()

    def _check(self) -> None:
        if self._dead:
            raise PeerLost("cut off by the test")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)


@pytest.fixture
def trainings(trial: Any, ram: Path) -> Trainings:
    return Trainings(trial, ram)


def test_each_job_counts_and_the_report_says_which_it_is(trainings: Trainings) -> None:
    for number, job_id in enumerate(("first", "second", "third"), 1):
        assert trainings.run(job_id) == [None, None]
        for name in ROLES:
            assert trainings.counted(name) == number
            said = trainings.said(job_id, name)
            assert said.count(f"this is training {number} over these records") == (2 if number > 1 else 0)
            assert ("synthetic rows are drawn again with each alignment, and comparing trainings" in said) == (number > 1)


def test_what_sends_rows_in_the_clear_counts_over_every_alignment(trainings: Trainings) -> None:
    """A sweep counts each trial, and is refused before anything is sent. The control: a job that only aligns does not count."""

    def used() -> dict[str, float]:
        return Partner(trainings.folder / "partners/lab", "clinic").usage()

    shared = f"align: {{protocol: psi}}\n{TRAIN}"
    assert trainings.run("first", shared, trainings_in_clear=4) == [None, None]
    assert trainings.run("second", trainings_in_clear=4) == [None, None]
    assert (used()["trainings_in_clear"], used()["trainings"]) == (2, 1)
    assert trainings.run("third", "align: {protocol: psi}\n", trainings_in_clear=2) == [None, None]
    assert used()["trainings_in_clear"] == 2
    trainings.sent.clear()
    sweep = shared.replace("0.3}", "0.2, validation_fraction: 0.2}\nsweep: {over: {learning_rate: [0.001, 0.01, 0.1]}}")
    _, refused = trainings.run("fourth", sweep, trainings_in_clear=4)
    assert (refused.code, "budgets.trainings_in_clear" in refused.message) == ("E_BUDGET", True)
    assert not {"SetSize", "Embedding"} & set(trainings.sent)
    assert trainings.run("fifth", sweep, trainings_in_clear=5) == [None, None]
    assert used()["trainings_in_clear"] == 5


@pytest.mark.parametrize("dies_before", ["Embedding", pytest.param("TossShare", marks=pytest.mark.slow)])
def test_a_restart_does_not_count(trainings: Trainings, dies_before: str) -> None:
    assert trainings.run("first") == [None, None]
    results = trainings.run("second", dies_before=dies_before, trainings=2)
    assert isinstance(results[1], PeerLost)
    assert trainings.counted("lab") == 2  # on the disk before anything that is synthetic
    for attempt in (2, 3):  # even where nothing more is allowed
        assert trainings.run("second", attempt=attempt, trainings=2) == [None, None]
        assert trainings.counted("lab") == 2
    assert "this is training 2 " in trainings.said("second", "lab")


def test_one_too_many_is_refused_before_anything_is_sent(trainings: Trainings) -> None:
    for job_id in ("first", "second"):
        assert trainings.run(job_id, trainings=2) == [None, None]
    assert {"Rows", "TossShare", "Embedding"} < set(trainings.sent)
    trainings.sent.clear()
    refused = trainings.run("third", trainings=2)[1]
    assert isinstance(refused, PolicyError)
    assert refused.code == "E_BUDGET"
    assert "there were 2 trainings with clinic" in refused.message
    assert "allows 2 (budgets.trainings)" in refused.message
    assert "raise budgets.trainings" in refused.hint
    assert not {"Remembered", "SetSize", "Rows", "TossShare", "Embedding"} & set(trainings.sent)  # nothing was aligned
    assert trainings.counted("lab") == 2
    assert trainings.run("fourth", trainings=3) == [None, None]


def test_a_peer_is_told_no_more_than_that_it_is_not_allowed(federation: Any) -> None:
    federation.start_both(everyone={"budgets": {"trainings": 1, "alignments": 1}})
    assert federation.end("clinic", federation.submit(TRAIN))["state"] == "done"
    job_id = federation.submit(TRAIN)
    told, refused = federation.end("clinic", job_id), federation.end("lab", job_id)
    assert refused["error"]["code"] == "E_BUDGET"
    assert told["error"]["code"] == "E_PEER"
    assert "its policy does not allow the job (budget) (E_BUDGET)" in told["error"]["message"]
    assert "budgets.trainings" not in json.dumps(told) + federation.log("clinic")
    assert "job failed" in federation.log("lab")
    assert "(budgets.trainings)" in refused["error"]["message"] + federation.log("lab")
    budgets = federation.client("lab").health()["budgets"]["peers"]["clinic"]
    assert budgets["trainings"] == {"used": 1, "allowed": 1}
    assert budgets["alignments"] == {"used": 1, "allowed": 1}
    job_id = federation.submit("align: {protocol: psi}")
    told, refused = federation.end("clinic", job_id), federation.end("lab", job_id)
    assert (refused["error"]["code"], told["error"]["code"]) == ("E_BUDGET", "E_PEER")
    assert "1 different pairs of sets have been aligned with clinic" in refused["error"]["message"]
    assert "its policy does not allow the job (budget) (E_BUDGET)" in told["error"]["message"]
    listed = command("budgets", "--config", federation.folder / "lab" / "node.yaml")
    assert ["clinic", "alignments", "1", "1"] in [line.split() for line in listed.stdout.splitlines()]


def test_a_week_that_is_used_up_refuses_until_the_day_that_the_owner_is_shown(federation: Any) -> None:
    federation.start_both(everyone={"budgets": {"trainings": [{"most": 1, "per": "week"}, {"most": 20}]}})
    job_id = federation.submit(TRAIN)
    assert [federation.end(name, job_id)["state"] for name in ROLES] == ["done", "done"]
    job_id = federation.submit(TRAIN)
    told, refused = federation.end("clinic", job_id), federation.end("lab", job_id)
    budget = federation.client("lab").health()["budgets"]["peers"]["clinic"]["trainings"]
    assert budget == {"used": 1, "allowed": 1, "per": "week", "free": budget["free"]}
    assert date.today() + timedelta(days=6) <= date.fromisoformat(budget["free"]) <= date.today() + timedelta(days=8)
    free = f"the next is free on {budget['free']}"
    assert refused["error"]["message"].endswith(f"clinic.budgets.trainings: 1 of 1 per week are used; {free}")
    assert (refused["error"]["code"], told["error"]["code"]) == ("E_BUDGET", "E_PEER")
    assert "its policy does not allow the job (budget) (E_BUDGET)" in told["error"]["message"]
    assert "week" not in json.dumps(told) + federation.log("clinic")
    config = federation.folder / "lab" / "node.yaml"
    assert f"1 per week ({free})" in command("budgets", "--config", config).stdout
    assert f"trainings 1 of 1 per week ({free})" in command("ledger", "--config", config).stdout


def test_whoever_changes_its_set_begins_no_new_count(trainings: Trainings, tmp_path: Path) -> None:
    """Neither the peer nor this party: else a table that grows by a record a day would bring a new count each day."""
    assert trainings.run("first", trainings=1) == [None, None]
    whole = trainings.files["clinic"]
    trainings.files["clinic"] = tmp_path / "clinic.csv"
    trainings.files["clinic"].write_text("".join(whole.read_text().splitlines(keepends=True)[:-1]))
    assert trainings.run("second", trainings=1)[1].code == "E_BUDGET"
    table = trainings.files["lab"]
    trainings.files["lab"] = tmp_path / "lab.csv"
    trainings.files["lab"].write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    assert trainings.run("third", trainings=1)[1].code == "E_BUDGET"
    assert trainings.run("fourth", trainings=2) == [None, None]


def test_another_form_or_part_of_the_same_table_begins_no_new_count(trainings: Trainings) -> None:
    """Three forms of id gave three trainings where one was allowed."""
    for job_id, align in (("first", "{}"), ("second", "{id_form: nocase}"), ("third", "{at_most: 10000}")):
        refused = trainings.run(job_id, f"align: {align}\n{TRAIN}", trainings=1)[1]
        assert (getattr(refused, "code", None) == "E_BUDGET") == (job_id != "first"), refused
        assert trainings.counted("lab") == 1


def test_another_form_of_the_same_table_gets_no_other_obfuscated_set(trainings: Trainings) -> None:
    """Three forms drew three sets, which had 90 of 160 records in common where 80 are shared."""
    for job_id, form in (("first", "text"), ("second", "nocase"), ("third", "text")):
        align = f"align: {{protocol: apsi, obfuscation: {{fraction: 0.9}}, id_form: {form}}}\n"
        ended = trainings.run(job_id, align)
        assert (getattr(ended[0], "code", None) == "E_PROMISE") == (form != "text"), ended
    drawn = list((trainings.folder / "partners" / "clinic").glob("*/obfuscated-*.kept"))
    assert len([path for path in drawn if not path.stem.endswith("-size")]) == 1
    rows = [trainings.job_folder(job_id, "lab").load_alignment(["clinic"])[0].rows.tolist() for job_id in ("first", "third")]  # type: ignore[index]
    assert rows[0] == rows[1]


def test_dummies_are_the_same_in_every_form_and_never_less(trainings: Trainings) -> None:
    assert trainings.run("first", "align: {protocol: psu, dummies: 100}\n") == [None, None]
    for job_id, align in (
        ("none", "{protocol: psu, dummies: 0}"),
        ("form", "{protocol: psu, dummies: 100, id_form: nocase}"),
        ("psi", "{protocol: psi}"),
    ):
        trainings.sent.clear()
        refused = trainings.run(job_id, f"align: {align}\n")
        assert [getattr(error, "code", None) for error in refused].count("E_PROMISE") >= 1
        assert "SetSize" not in trainings.sent  # no size
    assert trainings.run("again", "align: {protocol: psu, dummies: 100}\n") == [None, None]


@pytest.mark.parametrize(
    ("align", "counted"),
    [
        ("protocol: psi", 0),
        ("protocol: psi, padding: 1", 0),
        ("protocol: psu", 1),
        ("protocol: psu, dummies: 20", 1),
        ("protocol: apsi, obfuscation: {fraction: 0.9}", 1),
        ("protocol: apsi, obfuscation: {fraction: 0.75}", 1),  # the bare intersection
    ],
)
def test_trainings_without_a_synthetic_row_do_not_count_unless_that_would_tell(
    trainings: Trainings, align: str, counted: int
) -> None:
    assert trainings.run("first", f"align: {{{align}}}\n{TRAIN}", trainings=1) == [None, None]
    made = trainings.job_folder("first", "clinic").load_alignment(["lab"])
    assert made
    assert (made[0].missing == 0) == (counted == 0 or "0.75" in align)
    assert [trainings.counted(name) for name in ROLES] == [counted, counted]
    assert "this is training" not in trainings.said("first", "lab")
    again = trainings.run("second", f"align: {{{align}}}\n{TRAIN}", trainings=1)
    assert isinstance(again[1], PolicyError) == bool(counted)


def test_where_both_have_all_records_no_row_is_synthetic_and_nothing_counts(trainings: Trainings, tmp_path: Path) -> None:
    clinic, lab = ([line.split(",", 1) for line in path.read_text().splitlines()] for path in trainings.files.values())
    ids = [line[0] for line in clinic]
    trainings.files["lab"] = tmp_path / "same.csv"
    trainings.files["lab"].write_text("\n".join(f"{id_},{rest}" for id_, (_, rest) in zip(ids, lab, strict=True)))
    assert trainings.run("first") == [None, None]
    assert [trainings.counted(name) for name in ROLES] == [0, 0]


def test_alignment_and_encrypted_regression_do_not_count(trainings: Trainings) -> None:
    assert trainings.run("first", "align: {protocol: psu}") == [None, None]
    logistic = "train: {algorithm: logistic, iterations: 1, key_bits: 2048}\nevaluate: {test_fraction: 0.3}\n"
    assert trainings.run("second", "align: {protocol: apsi, obfuscation: {fraction: 0.9}}\n" + logistic) == [None, None]
    assert [trainings.counted(name) for name in ROLES] == [0, 0]


NOISY = {"defences": [{"name": "dp", "max_grad_norm": 1.0, "noise_multiplier": 6.0}]}


def test_what_jobs_tell_of_labels_adds_up_however_they_align(trainings: Trainings) -> None:
    """And ε with it. A job that is repeated counts once, and one that breaks off counts, too."""
    repeated = TRAIN.replace("0.3}", "0.3, repeats: 2}")  # each repeat trains on other records
    for number, protocol in enumerate(("psi", "psu", "psi"), 1):
        text = repeated + f"align: {{protocol: {protocol}}}\n"
        assert trainings.run(f"job-{number}", text, clinic=NOISY) == [None, None]
        training = trainings.report(f"job-{number}")["training"]
        meter = trainings.report(f"job-{number}")["meters"]["labels"]
        assert meter["over"] == 2 * number
        assert ("added_up" in training["epochs"][0]["labels"]) == (number > 1)  # of the first repeat
        assert "added_up" in training["label_audit"]
        privacy = training["split"]["label_privacy"]
        assert privacy["epsilon_together"] == pytest.approx(epsilon(3.0, privacy["delta"], 4 * number))
        learnt = [of["text"] for of in trainings.report(f"job-{number}")["learnt"]["lab"] if of["what"] == "noised gradients"]
        assert [("earlier jobs" in text) for text in learnt] == [number > 1]
    text = repeated + "align: {protocol: psi}\n"
    broken = trainings.run("job-4", text, clinic=NOISY, dies_before="Embedding")
    assert isinstance(broken[1], PeerLost)
    for attempt in (2, 3):
        assert trainings.run("job-4", text, clinic=NOISY, attempt=attempt) == [None, None]
    assert trainings.report("job-4")["meters"]["labels"]["over"] == 8
    privacy = trainings.report("job-4")["training"]["split"]["label_privacy"]
    assert privacy["epsilon_together"] == pytest.approx(epsilon(3.0, privacy["delta"], 16))


def test_the_limit_is_for_all_jobs_together(trainings: Trainings) -> None:
    """The first of some jobs that are alike is allowed, and a later one is not."""
    text = TRAIN + "align: {protocol: psi}\n"
    assert trainings.run("free", text, clinic=NOISY) == [None, None]
    first = max(value for value in trainings.report("free")["training"]["label_audit"].values() if value)
    limited = {**NOISY, "policy": {"everyone": {"attacks": {"labels": min(first + 0.05, 0.99)}}}}
    results = (trainings.run(f"job-{number}", text, clinic=limited)[0] for number in range(14))
    stopped = next(result for result in results if isinstance(result, PolicyError))
    assert stopped.code == "E_LEAK"
    assert "attacks.labels" in stopped.message
