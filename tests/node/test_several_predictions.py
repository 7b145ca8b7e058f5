"""Predictions by real nodes of three parties, of which two never talk to each other."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.node.several import SeveralTrial, job_text
from vfl_node.errors import UsageError, VflError
from vfl_node.training.prediction.stored import FileShown

pytestmark = pytest.mark.slow

ROLES = {"clinic": "active", "lab": "passive", "insurer": "passive"}
BATCH = 16
JOB = job_text(
    "align: {protocol: psu}\n"
    "train: {bottom: [8], active_bottom: [4], top: [8], epochs: 1, batch_size: 64, learning_rate: 0.01}\n"
    "evaluate: {test_fraction: 0.3}\n"
    f"serve: {{to: both, batch_size: {BATCH}}}\n",
    ("lab", "insurer"),
)
KNOWN = {"clinic": (0, 15, 50, 119), "lab": (20, 25, 139), "insurer": (10, 60)}
"""Records of each party, of which others have some."""


def id_of(row: int) -> str:
    return f"canary-{row:04d}-patient"


def asks(rows: Any) -> bytes:
    return ("id\n" + "".join(f"{id_of(row)}\n" for row in rows)).encode()


class ServedBySeveral:
    """Three nodes that have trained a model, and kept it for predictions."""

    def __init__(self, federation: Any, forked: Any) -> None:
        import killed_trainer

        self.federation = federation
        for name in ROLES:
            self.deaths(name).mkdir()
            federation.programs[name] = partial(forked, killed_trainer.run, self.deaths(name))
        federation.start_several()
        self.model = federation.client("clinic").submit(JOB)["id"]
        for name in ROLES:
            assert federation.end(name, self.model)["state"] == "done", federation.log(name)[-3000:]
        self._said: dict[str, bytes] = {}

    def deaths(self, name: str) -> Path:
        return Path(self.federation.folder / f"{name}-deaths")

    def up(self) -> None:
        for name in ROLES:
            if self.federation.processes[name].poll() is not None:
                self.federation.start(name)
        self.federation.wait_until(lambda: all(map(self.federation.connected, ROLES)))

    def ask(self, name: str, rows: Any = ()) -> bytes:
        return bytes(self.federation.client(name).predict(self.model, asks(rows or KNOWN[name]), lambda: None))

    def expected(self, name: str) -> bytes:
        """What ``name`` hears where nothing disturbs; the same whenever it asks."""
        answer = self.ask(name)
        assert self._said.setdefault(name, answer) == answer
        return answer

    def service(self, name: str, at: str = "") -> str:
        """The newest job by which ``name`` asks, as ``at`` has it."""
        to = "active" if name == "clinic" else name
        views = self.federation.client(at or name).jobs()
        return str(next(view["id"] for view in views if (view["predict"] or {}).items() >= {"to": to, "rows": "known"}.items()))


@pytest.fixture(scope="module")
def theatre(federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory) -> ServedBySeveral:
    return ServedBySeveral(federations(tmp_path_factory.mktemp("served"), ROLES, several), forked)


@pytest.fixture
def served(theatre: ServedBySeveral) -> ServedBySeveral:
    theatre.up()
    return theatre


@pytest.mark.parametrize("name", list(ROLES))
def test_every_party_may_ask_and_nobody_else_hears_the_answer(served: ServedBySeveral, name: str) -> None:
    head, *rows = served.expected(name).decode().splitlines()
    assert head == "id,probability"
    assert [row.split(",")[0] for row in rows] == [id_of(row) for row in KNOWN[name]]
    assert len({row.split(",")[1] for row in rows}) == len(rows)
    served.federation.client(name).cancel(service := served.service(name))
    reports = {}
    for party in ROLES:
        assert served.federation.end(party, service)["state"] == "done"
        reports[party] = served.federation.report(party, service)
    others = [party for party in ROLES if party not in (name, "clinic")]
    batches = reports[name]["predictions"]["batches"]
    for party, report in reports.items():
        assert report["predictions"]["to"] == name
        assert report["predictions"]["requests"] == (1 if party == name else None)
        assert report["predictions"]["batches"] == batches
        whats = {of: [entry["what"] for entry in entries] for of, entries in report["learnt"].items()}
        assert whats["clinic"] == ["embeddings"] * 2 + (["requests"] if name != "clinic" else [])
        assert all(whats[of] == ["requests"] for of in others)
        assert whats[name] == ["predictions"] or name == "clinic"


@pytest.mark.parametrize(
    ("name", "victim", "place"),
    [
        ("clinic", "insurer", "Embedding 0"),
        ("lab", "insurer", "Embedding 0"),
        ("lab", "clinic", "Probabilities 0"),
        ("lab", "lab", "Embedding 0"),
    ],
)
def test_a_node_killed_in_a_request_is_asked_again(served: ServedBySeveral, name: str, victim: str, place: str) -> None:
    expected = served.expected(name)
    answers: list[bytes] = []

    def ask() -> None:  # as the command, which asks again when its own node is back
        while not answers:
            with suppress(UsageError, FileNotFoundError):
                answers.append(served.ask(name))

    served.federation.client(name).cancel(service := served.service(name))
    for party in ROLES:
        served.federation.end(party, service)
    (served.deaths(victim) / "death").write_text(place)
    thread = threading.Thread(target=ask)
    thread.start()
    assert served.federation.processes[victim].wait(240) == -signal.SIGKILL
    served.federation.start(victim)
    thread.join()
    assert answers == [expected]


@pytest.fixture
def limited(served: ServedBySeveral) -> Iterator[Callable[..., None]]:
    """Starts the insurer's node with other limits, and without them at the end."""

    def start(**limits: Any) -> None:
        served.federation.kill("insurer", signal.SIGTERM)
        served.federation.start("insurer", everyone=limits)
        served.up()

    yield start
    start()


