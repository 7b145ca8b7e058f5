"""The alignment of an earlier job is used again: nothing is aligned, and the same records are held out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.node.several import SeveralTrial
from tests.node.test_trainings import ROLES, TRAIN, Trainings
from vfl_node import compare
from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.data import stability
from vfl_node.errors import PeerError, PeerLost, StateError, UsageError, VflError
from vfl_node.execution.conversations import conversations
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.reuse import reused_job
from vfl_node.execution.run import set_up
from vfl_node.job import Job
from vfl_node.node.partners import Partner
from vfl_node.node.pruning import forget_alignments
from vfl_node.node.reuse import check_reuse, list_kept
from vfl_node.node.store import Store
from vfl_node.process.files import read_checked, write_checked
from vfl_node.settings.node import Data, Settings
from vfl_node.training.network import half as network_half
from vfl_node.training.split import half, passive, supervision
from vfl_node.training.split.missing.labels import contract
from vfl_node.transport.memory import memory_channels, run_together

AGAIN = f"align: {{reuse: first}}\n{TRAIN}"


class Kept(Trainings):
    """Jobs whose folders lie beside each other at each party, as in a node."""

    def job_folder(self, job_id: str, name: str) -> JobFolder:
        return JobFolder(self.folder / name / job_id)

    def end(self, job_id: str) -> None:
        """As nodes end a job that all have done."""
        for name in ROLES:
            self.job_folder(job_id, name).destroy_secrets()

    def rows(self, job_id: str, name: str) -> Any:
        (other,) = ROLES.keys() - {name}
        alignment, _, traffic = self.job_folder(job_id, name).load_alignment([other])  # type: ignore[misc]
        return alignment.rows, traffic.bytes_sent


@pytest.fixture
def kept(trial: Any, ram: Path) -> Kept:
    trainings = Kept(trial, ram)
    assert trainings.run("first") == [None, None]
    trainings.end("first")
    trainings.sent.clear()
    return trainings


def test_nothing_is_aligned_and_the_same_rows_are_held_out(kept: Kept) -> None:
    assert kept.run("second", AGAIN) == [None, None]
    assert "Reused" in kept.sent
    assert not {"Remembered", "SetSize", "Chunk"} & set(kept.sent)
    for name in ROLES:
        assert np.array_equal(kept.rows("second", name)[0], kept.rows("first", name)[0])
        assert kept.rows("second", name)[1] < 300 < kept.rows("first", name)[1]
        folders = [kept.job_folder(job_id, name) for job_id in ("first", "second")]
        assert folders[0].split.read_bytes() == folders[1].split.read_bytes()
        assert kept.counted(name) == 2, "a training is counted all the same"
        reports = {job_id: kept.report(job_id, name) for job_id in ("first", "second")}
        assert len({report["training"]["split_digest"] for report in reports.values()}) == 1
    assert compare({job_id: kept.report(job_id) for job_id in ("first", "second")}).note is None
    assert kept.run("third", TRAIN) == [None, None]  # the control: it holds out others
    assert kept.job_folder("third", "lab").split.read_bytes() != folders[0].split.read_bytes()
    kept.end("second")
    assert kept.run("fourth", AGAIN.replace("first", "second")) == [None, None]
    assert np.array_equal(kept.rows("fourth", "lab")[0], kept.rows("first", "lab")[0])


def test_of_a_job_that_only_aligned_rows_are_held_out_anew(kept: Kept) -> None:
    """And a toss that was cut off is made again by both."""
    assert kept.run("aligned", "align: {protocol: psu}\n") == [None, None]
    kept.end("aligned")
    assert not kept.job_folder("aligned", "lab").split.exists()
    again = AGAIN.replace("first", "aligned")
    assert any(isinstance(each, PeerLost) for each in kept.run("second", again, dies_before="Embedding"))
    assert kept.run("second", again, attempt=2) == [None, None]
    assert kept.run("third", again.replace("aligned", "second")) == [None, None]
    splits = [kept.job_folder(job_id, "lab").split.read_bytes() for job_id in ("second", "third")]
    assert splits[0] == splits[1] == kept.job_folder("second", "clinic").split.read_bytes()


def test_rows_are_held_out_as_before_after_a_job_that_only_aligned(kept: Kept) -> None:
    assert kept.run("aligned", "align: {reuse: first, protocol: psu}\n") == [None, None]
    kept.end("aligned")
    assert kept.run("second", AGAIN.replace("first", "aligned")) == [None, None]
    splits = [kept.job_folder(job_id, name).split.read_bytes() for job_id in ("first", "second") for name in ROLES]
    assert len(set(splits)) == 1


def lines_of(kept: Kept, name: str) -> tuple[str, list[str]]:
    head, *rows = kept.files[name].read_text().splitlines()
    return head, rows


def test_a_table_that_has_grown_is_that_of_then(kept: Kept, tmp_path: Path) -> None:
    """And one whose records are gone is told to the other party, by name."""
    head, rows = lines_of(kept, "lab")
    grown = tmp_path / "grown.csv"
    grown.write_text("\n".join([head, "new-1," + rows[0].partition(",")[2], *reversed(rows)]) + "\n")
    kept.files["lab"] = grown
    assert kept.run("second", AGAIN) == [None, None]
    assert np.array_equal(kept.rows("second", "lab")[0], kept.rows("first", "lab")[0])
    grown.write_text("\n".join([head, *rows[2:]]) + "\n")
    with pytest.raises(StateError, match="2 of the 160 records that took part in job first are not in the table") as caught:
        kept.run("third", AGAIN)
    assert (caught.value.code, caught.value.for_peer) == ("E_REUSE_ALIGN", "its records are not those of job first any more")


def test_an_alignment_that_is_gone_damaged_or_another_one_is_refused(kept: Kept) -> None:
    folder = kept.job_folder("first", "lab")
    split = folder.split.read_bytes()
    folder.split.unlink()
    ours, theirs = kept.run("second", AGAIN)
    for error in (ours, theirs):
        assert isinstance(error, PeerError)
        assert "another" in error.message
    folder.split.write_bytes(split)
    whole = (folder.path / "alignment").read_bytes()
    (folder.path / "alignment").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    _, damaged = kept.run("third", AGAIN)
    assert damaged.code == "E_STATE_CORRUPT"
    folder.forget_alignment()
    with pytest.raises(StateError, match="the alignment of job first is not kept here") as caught:
        kept.run("fourth", AGAIN)
    assert caught.value.code == "E_REUSE_ALIGN"


@pytest.mark.parametrize("place", ["Reused", "Embedding"])
def test_a_later_attempt_goes_on_and_needs_the_earlier_job_no_more(kept: Kept, place: str) -> None:
    undisturbed = kept.run("other", AGAIN)
    assert undisturbed == [None, None]
    assert any(isinstance(each, PeerLost) for each in kept.run("second", AGAIN, dies_before=place))
    if place == "Embedding":
        for name in ROLES:
            kept.job_folder("first", name).forget_alignment()
    assert kept.run("second", AGAIN, attempt=2) == [None, None]
    assert np.array_equal(kept.rows("second", "lab")[0], kept.rows("other", "lab")[0])


def test_a_training_goes_on_from_the_model_of_an_earlier_job(kept: Kept) -> None:
    """With a step of almost no length the weights stay those of then; without ``start_from`` they are others."""
    still = AGAIN.replace("epochs: 2", "epochs: 1, learning_rate: 1.0e-9, start_from: first")
    assert kept.run("second", still) == [None, None]
    assert kept.run("third", still.replace(", start_from: first", "")) == [None, None]
    for name in ROLES:
        first, second, third = (
            load_file(kept.job_folder(job_id, name).artefacts / "model.safetensors") for job_id in ("first", "second", "third")
        )
        near = {key: np.allclose(first[key], second[key], atol=1e-6) for key in first if not key.startswith("local.")}
        assert near
        assert all(near.values())
        assert not all(np.allclose(first[key], third[key], atol=1e-2) for key in near)
    assert kept.report("second")["local_metrics"] is None  # it would have had fewer epochs than the federated one
    assert kept.report("third")["local_metrics"]
    _, wider = kept.run("fourth", still.replace("bottom: [4], active", "bottom: [5], active"))
    assert (wider.code, "other widths" in wider.message) == ("E_MODEL", True)


def test_a_report_says_which_own_columns_have_moved_since_the_model_was_trained(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clinic's columns lie as they did, and its report says nothing: a control."""
    monkeypatch.setattr(stability, "LEAST_ROWS", 50)
    path = kept.job_folder("first", "lab").columns
    noted = stability.NotedTable.from_json(read_checked(path))
    first, *others = noted.columns
    elsewhere = first.model_copy(update={"edges": tuple(edge + 1e6 for edge in first.edges or ())})
    write_checked(path, noted.model_copy(update={"columns": (elsewhere, *others)}).to_json())
    job = AGAIN.replace("epochs: 2", "epochs: 1, start_from: first")

    def said(job_id: str, name: str) -> list[str]:
        assert kept.job_folder(job_id, name).sealed or kept.run(job_id, job) == [None, None]
        return [text for text in kept.report(job_id, name)["training"]["warnings"] if text.startswith("Own columns ")]

    assert said("second", "clinic") == []
    (warning,) = said("second", "lab")
    assert warning.startswith("Own columns lie otherwise than among the records that job first trained on: ")
    assert f": {first.name} (shifted, index " in warning
    assert others[0].name not in warning
    path.write_bytes(b"damaged")
    (warning,) = said("third", "lab")
    assert warning.startswith("Own columns were not compared with those of job first: ")
    path.unlink()
    assert said("fourth", "lab") == []


