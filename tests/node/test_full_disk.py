"""A machine that refuses, at either party and anywhere in a job's life: the job goes on, and ends with the same bytes."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.nodes import accepting
from tests.thorough import every
from vfl_node.errors import StateError, UsageError
from vfl_node.execution import folder as job_folder
from vfl_node.node import partners, running, serving, store, work
from vfl_node.node.faults import explain, explaining
from vfl_node.node.service import Node
from vfl_node.settings.node import Data, Peer, Settings
from vfl_node.trust import tokens

JOB = """\
train: {bottom: [4], top: [4], epochs: 2, batch_size: 32, missing: {calibration: test}}
evaluate: {test_fraction: 0.3}
"""
NAMES = ("clinic", "lab")
PLACES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)
SOME = every(3, [(NAMES[number % 2], place) for number, place in enumerate(PLACES)])
MORE = [(name, place) for name in NAMES for place in PLACES if (name, place) not in SOME]


def writes(flags: int) -> bool:
    """Whether a file is opened to be written; one without a name is not meant, which Python tries again with a name."""
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) and flags & os.O_TMPFILE != os.O_TMPFILE


class Disk:
    """The disk of one party: refuses from the ``first`` passing of a point on, ``times`` times."""

    def __init__(self, party: str, error: int, first: int, times: int) -> None:
        self.party, self.error, self.first, self.times = party, error, first, times
        self.passed = 0

    def pass_by(self, party: str) -> None:
        if party != self.party:
            return
        self.passed += 1
        if self.first <= self.passed < self.first + self.times:
            raise OSError(self.error, os.strerror(self.error))


class Pair:
    """Two nodes in this process, one folder each; what a party writes is known by its folder."""

    def __init__(self, folder: Path, trial: Any) -> None:
        self.folder, self.trial = folder, trial
        self.nodes: dict[str, Node] = {}
        self.start("clinic", listen="127.0.0.1:0", peers={"lab": Peer()})
        address = self.bound
        self.start("lab", peers={"clinic": Peer(address=address)}, policy={"approve": accepting("clinic")})

    def start(self, name: str, **settings: Any) -> None:
        data = Data(path=self.trial.files[name])
        role: Any = "active" if name == "clinic" else "passive"
        made = Settings(
            name=name,
            role=role,
            data=data,
            insecure_loopback=True,
            http=None,
            state_dir=self.folder / name / "state",
            peer_wait_s=60,
            device="cpu",
            group_threads=1,
            **settings,
        )
        self.nodes[name] = Node(made)
        self.bound = self.nodes[name].start()

    def submit(self) -> str:
        return self.nodes["clinic"].submit(self.trial.job(JOB).canonical())["id"]

    def view(self, name: str, job_id: str) -> dict[str, Any]:
        return self.nodes[name].job(job_id) or {}

    def wait(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + 60
        while not condition():
            views = [[(view["state"], view["error"], view["note"]) for view in node.jobs()] for node in self.nodes.values()]
            assert time.monotonic() < limit, views
            time.sleep(0.01)

    def ended(self, name: str, job_id: str) -> bool:
        return self.view(name, job_id).get("state") in ("done", "failed", "cancelled")

    def outcome(self, job_id: str) -> list[Any]:
        found: list[Any] = []
        for name in NAMES:
            folder = self.folder / name / "state" / "jobs" / job_id / "artefacts"
            report = json.loads((folder / "report.json").read_text())
            found += [(folder / "model.safetensors").read_bytes().replace(job_id.encode(), b""), report["metrics"]]
        return found

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job has the same seed at a party and an id of the same length, so that runs can be compared."""
    monkeypatch.setattr("vfl_node.node.works.WATCH_S", 0.05)
    for module in ("dialling", "calls"):
        monkeypatch.setattr(f"vfl_node.node.{module}.RETRY_S", (0.02,))