@pytest.mark.parametrize("name", ["clinic", "lab"])
def test_a_party_whose_limit_is_reached_is_named_at_all_others(
    served: ServedBySeveral, limited: Callable[..., None], name: str
) -> None:
    expected = served.expected(name)
    path = served.federation.job_folder("insurer", served.model) / "shown"
    told, (_, later) = FileShown(path, 1).rows(), FileShown(path, 1)._read()
    limited(budgets={"predicted_rows": len(later)})
    assert served.ask(name) == expected
    with pytest.raises(VflError) as caught:
        served.ask(name, range(20, 120))
    assert "insurer" in caught.value.message
    assert "its policy does not allow the job (budget)" in caught.value.message
    service = served.service(name)
    assert served.federation.end("insurer", service)["error"]["code"] == "E_BUDGET"
    (other,) = ROLES.keys() - {name, "insurer"}
    error = served.federation.end(other, service)["error"]
    assert "insurer" in error["message"]
    assert "predicted_rows" not in error["message"] + caught.value.message
    assert (FileShown(path, 1).rows() == told).all()


@pytest.mark.parametrize("name", ["clinic", "lab"])
def test_new_records_are_aligned_with_all_parties(served: ServedBySeveral, several: SeveralTrial, name: str) -> None:
    """Those that all have are predicted, although the model was trained on a union."""
    head, *lines = several.files[name].read_text().splitlines()
    client = served.federation.client(name)
    job_id = client.predict_new(served.model, "\n".join([head, *lines[:60][::-1]]).encode())["id"]
    for party in ROLES:
        assert served.federation.end(party, job_id)["state"] == "done", served.federation.log(party)[-3000:]
    _, *rows = client.predictions(job_id).decode().splitlines()
    assert [row.split(",")[0] for row in rows] == [line.split(",")[0] for line in lines[:60][::-1]]
    found = {row.split(",")[0] for row in rows if row.split(",")[1]}
    first = int(lines[0].split(",")[0].split("-")[1])
    assert found == {id_of(row) for row in range(20, 120) if row < first + 60}
    for party in ROLES:
        assert served.federation.report(party, job_id)["predictions"]["records"] == (len(found) if party == name else None)
        assert "canary" not in served.federation.log(party)