@dataclass
class Draws:
    """What the halves of some trainings have drawn, one of each kind for each training, in order.

    Attributes:
        rows: a digest of the columns at each position, of the lab.
        owned: bool[m], which positions the lab owns.
        noise: where the draws of its defences begin.
        labels: where the draws of the clinic's synthetic labels begin.
    """

    rows: list[Any] = field(default_factory=list)
    owned: list[Any] = field(default_factory=list)
    noise: list[bytes] = field(default_factory=list)
    labels: list[bytes] = field(default_factory=list)


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Draws:
    found = Draws()

    def encode(session: Any, data: Any, *given: Any) -> Any:
        encoder, inputs = half.encode(session, data, *given)
        found.rows.append(np.array(inputs.take(np.arange(len(data.alignment))).digests()))
        found.owned.append(data.alignment.owned)
        return encoder, inputs

    def way_out(session: Any, sender: Any, randomness: Any, *given: Any) -> Any:
        found.noise.append(randomness.bytes(8))
        return network_half.way_out(session, sender, randomness, *given)

    def build(strategy: Any, known: Any) -> Any:
        found.labels.append(known.randomness.bytes(8))
        return contract.build(strategy, known)

    monkeypatch.setattr(passive, "encode", encode)
    monkeypatch.setattr(passive, "way_out", way_out)
    monkeypatch.setattr(supervision, "build", build)
    return found


