"""Real nodes killed (-9) in the middle of a list: started again, they end the job as if nothing had been."""

from __future__ import annotations

import shutil
import signal
import stat
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from vfl_node.models import storage

OTHER = {"clinic": "lab", "lab": "clinic"}
CHUNK_ROWS = 32
TRAIN = "train: {bottom: [4], epochs: 1, batch_size: 64}\nevaluate: {test_fraction: 0.3}\n"
TERMS = {
    "psu": "align: {protocol: psu}\n",
    "psi": "align: {protocol: psi}\n",
    "apsi": "align: {protocol: apsi, obfuscation: {size: 144}}\n",
    "upsi": "align: {protocol: upsi}\n",
}
SENT = {  # who sends which list, of how many rows
    "psu": {
        "clinic": {"step-3": 160, "step-8": 200, "step-11-request": 160, "step-12-reply": 160},
        "lab": {"step-5": 160, "step-4": 160, "step-9": 200, "step-12-request": 160, "step-11-reply": 160},
    },
    "psi": {"clinic": {"step-1": 160, "step-4": 160}, "lab": {"step-2": 160, "step-3": 160}},
    "apsi": {
        "clinic": {"step-4": 160, "step-8": 144, "step-12": 144},
        "lab": {"step-3": 160, "step-6": 160, "step-10": 144},
    },
    "upsi": {"clinic": {"query": 160, "claim": 120}, "lab": {"tags": 37, "answer": 160}},
}
COMPUTED = {  # who computes and stores which
    "psu": {
        "clinic": ("step-3", "step-5-powers", "step-8", "step-11-request", "step-12-request-powers", "step-11-reply-powers"),
        "lab": (
            "step-5",
            "step-3-powers",
            "step-8-powers",
            "step-12-request",
            "step-11-request-powers",
            "step-12-reply-powers",
        ),
    },
    "psi": {"clinic": ("step-1", "step-2-powers"), "lab": ("step-2", "step-1-powers")},
    "apsi": {
        "clinic": ("step-4", "step-3-powers", "step-8", "step-10-powers", "own"),
        "lab": ("step-3", "step-4-powers", "step-8-powers", "step-12-powers"),
    },
    "upsi": {"clinic": ("query", "answer-powers"), "lab": ("points", "answer", "claimed")},
}
PLACES: dict[str, Callable[[str, int], int]] = {  # rows of the list before the death
    "start": lambda what, count: 0,
    "middle": lambda what, count: count // 2,
    "end": lambda what, count: count if what == "send" else count - CHUNK_ROWS,
}
DEATHS = [  # protocol, who dies, of what, in which list
    *((protocol, name, "send", among) for protocol, lists in SENT.items() for name in lists for among in lists[name]),
    *((protocol, OTHER[name], "append", among) for protocol, lists in SENT.items() for name in lists for among in lists[name]),
    *((protocol, name, "append", among) for protocol, lists in COMPUTED.items() for name in lists for among in lists[name]),
]
MATRIX = [(*death, place) for death in DEATHS for place in PLACES]
SOME = [  # in one process tests/alignment/test_restart.py has many more
    ("psu", "clinic", "send", "step-8", "middle"),
    ("psu", "lab", "append", "step-12-reply-powers", "middle"),
    ("psi", "lab", "append", "step-1", "start"),
    ("apsi", "clinic", "append", "step-6", "end"),
    ("upsi", "lab", "append", "answer", "middle"),
    ("upsi", "clinic", "append", "tags", "start"),
]


