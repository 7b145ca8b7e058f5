"""What a node keeps: an index of jobs in SQLite, and one private folder per job and per partner.

SQLite (WAL, synchronous=FULL) holds the index; bulk lies in files that are written to a
temporary name, fsynced and renamed. A job's secrets (the seed from which every key, shuffle
and initial weight of this party derives) live in its folder until the job ends, so that a
restarted node repeats itself byte for byte; then they are destroyed. Where a job says ``serve``,
what predictions need (alignment and ``serving.json``, secret too) stays.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import sqlite3
import threading
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import StringConstraints, ValidationError

from vfl_node.alignment.alignment import Alignment
from vfl_node.configuration import Frozen
from vfl_node.errors import StateError, UsageError
from vfl_node.files import remove, write_whole
from vfl_node.job import Job, parse_job
from vfl_node.ledger import Learnt
from vfl_node.models import storage
from vfl_node.node.partners import Partner
from vfl_node.transport.channel import Traffic

State = Literal["waiting", "running", "paused", "done", "failed", "cancelled"]
UNFINISHED: tuple[State, ...] = ("waiting", "running", "paused")


@dataclass(frozen=True)
class Record:
    """One job in the index."""

    id: str
    name: str
    submitter: str
    spec: str
    state: State
    attempt: int = 0
    submitted: str = ""
    finished: str | None = None
    code: str | None = None
    message: str | None = None
    hint: str | None = None

    @property
    def resumable(self) -> bool:
        """Whether it ended only because its peer was lost, or the disk or memory was full; what it needs to go on is kept."""
        return self.state == "failed" and self.code in ("E_PEER_LOST", "E_PEER_ABSENT", "E_DISK_FULL", "E_WORKER")

    @property
    def over(self) -> bool:
        """Whether it never goes on."""
        return self.state not in UNFINISHED and not self.resumable

    @property
    def predict(self) -> dict[str, str] | None:
        """The job's section of that name; None where it is no job of predictions."""
        found: dict[str, str] | None = json.loads(self.spec).get("predict")
        return found

    @property
    def parties(self) -> list[str]:
        """Their names, also of a job that this version cannot read any more."""
        parties = json.loads(self.spec).get("parties", {})
        coordinator = parties.get("coordinator")
        return [parties.get("active"), *parties.get("passive", []), *([coordinator] if coordinator else [])]

    @property
    def job(self) -> Job:
        """The shared part of the job."""
        return parse_job(self.spec, source=f"job {self.id}")


class Serving(Frozen):
    """What a party keeps of a training to predict with, beside the model and the alignment.

    Attributes:
        input: digest of the records that took part, hexadecimal.
        encoder: JSON of the encoder that belongs to the model.
        serving: JSON, as :attr:`vfl_node.training.task.TrainingResult.serving`; holds a secret.
    """

    input: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    encoder: str
    serving: str