@pytest.mark.parametrize(("labels", "same"), [("random-pos", True), ("random-pred", False)])
def test_synthetic_rows_are_those_of_the_first_training_and_all_else_is_drawn_anew(
    trial: Any, ram: Path, draws: Draws, labels: str, same: bool
) -> None:
    """Also of a job that uses the alignment of one that used it. The control is a folder without the seed, as earlier ones are.

    Labels that are drawn in each step differ, and so does noise: of what is the same in two trainings the difference tells.
    """
    kept, train = (
        Kept(trial, ram),
        TRAIN.replace("train: {", f"train: {{missing: {{labels: {labels}}}, ") + "serve: {to: both}\n",
    )
    for job_id, align in (("first", ""), ("second", "align: {reuse: first}\n"), ("third", "align: {reuse: second}\n")):
        assert kept.run(job_id, align + train) == [None, None]
        kept.end(job_id)
    for later in (1, 2):
        assert (draws.rows[later] == draws.rows[0]).all()
        assert (draws.labels[later] == draws.labels[0]) == same
    assert len(set(draws.noise)) == 3
    secret, seed = kept.job_folder("third", "lab").synthetic, read_checked(kept.job_folder("first", "lab").synthetic).hex()
    assert secret.stat().st_mode & 0o077 == 0
    first, third = (json.loads(kept.job_folder(job_id, "lab").predictor.serving) for job_id in ("first", "third"))  # type: ignore[union-attr]
    assert (first["draws"], first.get("synthetic")) == (seed, None)
    assert (third["draws"] == seed, third["synthetic"]) == (False, seed)  # by which predictions make up the same rows
    for name in ROLES:
        kept.job_folder("third", name).synthetic.unlink()
    assert kept.run("fourth", "align: {reuse: third}\n" + train) == [None, None]
    moved = draws.rows[3] != draws.rows[0]
    assert not moved[draws.owned[0]].any()
    assert moved[~draws.owned[0]].mean() > 0.9
    folder = kept.job_folder("second", "lab")
    folder.forget_predictor()
    folder.forget_alignment()
    assert not folder.synthetic.exists()