class Nodes:
    """Two nodes that may be killed anywhere, over many jobs; and what a job leaves that nothing disturbed."""

    def __init__(self, federation: Any, forked: Any) -> None:
        import killed_node

        self.federation = federation
        for name in OTHER:
            self.folder(name).mkdir()
            federation.programs[name] = partial(forked, killed_node.run, self.folder(name))
            allowed = {"budgets": {"trainings": 10_000}, "protocols": list(TERMS), "queries_per_peer": {"per_day": None}}
            federation.configure(name, everyone=allowed)  # every case trains over the same records
        federation.start_both()
        self._clean: dict[str, Any] = {}

    def folder(self, name: str) -> Path:
        """Where ``name`` is told to die."""
        return self.federation.folder / f"{name}-deaths"

    def submit(self, protocol: str, *, of: int = signal.SIGKILL, **deaths: tuple[str, str, str]) -> str:
        """A job in which the parties named die where they are told, of this signal."""
        for name in OTHER:
            if self.federation.processes[name].poll() is not None:
                self.federation.start(name)
            for kept in (self.federation.folder / name / "state" / "partners").rglob("*.kept"):
                kept.unlink()  # each case is the first job: no promise of another protocol holds, no set is drawn already
            shutil.rmtree(self.federation.folder / name / "state" / "cached", ignore_errors=True)
            (self.folder(name) / "stored").unlink(missing_ok=True)
        for name, (what, among, place) in deaths.items():
            rows = {"own": 160, "points": 160, "claimed": 120} | {
                key: count for lists in SENT[protocol].values() for key, count in lists.items()
            }
            count = rows[among.removesuffix("-powers")]
            (self.folder(name) / "death").write_text(f"{what} {among} {PLACES[place](what, count)} {int(of)}")
        self.federation.wait_until(lambda: self.federation.client("clinic").health()["peers"]["lab"]["online"])
        self.job_id = self.federation.submit(TERMS[protocol] + TRAIN)
        return self.job_id

    def wait_dead(self, name: str, status: int = -signal.SIGKILL) -> None:
        self.federation.dies_in(name, self.job_id, status)

    def outcome(self, job_id: str) -> Any:
        """What must not depend on how often a node was killed: alignment, models, and what was stored once only."""
        found: dict[str, Any] = {}
        for name in OTHER:
            view = self.federation.end(name, job_id)
            assert view["state"] == "done", (view, self.federation.log(name)[-3000:])
            report = self.federation.report(name, job_id)
            for figure in ("seconds", "bytes_sent", "bytes_received"):
                del report["alignment"][figure]
            weights, _ = storage.load(self.federation.job_folder(name, job_id) / "artefacts" / "model.safetensors")
            stored: Counter[str] = Counter()
            for line in (self.folder(name) / "stored").read_text().splitlines():
                job, among, rows = line.split()
                stored[among] += int(rows) if job == job_id else 0
            weights = {key: value.numpy().tobytes() for key, value in weights.items()}
            found[name] = report["alignment"], report["metrics"], weights, stored
        return found

    def clean(self, protocol: str) -> Any:
        if protocol not in self._clean:
            self._clean[protocol] = self.outcome(self.submit(protocol))
        return self._clean[protocol]