@pytest.fixture
def pair(ram: Path, trial: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    same = SimpleNamespace(token_bytes=lambda count: b"s" * count, token_hex=secrets.token_hex)
    for module in (job_folder, partners):
        monkeypatch.setattr(module, "secrets", same)
    made = Pair(ram, trial)
    yield made
    made.stop()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Disk]:
    """Puts a disk under one party: of the points that a file passes, and of the index."""

    def put(party: str, error: int = errno.ENOSPC, first: int = 1 << 30, times: int = 1 << 30) -> Disk:
        made = Disk(party, error, first, times)
        real = os.open

        def opened(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            if writes(flags) and f"/{party}/state/" in str(path):
                made.pass_by(party)
            return real(path, flags, *rest, **named)

        write = store.Store._write

        def written(of: Any, record: Any, verb: Any, *documents: Any) -> None:
            with explaining():
                made.pass_by(of.folder.parent.name)
            write(of, record, verb, *documents)

        monkeypatch.setattr(os, "open", opened)
        monkeypatch.setattr(store.Store, "_write", written)
        return made

    return put


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, trial: Any) -> tuple[list[Any], dict[str, int]]:
    """What comes out where nothing is refused, and how often each party writes."""
    patch = pytest.MonkeyPatch()
    pair = None
    try:
        same = SimpleNamespace(token_bytes=lambda count: b"s" * count, token_hex=secrets.token_hex)
        for module in (job_folder, partners):
            patch.setattr(module, "secrets", same)
        pair = Pair(tmp_path_factory.mktemp("clean"), trial)
        counts = dict.fromkeys(NAMES, 0)
        real, write = os.open, store.Store._write

        def opened(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            for name in NAMES:
                counts[name] += bool(writes(flags) and f"/{name}/state/" in str(path))
            return real(path, flags, *rest, **named)

        def written(of: Any, record: Any, verb: Any, *documents: Any) -> None:
            counts[of.folder.parent.name] += 1
            write(of, record, verb, *documents)

        patch.setattr(os, "open", opened)
        patch.setattr(store.Store, "_write", written)
        job_id = pair.submit()
        pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
        return pair.outcome(job_id), counts
    finally:
        if pair:
            pair.stop()
        patch.undo()


@pytest.mark.parametrize(("victim", "place"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in MORE)])
def test_a_disk_that_fills_up_anywhere(
    pair: Pair, disk: Callable[..., Disk], clean: tuple[list[Any], dict[str, int]], victim: str, place: float
) -> None:
    """From the n-th write on there is no room, for the index neither; the job has an end all the same, and then goes on."""
    expected, counts = clean
    first = max(3 if victim == "clinic" else 2, int(place * counts[victim]))
    full = disk(victim, errno.ENOSPC, first)
    job_id = pair.submit()
    pair.wait(lambda: pair.ended(victim, job_id) or full.passed > first + 20)
    view = pair.view(victim, job_id)
    if view["state"] != "done":
        assert (view["state"], view["error"]["code"], view["resumable"]) == ("failed", "E_DISK_FULL", True)
        assert "resume" in view["error"]["hint"]
    full.times = 0
    if view["state"] != "done":
        pair.nodes[victim].resume(job_id)
    pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
    assert [pair.view(name, job_id)["state"] for name in NAMES] == ["done", "done"]
    assert pair.outcome(job_id) == expected