class Store:
    """The index of jobs of one node; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Open or create the store in ``folder``, which becomes private to this user (0700).

        Raises:
            StateError: the folder cannot be written (``E_STATE``), another node uses it
                (``E_STATE_LOCKED``), or the index is damaged (``E_STATE_CORRUPT``).
        """
        self.folder = folder
        self._lock = threading.Lock()
        self._partners: dict[str, Partner] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            (folder / "jobs").mkdir(exist_ok=True)
            self._holder = _hold(folder / "lock")
            shutil.rmtree(self.requests, ignore_errors=True)
            self.requests.mkdir(mode=0o700)
            self._db = sqlite3.connect(folder / "jobs.sqlite", check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, name TEXT NOT NULL, submitter TEXT NOT NULL, "
                "spec TEXT NOT NULL, state TEXT NOT NULL, attempt INTEGER NOT NULL, submitted TEXT NOT NULL, "
                "finished TEXT, code TEXT, message TEXT, hint TEXT)"
            )
        except OSError as error:
            raise StateError(
                f"cannot use the state folder {folder}: {error.strerror}", hint="set state_dir to a folder this user can write"
            ) from None
        except sqlite3.DatabaseError as error:
            raise StateError(
                f"the job index {folder / 'jobs.sqlite'} cannot be read: {error}",
                code="E_STATE_CORRUPT",
                hint="restore it from a backup, or move it away to begin with an empty index",
            ) from None

    @property
    def requests(self) -> Path:
        """Where files lie while they are read; empty whenever the node starts."""
        return self.folder / "requests"

    def close(self) -> None:
        """Close the index and let another node have the folder."""
        with self._lock:
            self._db.close()
        os.close(self._holder)

    def add(self, job: Job, *, submitter: str, job_id: str | None = None) -> Record:
        """Register a job as waiting; an id is made from its name where none is given."""
        record = Record(
            id=job_id or f"{job.name[:48]}-{secrets.token_hex(4)}",
            name=job.name,
            submitter=submitter,
            spec=job.canonical(),
            state="waiting",
            submitted=now(),
        )
        self._write(record, "INSERT")
        return record

    def update(self, record: Record, **changes: Any) -> Record:
        """Store ``record`` with ``changes`` and return it."""
        changed = replace(record, **changes)
        self._write(changed, "REPLACE")
        return changed

    def get(self, job_id: str) -> Record | None:
        """One job, or None."""
        found = self._query("SELECT * FROM jobs WHERE id = ?", job_id)
        return found[0] if found else None

    def all(self) -> list[Record]:
        """Every job, newest first."""
        return self._query("SELECT * FROM jobs ORDER BY submitted DESC, rowid DESC")

    def unfinished(self) -> list[Record]:
        """Jobs that go on after a restart, oldest first."""
        return [record for record in reversed(self.all()) if record.state in UNFINISHED]

    def job_folder(self, record: Record) -> JobFolder:
        """The private folder of a job."""
        return JobFolder(self.folder / "jobs" / record.id)

    def destroy_secrets(self, record: Record) -> None:
        """Remove all that a job has left but its artefacts and, where it ended well, what predictions need."""
        folder = self.job_folder(record)
        if record.state != "done":
            folder.serve_no_more()
        folder.destroy_secrets()

    def partner(self, peer: str) -> Partner:
        """What this node remembers of ``peer`` beyond any job; the same object for every job."""
        with self._lock:
            if peer not in self._partners:
                self._partners[peer] = Partner(self.folder / "partners", peer)
            return self._partners[peer]

    def _write(self, record: Record, verb: Literal["INSERT", "REPLACE"]) -> None:
        names = [field.name for field in fields(Record)]
        marks = ", ".join(f":{name}" for name in names)
        with self._lock:
            self._db.execute(f"{verb} INTO jobs ({', '.join(names)}) VALUES ({marks})", asdict(record))

    def _query(self, sql: str, *values: str) -> list[Record]:
        names = [field.name for field in fields(Record)]
        with self._lock:
            rows = self._db.execute(sql.replace("*", ", ".join(names), 1), values).fetchall()
        return [Record(*row) for row in rows]


