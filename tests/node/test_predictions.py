"""Predictions by two real nodes: asked again they are the same bytes, whichever node was killed; nobody else gets any."""

from __future__ import annotations

import csv
import http.client
import io
import json
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.node.halves import together
from tests.node.nodes import LEFT, Command
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.alignment.upsi.reveals import declare
from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError, ProtocolError, StateError, UsageError, VflError
from vfl_node.execution.allowed import check_allowed
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.run import set_up
from vfl_node.execution.simulation import simulate
from vfl_node.job import Align, Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.node import predictions
from vfl_node.node.counts import PartnerCounts
from vfl_node.node.jobs import Jobs
from vfl_node.node.partners import Partner
from vfl_node.node.predictions import Model
from vfl_node.node.record import Record
from vfl_node.node.store import Store
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.node import Data, Peer, Settings
from vfl_node.settings.reading import load_settings
from vfl_node.training.prediction.stored import FileShown, FileTally, StoredPredictor
from vfl_node.training.predictor import ServiceCount as Exchanged
from vfl_node.training.split.prediction import Embedder, Scorer, SplitModel
from vfl_node.transport.memory import memory_channels

BATCH = 16
TRAIN = """\
train: {bottom: [8], active_bottom: [4], top: [8], epochs: 2, batch_size: 64, learning_rate: 0.01}
evaluate: {test_fraction: 0.3}
"""
STOPPED = """\
align: {protocol: psi}
train: {bottom: [16], active_bottom: [8], top: [16], epochs: 400, patience: 2, batch_size: 1, learning_rate: 0.03}
evaluate: {test_fraction: 0.3, validation_fraction: 0.2}
serve: {to: both, batch_size: 16}
"""
SERVE = f"serve: {{to: both, batch_size: {BATCH}}}\n"
OTHER = {"clinic": "lab", "lab": "clinic"}
OWN = {"clinic": (150, 3, 50, 100), "lab": (190, 45, 60)}
"""Records of each party, of which the other has some: the trial's first 160 are the clinic's, those from 40 on the lab's."""


def asks(rows: list[bytes] | tuple[Any, ...], *, columns: str = "id") -> bytes:
    return (columns + "\n" + "".join(f"{row}\n" for row in rows)).encode()


def nothing() -> None:
    """While a client waits."""


class Served:
    """Two nodes that have trained a model, and kept it for predictions."""

    def __init__(self, federation: Any, forked: Any, job: str = TRAIN + SERVE) -> None:
        import killed_trainer

        self.federation = federation
        for name in OTHER:
            self.deaths(name).mkdir()
            federation.programs[name] = partial(forked, killed_trainer.run, self.deaths(name))
        federation.configure("clinic", accepts=["lab"])
        federation.start_both()
        self.model = self.train(job)
        self.text: dict[str, bytes] = {}

    def deaths(self, name: str) -> Path:
        return self.federation.folder / f"{name}-deaths"

    def train(self, text: str) -> str:
        job_id = self.federation.submit(text)
        for name in OTHER:
            assert self.federation.end(name, job_id)["state"] == "done", self.federation.log(name)[-3000:]
        return job_id

    def up(self) -> None:
        for name in OTHER:
            if self.federation.processes[name].poll() is not None:
                self.federation.start(name)
        self.federation.wait_until(lambda: all(self.federation.connected(name) for name in OTHER))

    def ids(self, name: str) -> list[str]:
        return [self.federation.trial.ids[row] for row in OWN[name]]

    def ask(self, name: str, request: bytes | None = None, model: str = "") -> bytes:
        request = asks(self.ids(name)) if request is None else request
        return self.federation.client(name).predict(model or self.model, request, nothing)

    def expected(self, name: str) -> bytes:
        """What ``name`` is told where nothing disturbs, by a service that runs."""
        answer = self.ask(name)
        assert self.text.setdefault(name, answer) == answer
        return answer

    def service(self, name: str) -> str:
        """The newest job by which ``name`` asks the model."""
        return self.service_of(name, self.model)

    def service_of(self, name: str, model: str) -> str:
        """The job by which ``name`` asks ``model``: the one that runs, else the newest."""
        wanted = {"model": model, "to": self.federation.roles[name]}.items()
        found = [view for view in self.federation.client(name).jobs() if wanted <= (view["predict"] or {}).items()]
        return next((view for view in found if view["state"] == "running"), found[0])["id"]

    def cancel(self, name: str) -> None:
        """End the service of ``name``, so that the next request begins a new one."""
        job_id = self.service(name)
        self.federation.client(name).cancel(job_id)
        for party in OTHER:
            assert self.federation.end(party, job_id)["state"] == "done"

    def command(self, name: str, *words: str | Path) -> Command:
        """``vfl-node predict`` at ``name``."""
        return Command("predict", self.model, *words, "--config", self.federation.folder / name / "node.yaml")

    def together(self, ids: list[str]) -> list[float]:
        """What the stored halves make of records that both parties own."""
        halves = []
        for name, kind in (("clinic", Scorer), ("lab", Embedder)):
            _, model, table = self.stored(name)
            row_of = {id_: row for row, id_ in enumerate(table.ids)}
            rows = np.array([row_of[f"text:{id_}".encode()] for id_ in ids])
            aligned = Alignment(
                ALIGNMENTS["psi"], "curve25519", rows, len(rows), {OTHER[name]: PeerFacts(len(rows), len(rows), missing=0)}
            )
            halves.append(kind(SplitModel.load(model.stored), aligned, table, torch.device("cpu")))
        scorer, embedder = halves
        positions = np.arange(len(ids))
        return list(scorer.own_probability(positions, [embedder.embed_shared(positions)]))

    def stored(self, name: str) -> tuple[Any, Model, Any]:
        """Settings, half of the model and table of ``name``, from its disk."""
        settings, store = self.store(name, self.model, TRAIN + SERVE)
        model = predictions.load_model(store, self.model, settings)
        return settings, model, read_input(settings, model.job)

    def store(self, name: str, model: str, text: str) -> tuple[Any, Any]:
        """Settings of ``name``, and so much of its store as predictions by ``model`` read, though its node has it open."""
        folder = self.federation.folder / name
        record = SimpleNamespace(job=self.federation.trial.job(text))
        return load_settings(folder / "node.yaml"), SimpleNamespace(
            get=lambda _: record,
            job_folder=lambda _: JobFolder(self.federation.job_folder(name, model)),
            partner=partial(Partner, folder / "state" / "partners"),
        )


