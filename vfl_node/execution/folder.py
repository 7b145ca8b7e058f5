"""The folder of one job: its secrets, what it has agreed and computed so far, and what it leaves for its owner.

A job's secrets (the seed from which every key, shuffle and initial weight of this party is derived) stay here until the job
ends, so that a restarted node sends the same bytes again; then they are destroyed. If the job says ``serve``, what
predictions need (the alignment, and ``serving``, which is secret too) remains.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from vfl_node.alignment import stored
from vfl_node.alignment.alignment import Alignment
from vfl_node.errors import StateError
from vfl_node.execution.outcome import JobOutcome
from vfl_node.execution.trial import Trial
from vfl_node.models import storage
from vfl_node.process import failpoints
from vfl_node.process.files import read_checked, remove, write_checked, write_whole
from vfl_node.training.prediction.stored import StoredPredictor
from vfl_node.transport.pipe import Traffic

_ANEW = "submit the job again as a new one"

_EARLIER_PREDICTOR = "serving.json"
"""Where an earlier version stored what predictions need; it remains for that version to read."""


class JobFolder(JobOutcome):
    """Everything that one job stores on this node's disk (0700). Several conversations of the job may use it at once."""

    def __init__(self, path: Path, trial: Trial | None = None) -> None:
        """The folder at ``path``, whose name is the job's id; ``trial``: the one that the job is run in, if any."""
        super().__init__(path)
        self.trial = trial or Trial()
        self._pinning = threading.Lock()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def lists(self) -> Path:
        """Lists of an alignment under way."""
        return self.path / "lists"

    @property
    def cached(self) -> Path:
        """Lists of tags that outlive the job, beside the folder of all jobs (:mod:`vfl_node.alignment.upsi.cached`)."""
        return self.path.parent.with_name("cached")

    @property
    def checkpoints(self) -> Path:
        """Training checkpoints."""
        return self.path / "checkpoints"

    @property
    def extent(self) -> tuple[int, bool, str]:
        """How much of the job is stored: bytes of lists, whether it is aligned, and the name of its newest checkpoint."""
        lists = sum(path.stat().st_size for path in self.lists.rglob("*") if path.is_file())
        stored = (path.relative_to(self.checkpoints).as_posix() for path in self.checkpoints.rglob("*.checkpoint"))
        return lists, self._alignment.exists(), max(stored, default="")

    @property
    def request(self) -> bytes | None:
        """The file of records that a job predicts, at the party that asks; None where there is none.

        Raises:
            StateError: it is damaged (``E_STATE_CORRUPT``).
        """
        with suppress(FileNotFoundError):
            return read_checked(self._request, hint="ask again")
        return None

    def keep_request(self, request: bytes) -> None:
        """Keep the file of records that a job predicts."""
        write_checked(self._request, request)

    @property
    def predictor_stamp(self) -> tuple[int, ...] | None:
        """Another one whenever :attr:`predictor` may be another; None where there is none."""
        try:
            status = self._predictor.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size

    @property
    def predictor(self) -> StoredPredictor | None:
        """What predictions need beside model and alignment, as :meth:`keep_predictor` stored it; None if nothing is stored.

        Raises:
            StateError: it is damaged (``E_STATE_CORRUPT``), or an earlier version kept it (``E_STATE_VERSION``).
        """
        with suppress(FileNotFoundError):
            return StoredPredictor.from_json(
                read_checked(self._predictor, hint="restore it from a backup, or train again").decode()
            )
        if (self.path / _EARLIER_PREDICTOR).exists():
            raise StateError(
                f"the model of job {self.path.name} was kept by an earlier vfl-node, without a checksum",
                code="E_STATE_VERSION",
                hint="predict with that version, or train again",
                for_peer="its model was kept by an earlier version",
            )
        return None

    @staticmethod
    def keeps_predictor(path: Path) -> bool:
        """Whether the folder at ``path`` keeps a model for predictions."""
        return (path / "serving").exists() or (path / _EARLIER_PREDICTOR).exists()

    def keep_predictor(self, predictor: StoredPredictor) -> None:
        """Store ``predictor``; from now on the alignment remains, too, when the secrets are destroyed."""
        write_checked(self._predictor, predictor.to_json().encode())

    def forget_predictor(self) -> None:
        """Remove what :meth:`keep_predictor` stored."""
        remove(self._predictor)
        remove(self.path / _EARLIER_PREDICTOR)

    @property
    def shown(self) -> Path:
        """Which rows of the model the peer was told about (:class:`vfl_node.training.prediction.stored.FileShown`)."""
        return self.path / "shown"

    @property
    def rows(self) -> Path:
        """Marks of the records that the model was trained on (:class:`vfl_node.data.marks.Marks`)."""
        return self.path / "rows"

    @property
    def split(self) -> Path:
        """The seed by which rows were held out, for jobs that use the alignment again."""
        return self.path / "split"

    @property
    def earlier_split(self) -> Path:
        """The same of the job whose alignment this one uses again."""
        return self.path / "earlier-split"

    @property
    def evidence(self) -> Path:
        """Weights of evidence (:class:`vfl_node.data.evidence.KeptEvidence`), for jobs that use the alignment again."""
        return self.path / "evidence"

    @property
    def earlier_evidence(self) -> Path:
        """The same of the job whose alignment this one uses again."""
        return self.path / "earlier-evidence"

    @property
    def synthetic(self) -> Path:
        """The seed of synthetic rows (:mod:`vfl_node.execution.synthetic`), for jobs that use the alignment again."""
        return self.path / "synthetic"

    @property
    def keeps_alignment(self) -> bool:
        """Whether another job can use the alignment again."""
        return self._alignment.exists() and self.rows.exists()

    def forget_alignment(self) -> None:
        """Remove what other jobs could use again, unless predictions need it."""
        if not self.keeps_predictor(self.path):
            for path in (self._alignment, self.rows, self.split, self.evidence, self.synthetic):
                remove(path)

    @property
    def transcript(self) -> Path:
        """What training exchanged, in a trial that asked for it (:class:`vfl_node.session.transcript.Transcript`)."""
        return self.path / "transcript"

    @property
    def received(self) -> Path:
        """What was received of some rows, in a trial that runs the joint attack (:mod:`vfl_node.training.split.received`)."""
        return self.path / "received"

    @property
    def cancelled(self) -> bool:
        """Whether the owner wants the end of the job, which has not ended yet."""
        return self._cancelled.exists()

    def cancel(self) -> None:
        """Store that the owner wants the end of the job."""
        write_whole(self._cancelled, b"")

    @property
    def early(self) -> Path:
        """A file that is there from the begin of a job before this owner's hours until its training begins in them."""
        return self.path / "early"

    def seed(self, *, first: bool = True) -> bytes:
        """The job's secret seed at this party; drawn once from the operating system, or the trial's.

        Args:
            first: whether this is the first attempt; a later one must find the seed.

        Raises:
            StateError: the seed is gone (``E_STATE_LOST``) or damaged (``E_STATE_CORRUPT``).
        """
        path = self.path / "seed"
        if not path.exists():
            if not first:
                raise self._loss_error()
            write_checked(self._pins, b"{}")  # before the seed: where that is, they must be
            write_checked(path, self.trial.job_seed(self.path.name) or secrets.token_bytes(32))
        if path.stat().st_size == 32:
            raise StateError(
                f"{path} was written by an earlier vfl-node, whose draws were others", code="E_STATE_VERSION", hint=_ANEW
            )
        return read_checked(path, hint=_ANEW)

    def check(self, name: str, digest: bytes) -> None:
        """As :meth:`vfl_node.session.pins.Pins.check`, kept on disk."""
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

    def check_setting(self, key: str, value: str, *, text: str, code: str) -> None:
        """Refuse another value of a setting than the one the job began to train with: it would send other bytes."""
        self._pin(
            key,
            hashlib.sha256(value.encode()).digest(),
            code=code,
            text=text,
            hint=f"set {key} to what it was, start the node, then go on: vfl-node resume JOB",
        )

    def _pin(self, name: str, digest: bytes, *, code: str, text: str, hint: str) -> None:
        with self._pinning:
            pins = self._read_pins()
            if name not in pins:
                pins |= {name: digest.hex()}
                write_checked(self._pins, json.dumps(pins).encode())
        if pins[name] != digest.hex():
            before, after = pins[name][:12], digest.hex()[:12]
            raise StateError(
                text.format(name=name, before=before, after=after),
                code=code,
                hint=hint,
                for_peer="its part of the job has changed since it began",
            )

    @property
    def _predictor(self) -> Path:
        return self.path / "serving"

    @property
    def _request(self) -> Path:
        return self.path / "request"

    @property
    def _cancelled(self) -> Path:
        return self.path / "cancelled"

    @property
    def _alignment(self) -> Path:
        return self.path / "alignment"

    @property
    def _pins(self) -> Path:
        return self.path / "pins"

    def _read_pins(self) -> dict[str, str]:
        """Name → digest of what must not change; empty before the job has a seed."""
        try:
            pins: dict[str, str] = json.loads(read_checked(self._pins, hint=_ANEW))
        except FileNotFoundError:
            if (self.path / "seed").exists():
                raise self._loss_error() from None
            return {}
        return pins

    def _loss_error(self) -> StateError:
        return StateError(
            f"what job {self.path.name} stored is gone from {self.path}",
            code="E_STATE_LOST",
            hint="put the state folder back, or submit a new job",
            for_peer="it has lost what it stored of the job",
        )

    def save_alignment(self, alignment: Alignment, seconds: float, traffic: Traffic) -> None:
        """Keep a finished alignment and what it cost, so that a restart does not repeat it."""
        arrays, head = stored.parts(alignment)
        about = {"alignment": head, "seconds": repr(seconds), "traffic": json.dumps(asdict(traffic))}
        storage.keep_arrays(self._alignment, arrays, about)

    def load_alignment(self, peers: Sequence[str]) -> tuple[Alignment, float, Traffic] | None:
        """The finished alignment with ``peers``, its wall time and traffic; None before.

        Raises:
            StateError: another version wrote it (``E_STATE_VERSION``), or it is damaged (``E_STATE_CORRUPT``).
        """
        path = self._alignment
        if not path.exists():
            return None
        arrays, about = storage.recall_arrays(path, hint=_ANEW)
        try:
            alignment = stored.join_parts(arrays, about["alignment"], peers)
        except (KeyError, TypeError, ValueError):
            raise StateError(f"{path} was written by another version", code="E_STATE_VERSION", hint=_ANEW) from None
        return alignment, float(about["seconds"]), Traffic(**json.loads(about["traffic"]))

    def remove_lists(self) -> None:
        """Remove the lists of an alignment that both parties have kept."""
        shutil.rmtree(self.lists, ignore_errors=True)

    def remove_bulk(self) -> None:
        """Remove what is large and could be made again."""
        for path in (self.lists, self.checkpoints, self.path / "ahead"):
            shutil.rmtree(path, ignore_errors=True)

    def destroy_secrets(self) -> None:
        """Remove everything but the artefacts, and what predictions and jobs need that use the alignment again."""
        failpoints.reach("forget")
        remaining = {self.artefacts, self.wire, self.columns}
        if self._predictor.exists():
            remaining |= {self._predictor, self.shown}
        if self._predictor.exists() or self.keeps_alignment:
            remaining |= {self._alignment, self.rows, self.split, self.evidence, self.synthetic}
        if (self.path / _EARLIER_PREDICTOR).exists():
            remaining |= {self.path / _EARLIER_PREDICTOR, self.path / "alignment.safetensors"}
        if self.trial.transcript:
            remaining |= {self.transcript}
        if self.trial.joint:
            remaining |= {self.received, self._alignment}
        for entry in set(self.path.iterdir()) - remaining:
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)