def test_all_trials_of_a_sweep_have_the_same_synthetic_rows(trial: Any, ram: Path, draws: Draws) -> None:
    sweep = TRAIN.replace("0.3}", "0.2, validation_fraction: 0.2}\nsweep: {over: {learning_rate: [0.001, 0.01, 0.1]}}")
    assert Kept(trial, ram).run("first", sweep) == [None, None]
    assert len(draws.rows) > 2
    assert all((rows == draws.rows[0]).all() for rows in draws.rows)
    assert len(set(draws.noise)) == 3


AUTO = f"align: {{reuse: auto}}\n{TRAIN}"
BOTH = dict.fromkeys(ROLES, ("second", "first"))


def aligned(kept: Kept) -> bool:
    """Whether the last job aligned, by what the lab has sent."""
    return {"Remembered", "SetSize"} <= set(kept.sent)


def test_the_newest_alignment_that_both_have_kept_is_used(kept: Kept) -> None:
    """With the same records held out, and counted as a training; the report says which. The control: the lab has none."""
    assert kept.run("second") == [None, None]
    kept.end("second")
    kept.sent.clear()
    assert kept.run("third", AUTO, kept=BOTH) == [None, None]
    assert not aligned(kept)
    assert {"KeptAlignments", "Reused"} <= set(kept.sent)
    for name in ROLES:
        assert np.array_equal(kept.rows("third", name)[0], kept.rows("second", name)[0])
        assert kept.report("third", name)["alignment"]["reused"] == "second"
        assert kept.counted(name) == 3
    assert kept.job_folder("third", "lab").split.read_bytes() == kept.job_folder("second", "lab").split.read_bytes()
    assert kept.run("fourth", AUTO, kept=BOTH | {"lab": ("first",)}) == [None, None]
    assert kept.report("fourth")["alignment"]["reused"] == "first"
    assert not aligned(kept)
    assert kept.run("fifth", AUTO, kept=BOTH | {"lab": ()}) == [None, None]
    assert aligned(kept)
    assert kept.report("fifth")["alignment"]["reused"] is None


@pytest.mark.parametrize("change", ["grown", "gone", "damaged", "another"])
def test_where_one_party_has_none_of_the_same_records_all_align(kept: Kept, change: str, tmp_path: Path) -> None:
    head, rows = lines_of(kept, "lab")
    folder = kept.job_folder("first", "lab")
    if change in ("grown", "gone"):
        kept.files["lab"] = tmp_path / "other.csv"
        more = ["new-1," + rows[0].partition(",")[2]]
        kept.files["lab"].write_text("\n".join([head, *(rows + more if change == "grown" else rows[2:])]) + "\n")
    elif change == "damaged":
        whole = (folder.path / "alignment").read_bytes()
        (folder.path / "alignment").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    else:
        folder.split.unlink()
    assert kept.run("second", AUTO, kept=dict.fromkeys(ROLES, ("first",))) == [None, None]
    assert aligned(kept)
    assert kept.report("second")["alignment"]["reused"] is None


@pytest.mark.parametrize("lost", ["nothing", "here", "there"])
def test_what_was_agreed_on_holds_for_later_attempts(kept: Kept, lost: str) -> None:
    """The lab has heard nothing yet when it dies; the clinic has kept the decision, whatever either would choose by now."""
    both = dict.fromkeys(ROLES, ("first",))
    assert any(isinstance(each, PeerLost) for each in kept.run("second", AUTO, kept=both, dies_before="Reused"))
    assert reused_job(kept.trial.job(AUTO), kept.job_folder("second", "clinic").path) == "first"
    if lost != "nothing":
        kept.job_folder("first", "clinic" if lost == "here" else "lab").forget_alignment()
    if lost == "here":
        with pytest.raises(StateError, match="the alignment of job first is not kept here") as gone:
            kept.run("second", AUTO, attempt=2)
        assert gone.value.code == "E_REUSE_ALIGN"
        return
    (kept.job_folder("second", "lab").path / "reused").unlink(missing_ok=True)
    ends = kept.run("second", AUTO, attempt=2, kept={"lab": ["first"]})
    if lost == "nothing":
        assert ends == [None, None]
        assert kept.report("second")["alignment"]["reused"] == "first"
    else:
        assert (ends[0].code, "has not kept the alignment of job first" in ends[0].message) == ("E_REUSE_ALIGN", True)


def test_that_none_was_agreed_on_holds_too(kept: Kept) -> None:
    assert any(isinstance(each, PeerLost) for each in kept.run("second", AUTO, dies_before="SetSize"))
    assert kept.run("second", AUTO, attempt=2, kept=dict.fromkeys(ROLES, ("first",))) == [None, None]
    assert kept.report("second")["alignment"]["reused"] is None


def run_of_several(several: SeveralTrial, folder: Path, job_id: str, kept: Mapping[str, Sequence[str]]) -> list[Any]:
    """What became of a job that aligns, at the clinic, the lab and the insurer; ``kept``: which jobs each can use again."""
    job = several.job("align: {protocol: psi, reuse: auto}", passive=("lab", "insurer"))
    channels: dict[str, dict[str, Any]] = {name: {} for name in job.parties.data}
    for other in job.parties.passive:
        channels["clinic"][other], channels[other]["clinic"] = memory_channels("clinic", other, job_id=job_id)
    runs = []
    for name, own in channels.items():
        data = Data(path=several.files[name], label="label" if name == "clinic" else None)
        settings = Settings(name=name, role=ROLES.get(name, "passive"), data=data, insecure_loopback=True, device="cpu")
        memories = {peer: Partner(folder / "partners" / name, peer) for peer in job.parties.others(name)}
        run = set_up(
            settings,
            job,
            job_id,
            read_input(settings, job),
            Randomness(f"{job_id} {name}".encode().ljust(32)),
            JobFolder(folder / name / job_id),
            LiveProgress(job_id, Stop()),
            1,
            memories,
            own,
            kept=kept.get(name, ()),
        )
        runs += [(protocol, own.values()) for protocol in conversations(run)]
    return run_together(*runs)


def test_with_several_passive_parties_all_must_have_it(several: SeveralTrial, ram: Path) -> None:
    def reused(job_id: str, name: str) -> Any:
        return json.loads((ram / name / job_id / "artefacts" / "report.json").read_text())["alignment"]["reused"]

    parties = ("clinic", "lab", "insurer")
    assert run_of_several(several, ram, "first", {}) == [None] * 3
    for job_id, lacking in (("second", "nobody"), ("third", "insurer"), ("fourth", "clinic")):
        assert run_of_several(several, ram, job_id, dict.fromkeys({*parties} - {lacking}, ("first",))) == [None] * 3
        assert {reused(job_id, name) for name in parties} == {"first" if lacking == "nobody" else None}


JOB = "name: demo\nparties: {active: clinic, passive: lab}\n"