@pytest.fixture(scope="module")
def nodes(federations: Any, forked: Any, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return Nodes(federations(tmp_path_factory.mktemp("killed")), forked)


@pytest.mark.parametrize(("protocol", "victim", "what", "among", "place"), SOME)
def test_killed_in_a_list(nodes: Nodes, protocol: str, victim: str, what: str, among: str, place: str) -> None:
    expected = nodes.clean(protocol)
    job_id = nodes.submit(protocol, **{victim: (what, among, place)})
    nodes.wait_dead(victim)
    nodes.federation.start(victim)
    assert nodes.outcome(job_id) == expected


@pytest.mark.parametrize(
    ("victim", "among"),
    [pytest.param("clinic", "step-11-reply-powers", marks=pytest.mark.slow), ("lab", "step-12-reply-powers")],
)
def test_stopped_in_a_list(nodes: Nodes, victim: str, among: str) -> None:
    """SIGTERM: the chunk under way may be lost, the node ends well, and the peer waits."""
    expected = nodes.clean("psu")
    job_id = nodes.submit("psu", of=signal.SIGTERM, **{victim: ("append", among, "start")})
    nodes.wait_dead(victim, 0)
    nodes.federation.start(victim)
    assert nodes.outcome(job_id) == expected


def test_both_killed_at_once(nodes: Nodes) -> None:
    expected = nodes.clean("psu")
    job_id = nodes.submit("psu", clinic=("append", "step-9", "middle"))
    nodes.wait_dead("clinic")
    nodes.federation.kill("lab")
    for name in ("clinic", "lab"):
        nodes.federation.start(name)
    assert nodes.outcome(job_id) == expected


def test_files_are_private_and_go_with_the_job(nodes: Nodes) -> None:
    job_id = nodes.submit("apsi", lab=("append", "step-12", "start"))
    nodes.wait_dead("lab")
    for name in ("clinic", "lab"):
        folder = nodes.federation.job_folder(name, job_id)
        assert any((folder / "lists").glob("*.rows"))
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
        assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items()), modes
    nodes.federation.start("lab")
    nodes.outcome(job_id)
    for name in ("clinic", "lab"):
        folder = nodes.federation.job_folder(name, job_id)
        nodes.federation.wait_until(lambda folder=folder: nodes.federation.is_cleared(folder))
        partner = nodes.federation.folder / name / "state" / "partners" / OTHER[name]
        assert stat.S_IMODE(partner.stat().st_mode) == 0o700
        kept = {path.name.split("-")[0]: stat.S_IMODE(path.stat().st_mode) for path in partner.iterdir()}
        assert kept.keys() >= {"secret", "ledger.log"}
        assert ("obfuscated" in kept) == (name == "clinic")
        assert set(kept.values()) == {0o600}


def test_a_full_disk_is_said_at_both_and_the_job_goes_on_when_there_is_room(nodes: Nodes) -> None:
    (nodes.folder("lab") / "full").touch()
    job_id = nodes.submit("psi")
    nodes.federation.wait_until(lambda: nodes.federation.view("lab", job_id))
    view = nodes.federation.end("lab", job_id)
    assert (view["state"], view["error"]["code"], view["resumable"]) == ("failed", "E_DISK_FULL", True)
    assert "GiB" in view["error"]["message"]
    assert "resume" in view["error"]["hint"]
    nodes.federation.wait_until(lambda: "its disk is too small" in nodes.federation.view("clinic", job_id)["note"])
    (nodes.folder("lab") / "full").unlink()
    nodes.federation.client("lab").resume(job_id)
    assert nodes.outcome(job_id) == nodes.clean("psi")


def test_another_table_is_refused_in_the_middle_of_a_list(nodes: Nodes, trial: Any, tmp_path: Path) -> None:
    table = tmp_path / "lab.csv"
    shutil.copy(trial.files["lab"], table)
    nodes.federation.kill("lab")
    nodes.federation.start("lab", data={"path": str(table)})
    job_id = nodes.submit("psu", lab=("send", "step-5", "middle"))
    nodes.wait_dead("lab")
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join([*lines[:-1], lines[-1].replace("canary", "another")]))
    nodes.federation.start("lab")
    ours, theirs = nodes.federation.end("clinic", job_id), nodes.federation.end("lab", job_id)
    assert (ours["state"], theirs["state"]) == ("failed", "failed")
    assert theirs["error"]["code"] == "E_INPUT_CHANGED"
    for name in ("clinic", "lab"):
        folder = nodes.federation.job_folder(name, job_id)
        nodes.federation.wait_until(lambda folder=folder: not list(folder.iterdir()))  # lists and seeds are gone
    nodes.federation.kill("lab")
    nodes.federation.start("lab", data={"path": str(trial.files["lab"])})


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("protocol", "victim", "what", "among", "place"), [case for case in MATRIX if case not in SOME])
def test_killed_in_any_list(nodes: Nodes, protocol: str, victim: str, what: str, among: str, place: str) -> None:
    test_killed_in_a_list(nodes, protocol, victim, what, among, place)