@pytest.mark.parametrize(
    ("victim", "error", "code"),
    [
        ("clinic", errno.EMFILE, "E_FILES"),
        ("lab", errno.EIO, "E_STATE"),
        ("clinic", errno.EDQUOT, "E_DISK_FULL"),
        pytest.param("lab", errno.EMFILE, "E_FILES", marks=pytest.mark.slow),
        pytest.param("clinic", errno.EIO, "E_STATE", marks=pytest.mark.slow),
        pytest.param("lab", errno.EDQUOT, "E_DISK_FULL", marks=pytest.mark.slow),
    ],
)
def test_a_machine_that_refuses_once(
    pair: Pair, disk: Callable[..., Disk], clean: tuple[list[Any], dict[str, int]], victim: str, error: int, code: str
) -> None:
    expected, counts = clean
    disk(victim, error, counts[victim] // 2, 1)
    job_id = pair.submit()
    pair.wait(lambda: pair.ended(victim, job_id))
    view = pair.view(victim, job_id)
    assert (view["state"], view["error"]["code"], view["resumable"]) == ("failed", code, True)
    pair.nodes[victim].resume(job_id)
    pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
    assert pair.outcome(job_id) == expected


def test_a_submission_on_a_full_disk_says_so_and_leaves_nothing(pair: Pair, disk: Callable[..., Disk]) -> None:
    full = disk("clinic", first=1)
    with pytest.raises(StateError) as caught:
        pair.submit()
    assert caught.value.code == "E_DISK_FULL"
    assert pair.nodes["clinic"].jobs() == []
    assert not any((pair.folder / "clinic" / "state" / "jobs").iterdir())
    full.times = 0
    job_id = pair.submit()
    pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
    assert pair.view("lab", job_id)["state"] == "done"


def test_a_peer_whose_disk_is_full_is_asked_again(pair: Pair, disk: Callable[..., Disk]) -> None:
    full = disk("lab", first=1)
    job_id = pair.submit()
    pair.wait(lambda: full.passed >= 2)
    assert pair.view("clinic", job_id)["state"] == "waiting"
    full.times = 0
    pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
    assert [pair.view(name, job_id)["state"] for name in NAMES] == ["done", "done"]


def test_an_end_that_could_not_be_stored_is_stored_later(pair: Pair, disk: Callable[..., Disk]) -> None:
    """Cancelled while nothing can be written: shown at once, and on the disk when there is room."""
    pair.nodes.pop("lab").stop()
    job_id = pair.submit()
    full = disk("clinic", first=1)
    pair.nodes["clinic"].cancel(job_id)
    pair.wait(lambda: pair.ended("clinic", job_id) and full.passed > 5)
    assert pair.view("clinic", job_id)["state"] == "cancelled"

    def stored() -> str:
        with sqlite3.connect(f"file:{pair.folder / 'clinic' / 'state' / 'jobs.sqlite'}?mode=ro", uri=True) as index:
            return str(index.execute("SELECT state FROM jobs WHERE id = ?", [job_id]).fetchone()[0])

    assert stored() == "waiting"
    full.times = 0
    pair.wait(lambda: stored() == "cancelled")


def test_a_job_whose_thread_goes_without_a_word_is_noticed(
    pair: Pair, clean: tuple[list[Any], dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = work.Work._live

    def goes(of: Any) -> None:
        if of._settings.name == "lab":
            of._folder.seed()
        else:
            live(of)

    views: list[dict[str, Any]] = []  # as it ended; soon after, at the word of the clinic, it may go on

    def ended() -> bool:
        views.append(pair.view("lab", job_id))
        return views[-1].get("state") == "failed"

    with monkeypatch.context() as patch:
        patch.setattr(work.Work, "_live", goes)
        job_id = pair.submit()
        pair.wait(ended)
    assert (views[-1]["error"]["code"], views[-1]["resumable"]) == ("E_THREAD", True)
    with suppress(UsageError):
        pair.nodes["lab"].resume(job_id)
    pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
    assert pair.outcome(job_id) == clean[0]


def test_a_job_for_which_no_thread_starts_may_be_resumed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("job-"):  # not those of gRPC, which never ends where it was refused one
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        job_id = pair.submit()
    assert pair.view("clinic", job_id)["error"]["code"] == "E_THREAD"
    pair.nodes["clinic"].resume(job_id)
    pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
    assert pair.view("clinic", job_id)["state"] == "done"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("database or disk is full", "E_DISK_FULL"),
        ("database is locked", "E_STATE_LOCKED"),
        ("disk I/O error", "E_STATE"),
        ("unable to open database file", "E_STATE"),
        ("database disk image is malformed", "E_STATE_CORRUPT"),
    ],
)
def test_what_sqlite_says(text: str, code: str) -> None:
    error = explain(sqlite3.OperationalError(text))
    assert error.code == code
    assert text.lower() in error.message
    assert text.lower() not in error.for_peer


@pytest.mark.parametrize("when", ["while the job waits", "before its partner is remembered"])
def test_a_state_folder_that_goes_away_pauses_its_jobs(
    when: str, pair: Pair, clean: tuple[list[Any], dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = pair.nodes.pop("lab")
    lab.stop()
    clinic, state = pair.nodes["clinic"], pair.folder / "clinic" / "state"
    node_store = clinic._store
    find = node_store.partner

    def move(*given: Any) -> Any:
        with suppress(FileNotFoundError):  # the partner is remembered more than once
            state.rename(pair.folder / "elsewhere")
        return find(*given) if given else None

    with monkeypatch.context() as patch:
        if when == "before its partner is remembered":
            patch.setattr(node_store, "partner", move)
        job_id = pair.submit()
        if when == "while the job waits":
            move()
        pair.wait(lambda: pair.view("clinic", job_id)["state"] == "paused")
    assert pair.view("clinic", job_id)["error"]["code"] == "E_STATE_LOST"
    with pytest.raises(StateError, match="is gone"):
        pair.submit()
    assert not state.exists()
    clinic.stop()
    (pair.folder / "elsewhere").rename(state)
    pair.nodes["clinic"] = Node(clinic.settings)
    address = pair.nodes["clinic"].start()
    pair.nodes["lab"] = Node(lab.settings.model_copy(update={"peers": {"clinic": Peer(address=address)}}))
    pair.nodes["lab"].start()
    pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
    assert pair.outcome(job_id) == clean[0]


def test_an_empty_token_is_drawn_anew(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "token").touch()
    node = Node(Settings(name="lab", role="passive", insecure_loopback=True, http=None, state_dir=tmp_path / "state"))
    node.stop()
    assert len(node.token) == 32
    assert (tmp_path / "state" / "token").read_text() == node.token


@pytest.mark.parametrize("at", ["lock", "jobs.sqlite", "token", "running.json"])
def test_a_start_on_a_full_disk_ends_with_a_sentence_and_a_code(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite calls it an I/O error where it cannot make the file that it maps into memory."""

    def full(path: Path, data: bytes) -> None:
        if path.name == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        path.write_bytes(data)

    def hold(path: Path) -> int:
        full(path, b"")
        return os.open(path, os.O_RDONLY)

    def index(path: Path) -> Any:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(tokens, "write_whole", full)
    monkeypatch.setattr(running, "write_whole", full)
    monkeypatch.setattr(store, "hold", hold)
    if at == "jobs.sqlite":
        monkeypatch.setattr(store, "Index", index)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(os, "umask", lambda _: 0)
    settings = Settings(name="lab", role="passive", insecure_loopback=True, http=None, state_dir=tmp_path / "state")
    with pytest.raises(StateError, match=r"cannot use the state folder .*(No space left|disk is full)") as caught:
        serving.serve(settings)
    assert caught.value.code == "E_DISK_FULL"
    assert "start the node again" in caught.value.hint