class JobFolder:
    """Everything one job leaves on this node's disk (0700); several conversations of the job may use it at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pinning = threading.Lock()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def artefacts(self) -> Path:
        """Report and models; what is left when the job has ended."""
        return self.path / "artefacts"

    @property
    def lists(self) -> Path:
        """Lists of an alignment under way."""
        return self.path / "lists"

    @property
    def checkpoints(self) -> Path:
        """Training checkpoints."""
        return self.path / "checkpoints"

    @property
    def kept(self) -> bool:
        """Whether this party's report and model are written (the report comes last)."""
        return (self.artefacts / "report.json").exists()

    @property
    def request(self) -> Path:
        """The file of records that a job predicts, at the party that asks."""
        return self.path / "request.csv"

    @property
    def serving(self) -> Serving | None:
        """What predictions need beside model and alignment, as :meth:`serve` kept it; None where nothing is kept.

        Raises:
            StateError: it is damaged (``E_STATE_CORRUPT``).
        """
        try:
            return Serving.model_validate_json(self._serving.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            hint = "restore it from a backup, or train again"
            raise StateError(f"{self._serving} is damaged", code="E_STATE_CORRUPT", hint=hint) from None

    def serve(self, serving: Serving) -> None:
        """Keep ``serving``, and from now on, whatever else is destroyed, the alignment."""
        write_whole(self._serving, serving.model_dump_json().encode())

    def serve_no_more(self) -> None:
        """Forget what :meth:`serve` kept."""
        remove(self._serving)

    @property
    def cancelled(self) -> bool:
        """Whether the owner wants the end of the job, which has not ended yet."""
        return self._cancelled.exists()

    def cancel(self) -> None:
        """Keep that the owner wants its end."""
        write_whole(self._cancelled, b"")

    def seed(self, *, first: bool = True) -> bytes:
        """The job's secret seed at this party; drawn once from the operating system.

        Args:
            first: whether this is the first attempt; a later one must find the seed.

        Raises:
            StateError: the seed is gone (``E_STATE_LOST``) or damaged (``E_STATE_CORRUPT``).
        """
        path = self.path / "seed"
        if not path.exists():
            if not first:
                raise self._lost()
            write_whole(self._pins, b"{}")  # before the seed: where that is, they must be
            write_whole(path, secrets.token_bytes(32))
        seed = path.read_bytes()
        if len(seed) != 32:
            raise StateError(f"{path} is damaged", code="E_STATE_CORRUPT", hint="submit the job again as a new one")
        return seed

    def check(self, name: str, digest: bytes) -> None:
        """As :meth:`vfl_node.alignment.alignment.Pins.check`, kept on disk."""
        self._pin(
            name, digest, code="E_REPLAY", text="{name} differs from an earlier attempt of this job", hint="submit a new job"
        )

    def check_input(self, owner: str, digest: bytes) -> None:
        """Refuse another input than the one the job began with.

        Running alignment again on a changed set would be a differencing attack.
        """
        self._pin(
            f"input of {owner}",
            digest,
            code="E_INPUT_CHANGED",
            text="the {name} has changed since the job began (digest {before}…, now {after}…)",
            hint="put the original file back to resume, or submit a new job",
        )

    def _pin(self, name: str, digest: bytes, *, code: str, text: str, hint: str) -> None:
        with self._pinning:
            pins = self._read_pins()
            if name not in pins:
                pins |= {name: digest.hex()}
                write_whole(self._pins, json.dumps(pins).encode())
        if pins[name] != digest.hex():
            before, after = pins[name][:12], digest.hex()[:12]
            raise StateError(
                text.format(name=name, before=before, after=after),
                code=code,
                hint=hint,
                for_peer="its part of the job has changed since it began",
            )

    @property
    def _serving(self) -> Path:
        return self.path / "serving.json"

    @property
    def _cancelled(self) -> Path:
        return self.path / "cancelled"

    @property
    def _alignment(self) -> Path:
        return self.path / "alignment.safetensors"

    @property
    def _pins(self) -> Path:
        return self.path / "pins.json"

    def _read_pins(self) -> dict[str, str]:
        """What must stay as it is; nothing before the job has a seed."""
        try:
            pins: dict[str, str] = json.loads(self._pins.read_text())
        except FileNotFoundError:
            if (self.path / "seed").exists():
                raise self._lost() from None
            return {}
        except ValueError:
            hint = "submit the job again as a new one"
            raise StateError(f"{self._pins} is damaged", code="E_STATE_CORRUPT", hint=hint) from None
        return pins

    def _lost(self) -> StateError:
        return StateError(
            f"what job {self.path.name} stored is gone from {self.path}",
            code="E_STATE_LOST",
            hint="put the state folder back, or submit a new job",
            for_peer="it has lost what it stored of the job",
        )

    def save_alignment(self, alignment: Alignment, seconds: float, traffic: Traffic) -> None:
        """Keep a finished alignment and what it cost, so that a restart does not repeat it."""
        rows = torch.from_numpy(alignment.rows)
        head = asdict(replace(alignment, rows=alignment.rows[:0]))  # a copy of all of them would be as large
        del head["rows"]
        about = {"alignment": json.dumps(head), "seconds": repr(seconds), "traffic": json.dumps(asdict(traffic))}
        storage.save(self._alignment, {"rows": rows}, about)

    def load_alignment(self) -> tuple[Alignment, float, Traffic] | None:
        """The finished alignment, its wall time and traffic; None before.

        Raises:
            StateError: another version wrote it (``E_STATE``), or it is damaged (``E_STATE_CORRUPT``).
        """
        path = self._alignment
        if not path.exists():
            return None
        tensors, about = storage.load(path)
        try:
            head = json.loads(about["alignment"])
            for name in ("learnt", "peer_learnt"):
                head[name] = tuple(Learnt(**item) for item in head[name])
            alignment = Alignment(rows=tensors["rows"].numpy(), **head)
        except (KeyError, TypeError, ValueError):
            raise StateError(f"{path} was written by another version", hint="submit the job again as a new one") from None
        return alignment, float(about["seconds"]), Traffic(**json.loads(about["traffic"]))

    def remove_lists(self) -> None:
        """Remove the lists of an alignment that both parties have kept."""
        shutil.rmtree(self.lists, ignore_errors=True)

    def destroy_secrets(self) -> None:
        """Remove everything but the artefacts, and what predictions need: seed, pins, checkpoints, alignment as a rule."""
        kept = {self.artefacts} | ({self._serving, self._alignment} if self._serving.exists() else set())
        for entry in self.path.iterdir():
            if entry in kept:
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)


ARTEFACTS = ("model.safetensors", "report.html", "report.json")
"""What a job leaves for its owner; the report comes last, and says that all is there."""


def clear_artefacts(folders: list[Path]) -> None:
    """Remove what an earlier run left in ``folders``, so that nothing of it stands beside a new report."""
    for folder in folders:
        for name in ARTEFACTS:
            (folder / name).unlink(missing_ok=True)


def copy_artefacts(source: Path, target: Path) -> None:
    """Copy what a job left, each file whole (0600), the report last."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ARTEFACTS:
        if (source / name).exists():
            write_whole(target / name, (source / name).read_bytes())


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _hold(path: Path) -> int:
    """Lock the state folder for this process; the descriptor keeps the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise UsageError(
            f"the state folder {path.parent} is in use by another node (process {holder})",
            code="E_STATE_LOCKED",
            hint="stop that node, or give this one its own state_dir",
        ) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor
