"""What a job leaves at one party for its owner, and how it is decided that the job is done there.

A party's artefacts are *sealed* once they are written and durable. The active party *confirms* the job once it has heard that
of all others; from then on it is done everywhere (:mod:`vfl_node.execution.finish`).
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

from vfl_node.errors import StateError, VflError
from vfl_node.job import Job
from vfl_node.process.files import private_folder, write_whole

ARTEFACTS = ("model.safetensors", "trace.json", "report.html", "report.json")
"""What a job leaves for its owner; the report is written last, when everything else is there."""

SUMS = "SHA256SUMS"
"""The file beside a job's artefacts with their checksums."""

_DAMAGED = "what it stored is damaged"


class JobOutcome:
    """The end of one job at this party. Several threads may use it at once.

    Attributes:
        path: folder of the job.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ending = threading.Lock()
        self._wish: VflError | None = None

    @property
    def artefacts(self) -> Path:
        """Report and models; what is left when the job has ended."""
        return self.path / "artefacts"

    @property
    def wire(self) -> Path:
        """What was seen of its messages, where the owner looks through them; it stays like the artefacts."""
        return self.path / "wire.json"

    @property
    def columns(self) -> Path:
        """How the values of the records trained on lay (:class:`vfl_node.data.stability.NotedTable`); it stays like them."""
        return self.path / "columns"

    @property
    def sealed(self) -> bool:
        """Whether this party's report and model are written (their checksums come last)."""
        return (self.artefacts / SUMS).exists()

    def seal(self) -> None:
        """Write the checksums of all artefacts, as ``sha256sum`` does; from now on they are :attr:`sealed`.

        Raises:
            VflError: the job was ended before (:meth:`end_with`).
        """
        self._last_word(self.artefacts / SUMS, self._sums())

    @property
    def confirmed(self) -> bool:
        """Whether all parties are known to have stored theirs; then the job is done, whatever happens."""
        return (self.path / "confirmed").exists()

    def confirm(self) -> None:
        """Store that the job is :attr:`confirmed`. Raises VflError if it was ended before (:meth:`end_with`)."""
        self._last_word(self.path / "confirmed", b"")

    def end_with(self, error: VflError, *, decides: bool) -> bool:
        """End the job with ``error``, unless it is too late for this party to decide that.

        Args:
            error: what :meth:`seal` and :meth:`confirm` raise from now on, so that no other party can be told otherwise.
            decides: whether this is the active party, which decides until the job is confirmed. Any other one decides until
                its part is sealed; afterwards the others may have heard so.

        Returns:
            Whether it was in time.
        """
        with self._ending:
            in_time = not (self.confirmed if decides else self.sealed)
            if in_time:
                self._wish = error
        return in_time

    def _last_word(self, path: Path, content: bytes) -> None:
        with self._ending:
            if self._wish:
                raise self._wish
            write_whole(path, content)

    def remove_artefacts(self) -> None:
        """Remove what the job left for its owner."""
        (self.artefacts / SUMS).unlink(missing_ok=True)  # first: what follows may break off
        shutil.rmtree(self.artefacts, ignore_errors=True)

    def artefact(self, name: str) -> Path:
        """An artefact that is as it was written.

        Raises:
            StateError: it is not (``E_STATE_CORRUPT``), or it is gone (``E_STATE_LOST``).
        """
        path, hint = self.artefacts / name, "restore it from a backup, or train again"
        try:
            line = f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}".encode()
            if line in (self.artefacts / SUMS).read_bytes().splitlines():
                return path
        except FileNotFoundError as error:
            raise StateError(f"{error.filename} is gone", code="E_STATE_LOST", hint=hint, for_peer=_DAMAGED) from None
        raise StateError(f"{path} is not what {SUMS} says", code="E_STATE_CORRUPT", hint=hint, for_peer=_DAMAGED)

    @property
    def whole(self) -> bool:
        """Whether all artefacts are :attr:`sealed`, there and as they were written."""
        return self.sealed and (self.artefacts / SUMS).read_bytes() == self._sums()

    def _sums(self) -> bytes:
        files = sorted(path for path in self.artefacts.iterdir() if path.name != SUMS)
        return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files).encode()


def artefact_folders(job: Job, out: Path) -> dict[str, Path]:
    """Party → where a trial copies its artefacts: the active one's to ``out``, the others' below it."""
    return {name: out if name == job.parties.active else out / name for name in job.parties.all}


def clear_artefacts(folders: Iterable[Path]) -> None:
    """Remove what an earlier run left in ``folders``, so that nothing of it stands beside a new report."""
    for folder in folders:
        for name in ARTEFACTS:
            (folder / name).unlink(missing_ok=True)


def copy_artefacts(source: Path, target: Path) -> None:
    """Copy what a job left, each file whole (0600), the report last."""
    private_folder(target)
    for name in ARTEFACTS:
        if (source / name).exists():
            write_whole(target / name, (source / name).read_bytes())