@pytest.fixture(scope="module")
def served(federations: Any, forked: Any, tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(federations(tmp_path_factory.mktemp("served")), forked)


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> None:
    """Both nodes are up when a test begins."""
    if "served" in request.fixturenames:
        request.getfixturevalue("served").up()


def table_of(answer: bytes) -> tuple[list[str], list[str], list[float | None]]:
    """Header, ids and probabilities of an answer; None where it has none."""
    head, *rows = csv.reader(io.StringIO(answer.decode()))
    return head, [row[0] for row in rows], [float(row[1]) if row[1] else None for row in rows]


def test_the_passive_party_knows_from_the_first_day_which_rows_it_showed_in_training(served: Served) -> None:
    """Held-out rows met the weights that predict, so that they are attacked with those that are asked for."""
    job_id = served.train(TRAIN + SERVE)
    held_out = 0.3 * served.federation.report("lab", job_id)["alignment"]["rows"]
    for name, shown in (("lab", held_out), ("clinic", 0)):
        found = FileShown(served.federation.job_folder(name, job_id) / "shown", 0).rows()
        assert len(found) == pytest.approx(shown, abs=1)


def test_a_model_is_over_the_table_that_its_owners_settings_name(served: Served) -> None:
    settings, store = served.store("lab", served.model, TRAIN + SERVE)
    named = settings.model_copy(update={"data": {"panel": settings.data}})  # the only one, which the job does not name
    assert predictions.load_model(store, served.model, named).stored.table == "panel"


def test_services_are_listed_with_what_was_asked_and_what_is_left(served: Served) -> None:
    served.ask("lab")
    served.cancel("lab")
    names = ("clinic", "lab")
    assert not [each for name in names for each in services(served, name) if each["job"] == served.service("lab")]
    served.ask("lab")
    job_id = served.service("lab")
    served.federation.wait_until(lambda: all(services(served, name)[-1]["rows"] for name in names))
    for name in names:
        listed = services(served, name)[-1]
        assert (listed["job"], listed["model"], listed["asker"], listed["state"]) == (job_id, served.model, "lab", "running")
        assert listed["requests"] == (1 if name == "lab" else 0)
        assert listed["rows"] % BATCH == 0
        shown = FileShown(served.federation.job_folder(name, served.model) / "shown", 0)
        assert listed["predicted_rows"]["used"] == shown.told
    told = services(served, "clinic")[-1]["predicted_rows"]
    left = f"{told['allowed'] - told['used']:,}"
    with Command("services", "--config", served.federation.folder / "clinic" / "node.yaml") as listing:
        lines = listing.ended().stdout.splitlines()
    (line,) = (line for line in lines if line.startswith(job_id))
    assert line.split()[1:] == [served.model, "running", "lab", "0", f"{listed['rows']:,}", left]
    assert "requests" in lines[0]


def services(served: Served, name: str) -> list[dict[str, Any]]:
    return list(served.federation.client(name).health()["services"])


@pytest.mark.parametrize("name", ["clinic", "lab"])
def test_known_records_are_predicted_by_both_halves(served: Served, name: str) -> None:
    head, ids, found = table_of(served.ask(name))
    assert head == ["id", "probability"]
    assert ids == served.ids(name)
    sides = {}
    for party, kind in (("clinic", Scorer), ("lab", Embedder)):
        _, model, table = served.stored(party)
        sides[party] = kind(SplitModel.load(model.stored), model.alignment, table, torch.device("cpu"))
    scorer, embedder = sides["clinic"], sides["lab"]
    _, _, table = served.stored(name)
    rows = [list(table.ids).index(f"text:{id_}".encode()) for id_ in ids]
    meant = scorer.own_probability if name == "clinic" else scorer.probability
    expected = []
    for row in rows:
        position = int(np.flatnonzero(sides[name].alignment.rows == row)[0])
        numbers, places = scorer.batches.find(np.array([position]))
        positions = scorer.batches.positions(int(numbers[0]))
        expected.append(float(meant(positions, [embedder.embed_shared(positions)])[places[0]]))
    assert found == expected
    assert len(set(found)) == len(found)


def test_a_regression_predicts_numbers_in_the_targets_unit(served: Served) -> None:
    """The trial's labels 0 and 1 taken as numbers; the file says that these are no probabilities."""
    job_id = served.train(TRAIN.replace("train: {", "train: {task: regression, ") + SERVE)
    report = served.federation.report("clinic", job_id)
    assert set(report["metrics"]["intervals"]) <= {"rmse", "mae", "r2", "mse"}
    assert report["metrics"]["rmse"] > 0
    assert report["metrics"]["auc"] is None
    for name in OTHER:
        head, ids, found = table_of(served.ask(name, model=job_id))
        assert head == ["id", "prediction"]
        assert ids == served.ids(name)
        assert all(number is not None and abs(number) < 10 for number in found)


def test_a_regression_under_encryption_predicts(served: Served, tmp_path: Path) -> None:
    """Known records over an intersection, and the ledger has what travelled."""
    job = "align: {protocol: psi}\ntrain: {algorithm: logistic, iterations: 3, key_bits: 2048, least_rows: 0}\n" + SERVE
    job_id = served.train(job)
    expected = together(served.federation, served.federation.trial.job(job), job_id, OTHER, tmp_path)
    asked = sorted(expected)[5:20]
    for name in OTHER:
        _, ids, found = table_of(served.ask(name, asks(asked), model=job_id))
        assert ids == asked
        assert found == pytest.approx([expected[id_] for id_ in ids], abs=1e-9)
        served.federation.client(name).cancel(service := served.service_of(name, job_id))
        assert served.federation.end(name, service)["state"] == "done"
        learnt = served.federation.report(name, service)["learnt"]
        assert "partial scores" in {entry["what"] for entry in learnt["clinic"]}
    assert np.ptp(list(expected.values())) > 0.1


@pytest.mark.parametrize("name", ["clinic", "lab"])
def test_requests_take_turns_in_one_job_and_asking_again_gives_the_same_bytes(served: Served, name: str) -> None:
    expected, service = served.expected(name), served.service(name)
    answers: list[bytes] = []
    threads = [threading.Thread(target=lambda: answers.append(served.ask(name))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 4
    assert served.service(name) == service
    assert served.federation.view(OTHER[name], service)["state"] == "running"


def test_what_is_kept_is_private_and_no_more_than_needed(served: Served) -> None:
    for name in OTHER:
        folder = served.federation.job_folder(name, served.model)
        served.federation.wait_until(lambda folder=folder: not (folder / "seed").exists())
        assert {path.name for path in folder.iterdir()} == LEFT | {"serving", "shown"}
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.rglob("*") if path.is_file())


def test_what_cannot_be_asked_is_said_and_the_service_goes_on(served: Served) -> None:
    expected, service = served.expected("clinic"), served.service("clinic")
    ids = served.ids("clinic")
    for request, code, said in (
        (asks([*ids, "canary-of-nobody", "canary-0199-patient"]), "E_UNKNOWN_ID", "2 of 6 ids"),
        (asks([*ids, "canary-of-nobody"]), "E_UNKNOWN_ID", "line 6"),
        (asks([*ids, ids[0]]), "E_DUP_IDS", "lines 2 and 6"),
        (asks(ids, columns="name"), "E_COLUMN", "no column 'id'"),
        (asks([]), "E_EMPTY", "clinic: the records to predict"),
        (b"\xff\xfe", "E_CSV", "UTF-16"),
    ):
        with pytest.raises(VflError, match=said) as caught:
            served.ask("clinic", request)
        assert caught.value.code == code
    assert served.ask("clinic") == expected
    assert served.service("clinic") == service
    requests = served.federation.folder / "clinic" / "state" / "requests"
    assert list(requests.iterdir()) == []
    assert "canary" not in served.federation.log("clinic") + served.federation.log("lab")


@pytest.mark.parametrize(
    ("name", "victim"),
    [
        ("clinic", "lab"),
        *(pytest.param(*of, marks=pytest.mark.slow) for of in (("clinic", "clinic"), ("lab", "clinic"), ("lab", "lab"))),
    ],
)
def test_a_node_killed_between_requests_is_waited_for(served: Served, name: str, victim: str) -> None:
    expected, service = served.expected(name), served.service(name)
    served.federation.kill(victim)
    if victim == name:
        served.federation.start(victim)
        assert served.ask(name) == expected
    else:
        answers: list[bytes] = []
        thread = threading.Thread(target=lambda: answers.append(served.ask(name)))
        thread.start()
        served.federation.wait_until(lambda: f"waiting for {victim}" in served.federation.view(name, service)["note"])
        assert answers == []
        served.federation.start(victim)
        thread.join()
        assert answers == [expected]
    assert served.service(name) == service


@pytest.mark.parametrize(
    ("name", "victim", "place"),
    [
        pytest.param("clinic", "clinic", "PredictionAsk", marks=pytest.mark.slow),
        ("clinic", "lab", "Embedding 0"),  # the only one that is sent for certain: few records may lie in one batch
        pytest.param("lab", "lab", "Embedding 0", marks=pytest.mark.slow),
        pytest.param("lab", "clinic", "Probabilities 0", marks=pytest.mark.slow),
    ],
)
def test_a_node_killed_in_a_request_is_asked_again(served: Served, tmp_path: Path, name: str, victim: str, place: str) -> None:
    expected = served.expected(name)
    served.cancel(name)
    (served.deaths(victim) / "death").write_text(place)
    (tmp_path / "ids.csv").write_bytes(asks(served.ids(name)))
    with served.command(name, "--data", tmp_path / "ids.csv", "--out", tmp_path / "p.csv") as command:
        assert served.federation.processes[victim].wait(240) == -signal.SIGKILL
        served.federation.start(victim)
        done = command.ended()
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.csv").read_bytes() == expected
    assert stat.S_IMODE((tmp_path / "p.csv").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("name", "victim", "place"),
    [("clinic", "lab", "Embedding 0"), pytest.param("lab", "clinic", "Probabilities 0", marks=pytest.mark.slow)],
)
def test_requests_that_share_an_exchange_are_all_answered_after_a_kill_in_it(
    served: Served, name: str, victim: str, place: str
) -> None:
    """Nothing is counted twice but what was asked for twice, and nothing that was told is forgotten."""
    head, *rows = served.expected(name).splitlines()
    served.cancel(name)
    shown = {party: FileShown(served.federation.job_folder(party, served.model) / "shown", 0).rows() for party in OTHER}
    (served.deaths(victim) / "death").write_text(place)
    ids, answers = served.ids(name), dict[int, bytes]()
    wanted = [[0], [*range(len(ids))], [len(ids) - 1, 0]]

    def ask(number: int) -> None:
        answers[number] = served.ask(name, asks([ids[row] for row in wanted[number]]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(wanted))]
    for thread in threads:
        thread.start()
    assert served.federation.processes[victim].wait(240) == -signal.SIGKILL
    served.federation.start(victim)
    for thread in threads:
        thread.join()
    for number, places in enumerate(wanted):
        assert answers[number].splitlines() == [head, *(rows[place] for place in places)]
    (listed,) = [each for each in services(served, name) if each["job"] == served.service(name)]
    assert listed["requests"] == len(wanted)
    for party, before in shown.items():
        now = FileShown(served.federation.job_folder(party, served.model) / "shown", 0).rows()
        assert np.array_equal(now, before)


@pytest.mark.parametrize("victim", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_a_node_that_is_stopped_pauses_a_service_that_nobody_asks(served: Served, victim: str) -> None:
    expected, service = served.expected("clinic"), served.service("clinic")
    before = len(served.federation.log(victim))
    assert served.federation.kill(victim, signal.SIGTERM) == 0
    said = served.federation.log(victim)[before:]
    assert said.index("job paused") < said.index("node down")
    assert "Traceback" not in said
    served.up()
    assert '"state": "paused"' in served.federation.log(victim)[before + len(said) :]
    assert served.ask("clinic") == expected
    assert served.service("clinic") == service


def test_cancelled_where_it_is_asked_it_ends_well_at_both(served: Served) -> None:
    expected, before = served.expected("clinic"), served.service("clinic")
    served.cancel("clinic")
    for name in OTHER:
        report = served.federation.report(name, before)
        assert report["alignment"] is None
        assert (report["predictions"]["model"], report["predictions"]["to"]) == (served.model, "clinic")
        assert (report["predictions"]["requests"] is None) == (name == "lab")
        whats = {party: [entry["what"] for entry in entries] for party, entries in report["learnt"].items()}
        assert whats == {"clinic": ["embeddings"], "lab": ["requests"]}
        folder = served.federation.job_folder(name, before)
        served.federation.wait_until(lambda folder=folder: {path.name for path in folder.iterdir()} == {"artefacts"})
    assert served.ask("clinic") == expected
    assert served.service("clinic") != before


def test_cancelled_where_it_is_answered_it_ends_and_the_next_request_begins_anew(served: Served) -> None:
    """Both have a report of all that was disclosed, before either node was killed too."""
    served.expected("clinic")
    served.cancel("clinic")
    expected, once = served.expected("clinic"), served.service("clinic")
    served.cancel("clinic")
    each = served.federation.report("clinic", once)["predictions"]["batches"]
    for victim in ("lab", "clinic"):
        assert served.ask("clinic") == expected
        served.federation.kill(victim)
        served.federation.start(victim)
    assert served.ask("clinic") == expected
    before = served.service("clinic")
    served.federation.client("lab").cancel(before)
    assert served.federation.end("lab", before)["state"] == "cancelled"
    view = served.federation.end("clinic", before)
    assert view["state"] == "cancelled"
    assert "lab" in view["error"]["message"]
    for name, requests in (("clinic", 3), ("lab", None)):
        report = served.federation.report(name, before)
        assert (report["predictions"]["batches"], report["predictions"]["requests"]) == (3 * each, requests)
        assert report["learnt"]["lab"][0]["count"] == 3 * each
        assert report["learnt"]["clinic"][0]["count"] == 3 * each * BATCH
        folder = served.federation.job_folder(name, before)
        served.federation.wait_until(lambda folder=folder: {path.name for path in folder.iterdir()} == {"artefacts"})
    assert served.ask("clinic") == expected


@pytest.fixture
def limited(served: Served) -> Iterator[Callable[..., None]]:
    """Starts the laboratory's node with other limits, and without them at the end."""

    def start(**limits: Any) -> None:
        served.federation.kill("lab", signal.SIGTERM)
        served.federation.start("lab", everyone=limits)
        served.up()

    yield start
    start()


def refused(served: Served, model: str) -> tuple[VflError, dict[str, Any]]:
    """What the clinic's owner hears who asks for all own records, and the laboratory's view of that service."""
    everything = asks([served.federation.trial.ids[row] for row in range(160)])
    with pytest.raises(VflError) as caught:
        served.ask("clinic", everything, model)
    return caught.value, served.federation.end("lab", served.service_of("clinic", model))


def test_rows_are_counted_over_services_and_restarts(served: Served, limited: Callable[..., None]) -> None:
    expected = served.expected("clinic")
    path = served.federation.job_folder("lab", served.model) / "shown"
    told, (_, later) = FileShown(path, 1).rows(), FileShown(path, 1)._read()
    limited(
        budgets={"predicted_rows": len(later)}
    )  # those held out are free: to count them would leave room for most of the others
    for _ in range(2):
        assert served.ask("clinic") == expected
        error, view = refused(served, served.model)
        assert view["error"]["code"] == "E_BUDGET"
        assert "its policy does not allow the job (budget)" in error.message
        assert "predicted_rows" not in error.message + served.federation.log("clinic")
        assert (FileShown(path, 1).rows() == told).all()
    report = served.federation.report("lab", view["id"])
    assert report["predictions"]["told"] == len(told)


def test_a_request_beyond_the_other_partys_budget_fails_alone(served: Served, limited: Callable[..., None]) -> None:
    """Requests wait together while the laboratory does not answer: the exchange that they share is refused."""
    head, *rows = served.expected("clinic").splitlines()
    shown = FileShown(served.federation.job_folder("lab", served.model) / "shown", 1)
    told, (_, later) = shown.rows(), shown._read()
    limited(budgets={"predicted_rows": len(later)})
    served.federation.processes["lab"].send_signal(signal.SIGSTOP)
    ids, everything = served.ids("clinic"), [served.federation.trial.ids[row] for row in range(160)]
    wanted = [[ids[0]], everything, [ids[-1], ids[0]]]
    outcomes: dict[int, bytes | VflError] = {}

    def ask(number: int) -> None:
        try:
            outcomes[number] = served.ask("clinic", asks(wanted[number]))
        except VflError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(1)  # all of them wait now
    served.federation.processes["lab"].send_signal(signal.SIGCONT)
    for thread in threads:
        thread.join()
    assert outcomes[0].splitlines() == [head, rows[0]]  # type: ignore[union-attr]
    assert outcomes[2].splitlines() == [head, rows[-1], rows[0]]  # type: ignore[union-attr]
    assert isinstance(outcomes[1], VflError)
    assert "its policy does not allow the job (budget)" in outcomes[1].message
    assert (shown.rows() == told).all()


def test_new_records_are_not_aligned_where_no_further_row_may_be_told(
    served: Served, trial: Any, limited: Callable[..., None]
) -> None:
    """An alignment of an hour came before the refusal."""
    shown = FileShown(served.federation.job_folder("lab", served.model) / "shown", 1)
    limited(budgets={"predicted_rows": max(1, shown.told)})
    models = served.federation.client("lab").health()["budgets"]["models"]
    assert models[served.model] == {"predicted_rows": {"used": shown.told, "allowed": max(1, shown.told)}}
    job_id = served.federation.client("clinic").predict_new(served.model, new_records(trial, "clinic", range(20, 150)))["id"]
    assert served.federation.end("lab", job_id)["error"]["code"] == "E_BUDGET"
    told = served.federation.end("clinic", job_id)["error"]
    assert "its policy does not allow the job (budget)" in told["message"]
    log = served.federation.log("lab") + served.federation.log("clinic")
    assert not any("phase=align" in line or '"align"' in line for line in log.splitlines() if job_id in line)


def test_a_service_that_would_tell_copies_ends_and_its_peer_learns_no_more_than_that(
    served: Served, limited: Callable[..., None]
) -> None:
    model = served.train(TRAIN.replace("train: {", "train: {missing: {features: sampling}, ") + SERVE)
    limited(attacks={"rows": 0.6})
    error, view = refused(served, model)
    assert view["error"]["code"] == "E_LEAK"
    assert "E_STOPPED" in error.message
    assert not any(word in error.message + served.federation.log("clinic") for word in ("E_LEAK", "AUC of", "attacks.rows"))
    path = served.federation.job_folder("lab", model) / "shown"
    told = len(FileShown(path, 1).rows())
    assert told < 150
    limited()
    served.ask("clinic", asks([served.federation.trial.ids[row] for row in range(160)]), model)
    assert len(FileShown(path, 1).rows()) > told
    service = served.service_of("clinic", model)

    def found() -> float:  # beside the requests, where nothing is limited
        return served.federation.view("lab", service)["attacks"].get("same_step_twin") or 0.0

    served.federation.wait_until(lambda: found() > 0.7)


def test_a_cancelled_service_ends_though_its_node_is_killed_first(served: Served) -> None:
    expected, before = served.expected("clinic"), served.service("clinic")
    served.federation.processes["lab"].send_signal(signal.SIGSTOP)
    served.federation.client("clinic").cancel(before)
    assert served.federation.view("clinic", before)["state"] == "running"  # nobody answers that it has ended
    served.federation.kill("clinic")
    served.federation.processes["lab"].send_signal(signal.SIGCONT)
    served.federation.start("clinic")
    for name in OTHER:
        served.federation.wait_until(lambda name=name: served.federation.view(name, before)["state"] == "done")
    assert served.ask("clinic") == expected
    assert served.service("clinic") != before


def test_a_part_of_the_records_is_predicted_where_a_part_was_trained_on(
    federation: Any, forked: Any, trial: Any, tmp_path: Path
) -> None:
    """Known records are those of the model's job, whatever another one says."""
    text = "align: {at_most: 100}\n" + TRAIN + SERVE
    served = Served(federation, forked, text)  # of its own: where all records took part before, no part does
    model = served.model
    hand_made = trial.job(f"align: {{protocol: psi}}\npredict: {{model: {model}, to: active, rows: known}}\n")
    with pytest.raises(UsageError, match=r"its align\.at_most, align\.protocol, name must be as the training says") as refused:
        served.federation.client("clinic").submit(hand_made.canonical())
    assert refused.value.code == "E_PREDICT"

    sides = {}
    for name, kind in (("clinic", Scorer), ("lab", Embedder)):
        settings, store = served.store(name, model, text)
        known = predictions.job_for(store, model, "clinic", new=False)
        table, predicting = predictions.prepare(settings, store, known, JobFolder(tmp_path / name), None)
        assert len(table) == 100
        other = known.model_copy(update={"align": Align(at_most=50)})  # as check refuses
        peer = OTHER[name]
        run = set_up(
            settings,
            other,
            "job",
            predictions.prepare(settings, store, other, JobFolder(tmp_path / name), None)[0],
            Randomness(bytes(32)),
            JobFolder(tmp_path / name),
            LiveProgress("job", Stop()),
            1,
            {peer: store.partner(peer)},
            {peer: memory_channels(name, peer)[0]},
        )
        run.session.machine.processes.close()
        assert run.data.table.ids == table.ids
        sides[name] = kind(SplitModel.load(predicting.model.stored), predicting.model.alignment, table, torch.device("cpu"))
        store.partner = lambda _: MemoryOfOneRun(Randomness(b"another secret".ljust(32)))
        with pytest.raises(StateError, match="the table has changed") as caught:
            predictions.prepare(settings, store, known, JobFolder(tmp_path / name), None)
        assert caught.value.code == "E_INPUT_CHANGED"

    scorer, embedder = sides["clinic"], sides["lab"]
    takes_part = [id_.decode().removeprefix("text:") for id_ in scorer._table.ids]
    with pytest.raises(VflError, match="60 of 160 ids") as unknown:
        served.ask("clinic", asks(list(trial.ids[:160])), model)
    assert unknown.value.code == "E_UNKNOWN_ID"
    _, ids, found = table_of(served.ask("clinic", asks(takes_part), model))
    assert ids == takes_part
    numbers, places = scorer.batches.find(scorer.positions(scorer._table.ids))
    positions = [scorer.batches.positions(number) for number in numbers.tolist()]
    everything = np.concatenate([scorer.own_probability(of, [embedder.embed_shared(of)]) for of in positions])
    assert found == everything[places].tolist()
    assert len(set(found)) > 50


def test_cancelled_while_its_peer_is_away(served: Served) -> None:
    served.expected("clinic")
    served.cancel("clinic")
    before = served.service("clinic")
    errors: list[VflError] = []

    def ask() -> None:
        with pytest.raises(VflError) as caught:
            served.ask("clinic")
        errors.append(caught.value)

    served.federation.kill("lab")
    thread = threading.Thread(target=ask)
    thread.start()
    served.federation.wait_until(lambda: served.service("clinic") != before)
    served.federation.client("clinic").cancel(served.service("clinic"))
    thread.join()
    assert errors[0].code == "E_CANCELLED"
    assert served.federation.end("clinic", served.service("clinic"))["state"] == "cancelled"


def new_records(trial: Any, name: str, rows: range) -> bytes:
    """Records with the columns of ``name``, in an order of their own; what the trial lacks is made up."""
    path = trial.files[name]
    head, *known = path.read_text().splitlines()
    by_id = {line.split(",")[0]: line for line in known}
    lines = [by_id.get(id_) for id_ in (trial.ids[row] for row in rows)]
    made = [
        line or known[row].replace(known[row].split(",")[0], trial.ids[row], 1) for row, line in zip(rows, lines, strict=True)
    ]
    return "\n".join([head, *made[::-1]]).encode()


@pytest.mark.parametrize(
    ("victim", "place", "first"),
    [("lab", "Embedding 3", 20), pytest.param("clinic", "PhaseEnd predict", 21, marks=pytest.mark.slow)],
)
def test_new_records_are_aligned_and_predicted_whichever_node_is_killed(
    served: Served, trial: Any, tmp_path: Path, victim: str, place: str, first: int
) -> None:
    """Though the model was trained on a union: both learn which the lab has, those from 40 on, and only these are predicted."""
    rows = range(first, 150)
    (tmp_path / "new.csv").write_bytes(new_records(trial, "clinic", rows))
    counts = PartnerCounts(served.federation.folder / "clinic" / "state" / "partners" / "lab", "lab")
    counted = counts.usage()["alignments"]
    (served.deaths(victim) / "death").write_text(place)
    with served.command("clinic", "--align", "--data", tmp_path / "new.csv", "--out", tmp_path / "p.csv") as command:
        assert served.federation.processes[victim].wait(240) == -signal.SIGKILL
        served.federation.start(victim)
        done = command.ended()
    assert done.returncode == 0, done.stderr
    assert "all parties learn which of these records they share" in done.stderr
    head, ids, found = table_of((tmp_path / "p.csv").read_bytes())
    assert head == ["id", "probability"]
    assert ids == [trial.ids[row] for row in reversed(rows)]
    both = [trial.ids[row] for row in range(40, 150)]
    probability = dict(zip(ids, found, strict=True))
    assert [probability[id_] for id_ in both] == pytest.approx(served.together(both), abs=1e-6)
    assert all((value is None) == (id_ not in both) for id_, value in probability.items())
    assert counts.usage()["alignments"] == counted + 1
    views = served.federation.client("clinic").jobs()
    job_id = next(view["id"] for view in views if (view["predict"] or {}).get("rows") == "new")
    report = served.federation.report("lab", job_id)
    assert (report["alignment"]["protocol"], report["alignment"]["theirs"]) == ("psi", len(rows))
    whats = {party: [entry["what"] for entry in entries] for party, entries in report["learnt"].items()}
    assert whats == {"clinic": ["set size", "intersection", "embeddings"], "lab": ["set size", "intersection"]}
    assert f"which {len(both)} of" in report["learnt"]["lab"][1]["text"]
    assert "as in training" not in report["learnt"]["clinic"][2]["text"]
    for name in OTHER:
        folder = served.federation.job_folder(name, job_id)
        served.federation.wait_until(lambda folder=folder: {path.name for path in folder.iterdir()} == {"artefacts"})
    assert served.federation.client("clinic").predictions(job_id) == (tmp_path / "p.csv").read_bytes()
    assert "canary" not in served.federation.log("clinic") + served.federation.log("lab")


def test_new_records_whose_ids_the_other_party_spells_otherwise_end_with_a_warning(
    served: Served, trial: Any, tmp_path: Path
) -> None:
    head, *rows = new_records(trial, "clinic", range(60, 120)).decode().splitlines()
    (tmp_path / "new.csv").write_text("\n".join([head, *(row.upper() for row in rows)]))
    before = {view["id"] for view in served.federation.client("clinic").jobs()}
    noted = served.federation.job_folder("lab", served.model) / "columns"
    whole = noted.read_bytes()
    noted.write_bytes(whole[:-1])
    with served.command("clinic", "--align", "--data", tmp_path / "new.csv", "--out", tmp_path / "p.csv") as command:
        done = command.ended()
    noted.write_bytes(whole)
    assert done.returncode == 0, done.stderr
    _, ids, found = table_of((tmp_path / "p.csv").read_bytes())
    assert (len(ids), set(found)) == (60, {None})
    (job_id,) = {view["id"] for view in served.federation.client("clinic").jobs()} - before
    for name, spelling in (("clinic", "60 ids have capital letters"), ("lab", "160 ids have letters, none of them a capital")):
        assert served.federation.end(name, job_id)["state"] == "done"
        (warning,) = served.federation.report(name, job_id)["alignment"]["warnings"]
        assert f"no record is shared with {OTHER[name]}" in warning
        assert spelling in warning
        warnings = served.federation.report(name, job_id)["predictions"]["warnings"]
        assert any("Own columns were not compared with those of job" in text for text in warnings) == (name == "lab")


def test_new_records_must_have_the_columns_of_the_model(served: Served, trial: Any) -> None:
    head, *rest = new_records(trial, "clinic", range(60)).decode().splitlines()
    named = head.replace("measure-04-canary", "another")
    with pytest.raises(UsageError, match="no column 'measure-04-canary'") as caught:
        served.federation.client("clinic").predict_new(served.model, "\n".join([named, *rest]).encode())
    assert caught.value.code == "E_COLUMN"
    assert not any(view["state"] == "failed" for view in served.federation.client("clinic").jobs() if view["name"] == "new")


def test_predictions_need_the_token(served: Served) -> None:
    for method in ("POST", "GET"):
        connection = http.client.HTTPConnection(served.federation.client("clinic").address, timeout=240)
        connection.request(method, f"/api/jobs/{served.model}/predictions", body=asks(served.ids("clinic")))
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["code"]) == (401, "E_TOKEN")
        connection.close()


def test_only_what_training_provided_for_is_served(served: Served) -> None:
    for model, code in (("no-such-job", "E_UNKNOWN_JOB"), (served.service("clinic"), "E_NO_MODEL")):
        with pytest.raises(VflError) as caught:
            served.ask("clinic", model=model)
        assert caught.value.code == code
    unserved = served.train("align: {protocol: psi}\n" + TRAIN)
    with pytest.raises(VflError, match="no model") as caught:
        served.ask("clinic", model=unserved)
    assert caught.value.code == "E_NO_MODEL"
    assert "serve" in caught.value.hint
    one_sided = served.train("align: {protocol: psi}\n" + TRAIN + "serve: {to: active, batch_size: 16}\n")
    with pytest.raises(VflError) as caught:
        served.ask("lab", asks([served.federation.trial.ids[60]]), model=one_sided)
    assert caught.value.code == "E_PREDICT"
    folder = served.federation.job_folder("lab", one_sided)
    (folder / "serving").unlink()  # its owner ends the service for good
    with pytest.raises(VflError, match="lab refused the job: it keeps no model") as caught:
        served.ask("clinic", asks([served.federation.trial.ids[60]]), model=one_sided)
    assert caught.value.code == "E_REFUSED"


def test_both_nodes_stop_training_at_the_same_epoch_and_serve_the_best_ones_weights(served: Served) -> None:
    """The rows that chose it met these weights too: the peer has been told about them."""
    model = served.train(STOPPED)
    folders = {name: served.federation.job_folder(name, model) for name in OTHER}
    trained = [json.loads((folder / "artefacts/report.json").read_text())["training"] for folder in folders.values()]
    ends = [of["split"]["early_stopping"] for of in trained]
    assert ends[0] == ends[1]
    ((best,), (last,)) = ends[0]["best_epochs"], ends[0]["last_epochs"]
    assert last == best + 2 < 400  # when it stops depends on draws
    assert [len(of["epochs"]) for of in trained] == [last, last]
    rows = trained[0]["rows"]
    assert len(FileShown(folders["lab"] / "shown", 1).rows()) == rows["test"] + rows["validation"]
    known = served.ids("clinic")[-2:]
    assert len(served.ask("clinic", asks(known), model).splitlines()) == 1 + len(known)


@pytest.mark.slow
def test_nodes_killed_while_training_stops_end_with_the_same_weights(served: Served) -> None:
    def weights(job_id: str) -> list[dict[str, torch.Tensor]]:
        paths = (served.federation.job_folder(name, job_id) / "artefacts/model.safetensors" for name in OTHER)
        return [load_file(path) for path in paths]

    undisturbed = weights(served.train(STOPPED))
    for victim, place in (("clinic", "EpochEnd"), ("lab", "checkpoint r000-e000002"), ("lab", "PhaseEnd train")):
        (served.deaths(victim) / "death").write_text(place)
        job_id = served.federation.submit(STOPPED)
        served.federation.wait_until(lambda victim=victim: served.federation.processes[victim].poll() is not None)
        served.up()
        for name in OTHER:
            assert served.federation.end(name, job_id)["state"] == "done"
        for ours, theirs in zip(weights(job_id), undisturbed, strict=True):
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture
def changing(served: Served) -> Iterator[Any]:
    """The federation, with the settings that it had at the end."""
    yield served.federation
    for name in OTHER:
        if served.federation.processes[name].poll() is None:
            served.federation.kill(name, signal.SIGTERM)
        served.federation.start(name, everyone={}, data={"path": str(served.federation.trial.files[name])})
    served.up()


def test_an_absent_peer_is_waited_for_and_then_named(served: Served, changing: Any, tmp_path: Path) -> None:
    """A table that has grown answers as before. One with other records than those of training is refused, at both."""
    table, federation = tmp_path / "other.csv", changing
    table.write_text("".join(federation.trial.files["lab"].read_text().splitlines(keepends=True)[:-1]))
    before = served.expected("clinic")
    served.cancel("clinic")
    federation.kill("lab", signal.SIGTERM)
    federation.start("lab", data={"path": str(table)})
    federation.wait_until(lambda: federation.connected("clinic"))
    with pytest.raises(VflError, match="its table has changed since training"):
        served.ask("clinic")
    assert federation.end("lab", served.service("clinic"))["error"]["code"] == "E_INPUT_CHANGED"
    federation.kill("lab", signal.SIGTERM)
    federation.kill("clinic", signal.SIGTERM)
    federation.start("clinic", peer_wait_s=1)
    with pytest.raises(VflError, match="no word from lab") as caught:
        served.ask("clinic")
    assert caught.value.code == "E_PEER_ABSENT"
    federation.kill("clinic", signal.SIGTERM)
    for name in OTHER:
        (head, *rows), grown = federation.trial.files[name].read_text().splitlines(), tmp_path / f"{name}-grown.csv"
        more = [f"new-{number}," + row.partition(",")[2] for number, row in enumerate(rows[:7])]
        grown.write_text("\n".join([head, *more, *reversed(rows)]) + "\n")
        federation.start(name, data={"path": str(grown)})
    federation.wait_until(lambda: federation.connected("clinic"))
    assert served.ask("clinic") == before
    federation.kill("lab", signal.SIGTERM)
    *cells, last = rows[0].split(",")
    table.write_text("\n".join([head, *more, ",".join([*cells, str(float(last) + 1)]), *rows[1:]]) + "\n")
    federation.start("lab", data={"path": str(table)})
    federation.wait_until(lambda: federation.connected("clinic"))
    with pytest.raises(VflError, match="its table has changed since training"):
        served.ask("clinic")
    assert "records 1 have other cells and 0 are gone" in federation.end("lab", served.service("clinic"))["error"]["message"]


def test_new_records_are_not_intersected_against_the_will_of_either_owner(served: Served, changing: Any, trial: Any) -> None:
    """A union was agreed on; known records are predicted all the same."""
    federation, unions = changing, {"protocols": ["psu"]}
    clinic = federation.client("clinic")
    federation.kill("lab", signal.SIGTERM)
    federation.start("lab", everyone=unions)
    federation.wait_until(lambda: federation.connected("clinic"))
    job_id = clinic.predict_new(served.model, new_records(trial, "clinic", range(20, 150)))["id"]
    error = federation.end("clinic", job_id)["error"]
    assert error["code"] == "E_REFUSED"
    assert "its policy does not allow the job (kind)" in error["message"]
    assert len(table_of(served.ask("clinic"))[2]) == 4
    federation.kill("clinic", signal.SIGTERM)
    federation.start("clinic", everyone=unions)
    with pytest.raises(VflError, match="aligns by psi, which this node's policy does not allow") as caught:
        federation.client("clinic").predict_new(served.model, new_records(trial, "clinic", range(20, 150)))
    assert caught.value.code == "E_POLICY"


def test_a_passive_party_predicts_any_rows_where_the_active_one_has_labels_only(
    federations: Any, forked: Any, trial: Any, tmp_path: Path
) -> None:
    federation = federations(tmp_path)
    named = {f"measure-{c:02d}-canary": "ignore" for c in (0, 1, 4, 5)}
    federation.configure("clinic", data={"path": str(trial.files["clinic"]), "columns": named}, accepts=["lab"])
    federation.start_both()
    job_id = federation.submit(
        "train: {bottom: [8], top: [8], epochs: 2, batch_size: 64}\nserve: {to: passive, batch_size: 16}"
    )
    for name in OTHER:
        assert federation.end(name, job_id)["state"] == "done"
    request = new_records(trial, "lab", range(10, 45))
    lab = federation.client("lab")
    answer = lab.predict(job_id, request, nothing)
    _, ids, found = table_of(answer)
    assert ids == [trial.ids[row] for row in reversed(range(10, 45))]
    assert len(set(found)) > 20  # 30 different rows
    assert lab.predict(job_id, request, nothing) == answer
    few = b"\n".join(request.splitlines()[:2])
    assert lab.predict(job_id, few, nothing) == b"\n".join(answer.splitlines()[:2]) + b"\n"
    with pytest.raises(VflError) as caught:
        lab.predict(job_id, asks(ids), nothing)
    assert caught.value.code == "E_COLUMN"
    assert "canary" in caught.value.message  # the name of a column, not of a record
    assert not any(id_ in caught.value.message for id_ in ids)


# Without nodes.


JOB = """\
name: trial
parties: {active: clinic, passive: lab}
train: {bottom: [4], epochs: 1}
serve: {to: active}
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def job() -> Callable[[str], Job]:
    from vfl_node.configuration.models import parse

    return lambda text: parse(text, Job, source="test")


NOTHING = StoredPredictor(input="00" * 32, encoder="", serving="")


def test_a_job_of_predictions_must_fit_what_was_trained(store: Store, job: Callable[[str], Job]) -> None:
    record = store.add(job(JOB), submitter="clinic")
    text = "name: trial-predict\nparties: {active: clinic, passive: lab}\n"
    named = job(text + f"predict: {{model: {record.id}, to: active, rows: known}}\n")
    for refuse_ in (
        lambda: predictions.job_for(store, record.id, "clinic", new=False),
        lambda: predictions.check(store, named, "clinic", "clinic"),
    ):
        with pytest.raises(StateError) as caught:
            refuse_()
        assert (caught.value.code, caught.value.for_peer) == ("E_NO_MODEL", "it keeps no model of that job for predictions")
    store.job_folder(record).keep_predictor(NOTHING)
    wanted = predictions.job_for(store, record.id, "clinic", new=False)
    assert wanted == named
    predictions.check(store, wanted, "clinic", "clinic")
    others = wanted.model_copy(update={"parties": job(JOB.replace("lab", "bank")).parties})
    with pytest.raises(UsageError, match="only they") as refused:
        predictions.check(store, others, "clinic", "clinic")
    assert refused.value.for_peer == "other parties trained that model"
    with pytest.raises(UsageError, match="lab cannot"):
        predictions.check(store, wanted, "lab", "lab")
    with pytest.raises(PolicyError, match=r"serve\.to is active"):
        predictions.check(store, predictions.job_for(store, record.id, "lab", new=False), "lab", "lab")


def test_a_model_is_looked_up_once_for_many_requests_and_again_when_it_was_kept_anew_or_is_gone(
    store: Store, job: Callable[[str], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = store.add(job(JOB), submitter="clinic")
    folder = store.job_folder(record)
    folder.keep_predictor(NOTHING)
    asked = predictions.AskedModels(SimpleNamespace(name="clinic"), store)  # type: ignore[arg-type]
    looked: list[str] = []
    trained_by = predictions.trained_by
    monkeypatch.setattr(predictions, "trained_by", lambda store, model: (looked.append(model), trained_by(store, model))[1])
    first = asked.find(record.id, new=False)
    assert first.job == predictions.job_for(store, record.id, "clinic", new=False)
    looked.clear()
    assert asked.find(record.id, new=False) is first
    assert looked == []
    other = NOTHING.model_copy(update={"classes": ("no", "yes")})
    folder.keep_predictor(other)
    assert asked.find(record.id, new=False).stored == other
    folder.forget_predictor()
    with pytest.raises(StateError) as caught:
        asked.find(record.id, new=False)
    assert caught.value.code == "E_NO_MODEL"
    with pytest.raises(UsageError) as unknown:
        asked.find("nobody", new=False)
    assert unknown.value.code == "E_UNKNOWN_JOB"


@pytest.mark.parametrize(
    ("asker", "own", "offered_by", "allowed"),
    [
        ("lab", "lab", "lab", True),
        ("lab", "clinic", "lab", True),
        ("lab", "insurer", "clinic", True),  # passive parties do not talk to each other: the active one passes the job on
        ("lab", "insurer", "lab", False),
        ("lab", "clinic", "insurer", False),
        ("lab", "clinic", "clinic", False),
        ("clinic", "insurer", "clinic", True),
        ("clinic", "clinic", "lab", False),
    ],
)
def test_a_job_of_predictions_comes_from_its_asker_or_through_the_active_party(
    store: Store, job: Callable[[str], Job], asker: str, own: str, offered_by: str, allowed: bool
) -> None:
    record = store.add(job(JOB.replace("lab", "[lab, insurer]").replace("to: active", "to: both")), submitter="clinic")
    store.job_folder(record).keep_predictor(NOTHING)
    wanted = predictions.job_for(store, record.id, asker, new=False)
    assert wanted.asker == asker
    if allowed:
        predictions.check(store, wanted, offered_by, own)
        return
    with pytest.raises(UsageError, match=f"{offered_by} cannot") as caught:
        predictions.check(store, wanted, offered_by, own)
    assert caught.value.code == "E_PREDICT"


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize(
    ("align", "said"),
    [
        ({"at_most": 300}, r"align\.at_most"),
        ({"at_most": None}, r"align\.at_most"),
        ({"protocol": "psi", "at_most": 100}, "align"),
        ({"protocol": "apsi", "obfuscation": "private"}, r"align\.obfuscation"),
        ({"id_form": "nocase"}, r"align\.id_form"),
        ({"padding": 2}, r"align\.padding"),
        ({"group": "modp2048"}, r"align\.group"),
        ({"dummies": 3}, r"align\.dummies"),
    ],
)
def test_nothing_but_what_training_says_can_be_agreed_on(
    store: Store, job: Callable[[str], Job], align: dict[str, Any], said: str, new: bool
) -> None:
    record = store.add(job(JOB + "align: {at_most: 100}\n"), submitter="clinic")
    store.job_folder(record).keep_predictor(NOTHING)
    wanted = predictions.job_for(store, record.id, "clinic", new=new)
    predictions.check(store, wanted, "clinic", "clinic")
    other = wanted.model_copy(update={"align": wanted.align.model_copy(update=align)})
    if other == wanted:
        return
    with pytest.raises(UsageError, match=said) as caught:
        predictions.check(store, other, "clinic", "clinic")
    assert caught.value.code == "E_PREDICT"
    assert "must be as the training says" in caught.value.for_peer


def test_what_was_exchanged_is_counted_on_the_disk(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    tally = FileTally(folder.path)
    assert tally.read() is None
    for served in (Exchanged(16, 123456, 98765, unnamed=True), Exchanged(16, 1, 2)):
        tally.write(served)
        assert FileTally(folder.path).read() == served
    (path,) = folder.path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("{}")
    with pytest.raises(StateError) as caught:
        tally.read()
    assert caught.value.code == "E_STATE_CORRUPT"


def test_batches_that_no_message_holds_are_refused_before_training(
    job: Callable[[str], Job], trial: Any, tmp_path: Path
) -> None:
    wide = JOB.replace("bottom: [4]", "bottom: [400]").replace("to: active", "to: active, batch_size: 65536")
    with pytest.raises(UsageError, match="65536 rows") as caught:
        simulate(job(wide), trial.files, tmp_path)
    assert caught.value.code == "E_SIZE"
    assert "serve.batch_size" in caught.value.hint


def test_a_job_that_did_not_end_well_keeps_nothing(store: Store, job: Callable[[str], Job]) -> None:
    for state, kept in (("done", {"serving"}), ("failed", set()), ("cancelled", set())):
        record = store.update(store.add(job(JOB), submitter="clinic"), state=state)
        folder = store.job_folder(record)
        folder.seed()
        folder.keep_predictor(NOTHING)
        store.destroy_secrets(record)
        assert {path.name for path in folder.path.iterdir()} == kept


def test_a_broken_peer_leaves_one_failed_service(store: Store, job: Callable[[str], Job], tmp_path: Path) -> None:
    """However often it is asked; what was answered before, or may go on, stays."""
    trained = store.add(job(JOB), submitter="clinic")
    store.job_folder(trained).keep_predictor(NOTHING)
    service = predictions.job_for(store, trained.id, "clinic", new=False)
    broken = ProtocolError("lab sent what cannot be read")

    class Broken:
        """Jobs of which none goes well."""

        beginning = nullcontext

        def check_versions(self, *_: Any) -> None: ...

        def check_coordinator(self, *_: Any) -> None: ...

        def check_room(self, *_: Any, **__: Any) -> None: ...

        def begin(self, record: Record) -> None:
            store.end(record.fail(broken))

    data = Data(path=tmp_path / "clinic.csv", label="label")
    settings = Settings(
        name="clinic", role="active", data=data, insecure_loopback=True, peers={"lab": Peer(address="127.0.0.1:1")}
    )
    jobs = Jobs(settings, store, Broken())  # type: ignore[arg-type]
    last = [jobs.submit(service).id for _ in range(5)][-1]
    assert [record.id for record in store.records() if record.is_service] == [last]
    answered, resumable = (store.add(service, submitter="lab") for _ in range(2))
    store.update(answered, state="failed", code="E_PROTOCOL")
    store.job_folder(answered).artefacts.mkdir(parents=True)
    store.job_folder(answered).seal()
    store.update(resumable, state="failed", code="E_PEER_LOST")
    last = jobs.submit(service).id
    assert {record.id for record in store.records() if record.is_service} == {last, answered.id, resumable.id}


@pytest.mark.parametrize(
    "protocol",
    [
        "psi",
        "psu, dummies: 20",
        "apsi, obfuscation: private",
    ],
)
def test_new_records_are_intersected_whatever_the_training_did(store: Store, job: Callable[[str], Job], protocol: str) -> None:
    rest = "at_most: 100, id_form: nocase, group: modp2048, padding: 3, expect: {at_least: 5000}"
    record = store.add(job(JOB + f"align: {{protocol: {protocol}, {rest}}}\n"), submitter="clinic")
    store.job_folder(record).keep_predictor(NOTHING)
    known, new = (predictions.job_for(store, record.id, "clinic", new=new) for new in (False, True))
    assert known.align == record.job.align
    assert new.align == Align(protocol="psi", id_form="nocase", group="modp2048", padding=3)
    assert known.parties == new.parties == record.job.parties


@pytest.mark.parametrize("protocol", ["psi", "psu", "upsi, server: active"])
def test_the_training_may_name_the_protocol_of_new_records(store: Store, job: Callable[[str], Job], protocol: str) -> None:
    """Whoever asks for predictions asks about the records; known ones keep the alignment of the training."""
    named = JOB.replace("to: active", "to: both, align: upsi")
    record = store.add(job(f"{named}align: {{protocol: {protocol}, padding: 3}}\n"), submitter="clinic")
    store.job_folder(record).keep_predictor(NOTHING)
    for asker, server in (("clinic", "passive"), ("lab", "active")):
        known, new = (predictions.job_for(store, record.id, asker, new=new) for new in (False, True))
        assert known.align == record.job.align
        assert new.align == Align(protocol="upsi", server=server, padding=3)
        predictions.check(store, new, asker, asker)
        assert "tag list" in [each.what for each in declare(new) if each.to == asker]
        other = new.align.model_copy(update={"server": "active" if server == "passive" else "passive"})
        with pytest.raises(UsageError, match=r"align\."):
            predictions.check(store, new.model_copy(update={"align": other}), asker, asker)


def test_new_records_are_not_asked_about_where_a_policy_does_not_name_it(store: Store, job: Callable[[str], Job]) -> None:
    """Though it has allowed the training, over psi."""
    record = store.add(
        job(JOB.replace("to: active", "to: active, align: upsi") + "align: {protocol: psi}\n"), submitter="clinic"
    )
    store.job_folder(record).keep_predictor(NOTHING)
    new = predictions.job_for(store, record.id, "clinic", new=True)

    def check(job: Job, policy: str) -> None:
        place = "data: {path: x.csv, label: label}, insecure_loopback: true, peers: {lab: {address: '127.0.0.1:1'}}"
        text = f"{{name: clinic, role: active, {place}, policy: {policy}}}"
        check_allowed(parse(text, Settings, source="node.yaml"), job, loading=False)

    check(record.job, "{}")
    check(new, "{everyone: {protocols: [psi, upsi]}}")
    with pytest.raises(PolicyError, match="aligns by upsi") as caught:
        check(new, "{}")
    assert caught.value.code == "E_POLICY"


def test_a_job_without_a_protocol_of_new_records_is_the_one_of_before(job: Callable[[str], Job]) -> None:
    assert "align" not in job(JOB).model_dump()["serve"]


@pytest.mark.parametrize(
    ("serve", "parties", "why"),
    [
        ("psu", "lab", "all parties own each row, such as psi, and not psu"),
        ("apsi", "lab", "and not apsi"),
        ("upsi", "[lab, insurer]", "upsi aligns with 1 of parties.passive at most: one party asks"),
    ],
)
def test_new_records_are_aligned_by_no_other_protocol(job: Callable[[str], Job], serve: str, parties: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        job(JOB.replace("lab", parties).replace("to: active", f"to: active, align: {serve}"))
    assert caught.value.code == "E_CONFIG"