def test_only_a_job_of_the_same_parties_tables_and_terms_may(tmp_path: Path) -> None:
    def job(text: str) -> Job:
        return parse(JOB + text, Job, source="job")

    with closing(Store(tmp_path)) as store:
        for number in range(3):
            record = store.add(job("align: {protocol: psi}"), submitter="clinic", job_id=f"first-{number}")
            store.update(record, state="done")
            folder = store.job_folder(record)
            for path in (folder.path / "alignment", folder.rows):
                path.write_bytes(b"")
            folder.artefacts.mkdir()
            folder.seal()
        check_reuse(store, job("align: {protocol: psi, reuse: first-0}\ntrain: {bottom: [4]}"))
        for text, said in {
            "align: {protocol: psu, reuse: first-0}": "align.protocol differ",
            "align: {protocol: psi, padding: 2, reuse: first-0}": "align.padding differ",
            "align: {protocol: psi, reuse: first-0}\ntables: {lab: panel}": "tables",
        }.items():
            with pytest.raises(UsageError, match=said) as caught:
                check_reuse(store, job(text))
            assert caught.value.code == "E_REUSE_ALIGN"
        told = []
        for name in ("first-0", "nobody"):  # a stranger hears the same of a job that there was and of one that there was not
            with pytest.raises(VflError) as refused:
                check_reuse(store, parse(JOB.replace("clinic", "bank") + f"align: {{reuse: {name}}}", Job, source="job"))
            told.append((refused.value.for_peer.replace(name, ""), refused.value.peer_code or refused.value.code))
        assert told[0] == told[1]
        for several in ("repeats: 2", "hold_out: {last: 0.2}"):
            with pytest.raises(UsageError, match=r"which rows|other rows"):
                job(f"align: {{reuse: first-0}}\nevaluate: {{{several}}}\ntrain: {{start_from: first-0}}")
        changes = ("evaluate: {test_fraction: 0.3}", "evaluate: {validation_fraction: 0.2}", "train: {seed: 2, ")
        for other in (f"{change}\ntrain: {{" if change.startswith("evaluate") else change for change in changes):
            record = store.add(job("train: {bottom: [4]}"), submitter="clinic", job_id=f"trained-{len(other)}")
            store.update(record, state="done")
            folder = store.job_folder(record)
            for path in (folder.path / "alignment", folder.rows):
                path.write_bytes(b"")
            text = f"align: {{reuse: {record.id}}}\n{other}start_from: {record.id}}}"
            check_reuse(store, job(text.replace(other, "train: {")))
            with pytest.raises(UsageError, match="would train on rows held out there") as caught:
                check_reuse(store, job(text))
            assert caught.value.code == "E_SPLIT"
        with pytest.raises(UsageError, match="first-0, too"):
            job("train: {start_from: first-0}")
        with pytest.raises(StateError, match="of job nobody is not kept here"):
            check_reuse(store, job("align: {protocol: psi, reuse: nobody}"))
        auto = job("align: {protocol: psi, reuse: auto}")
        check_reuse(store, auto)
        check_reuse(store, job("align: {protocol: psu, reuse: auto}"))
        assert list_kept(store, auto) == ["first-2", "first-1", "first-0"]
        assert not {"first-0", "first-1", "first-2"} & {*list_kept(store, job("align: {protocol: psu, reuse: auto}"))}
        assert list_kept(store, job("align: {protocol: psi}")) == []
        waiting = store.add(job("align: {protocol: psi, reuse: first-0}"), submitter="clinic", job_id="waiting")
        forget_alignments(store, 2)
        check_reuse(store, waiting.job)  # which may use it still
        store.update(waiting, state="failed", code="E_CANCELLED")
        agreed = store.add(auto, submitter="clinic", job_id="agreed")
        write_checked(store.job_folder(agreed).path / "reused", b"first-0")
        forget_alignments(store, 2)
        check_reuse(store, job("align: {protocol: psi, reuse: first-0}"))
        store.update(agreed, state="failed", code="E_CANCELLED")
        damaged = store.add(auto, submitter="clinic", job_id="damaged")  # cannot go on, and keeps no other job from that
        (store.job_folder(damaged).path / "reused").write_bytes(b"first-0")
        forget_alignments(store, 2)
        check_reuse(store, job("align: {protocol: psi, reuse: first-1}"))
        with pytest.raises(StateError, match="of job first-0 is not kept here"):
            check_reuse(store, job("align: {protocol: psi, reuse: first-0}"))
    with pytest.raises(UsageError, match="in which a coordinator takes part"):
        parse(
            "name: demo\nparties: {active: clinic, passive: lab, coordinator: hub}\nalign: {protocol: linkage, reuse: first, "
            "keys: {u: {kind: number, low: -9, high: 9, reach: 3}}, noise: {sigma: 0.4}}\n",
            Job,
            source="job",
        )


def test_a_job_without_it_is_the_job_of_earlier_versions() -> None:
    assert "reuse" not in parse(JOB, Job, source="job").canonical()
