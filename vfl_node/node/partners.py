"""What a node remembers of one partner for as long as they work together, beyond any job.

A folder (0700) for each partner: a secret, from which is drawn whatever hides something and has
to be the same in every job with this partner; things kept by name; which sets of ids were
aligned with it, and how often one was trained on. It outlives jobs: without it, a new draw over
the same ids could be compared with the old one.
"""

from __future__ import annotations

import re
import secrets
import threading
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError, StateError
from vfl_node.files import write_whole
from vfl_node.job import Name

_PEER: TypeAdapter[str] = TypeAdapter(Name)
_NAME = re.compile(r"[a-z0-9-]{1,80}")


class Partner:
    """The memory of one peer (:class:`vfl_node.alignment.alignment.Memory`); safe to use from several threads.

    A folder has one such object at a time.
    """

    def __init__(self, folder: Path, peer: str) -> None:
        """Open the memory of ``peer`` in ``folder``, or begin one: its secret is drawn once, from the operating system.

        Raises:
            ValueError: ``peer`` is not a party's name.
            StateError: the secret is damaged (``E_STATE_CORRUPT``).
        """
        try:
            self._peer = _PEER.validate_python(peer)
        except ValidationError:
            raise ValueError("not a party's name") from None
        self._folder = folder / peer
        self._lock = threading.Lock()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        path = self._folder / "secret"
        if not any(file.suffix != ".tmp" for file in self._folder.iterdir()):
            write_whole(path, secrets.token_bytes(32))
        self._secret = path.read_bytes() if path.exists() else b""
        if len(self._secret) != 32:
            raise StateError(
                f"{path} is damaged or gone",
                code="E_STATE_CORRUPT",
                hint=f"restore it from a backup; under another secret {peer} may compare new alignments with earlier ones",
            )

    def __repr__(self) -> str:
        return f"Partner({self._peer})"

    @property
    def secret(self) -> Randomness:
        """Randomness of this node for this peer, at its beginning: the same in every job."""
        return Randomness(self._secret)

    def recall(self, name: str) -> bytes | None:
        """What was kept under ``name``, if anything.

        Raises:
            ValueError: ``name`` is not 1 to 80 of ``a-z``, ``0-9`` and ``-``.
        """
        path = self._path(name)
        return path.read_bytes() if path.exists() else None

    def keep(self, name: str, data: bytes) -> bytes:
        """Keep ``data`` under ``name``, unless something is kept there already; what is kept from now on.

        Raises:
            ValueError: as :meth:`recall`.
        """
        with self._lock:
            kept = self.recall(name)
            if kept is None:
                write_whole(self._path(name), data)
            return data if kept is None else kept

    def count_inputs(self, digest: bytes, limit: int) -> None:
        """Count two sets of ids, ours and the peer's, that are to be aligned, before any list leaves; the same again are free.

        Running again when either set differs in one id is a differencing attack on that id.

        Args:
            digest: of both sets; the peer's by its own word.
            limit: how many different ones this node's owner allows.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        path, line = self._folder / "inputs", digest.hex().encode()
        with self._lock:
            counted = path.read_bytes().split() if path.exists() else []
            if line in counted:
                return
            if len(counted) >= limit:
                raise PolicyError(
                    f"{len(counted)} different pairs of sets have been aligned with {self._peer}, "
                    f"and this node allows {limit} (limits.inputs_per_peer)",
                    code="E_BUDGET",
                    hint="align one of the earlier sets again, or raise limits.inputs_per_peer: "
                    "from sets that differ in a few ids both parties may learn about those",
                    for_peer="its owner's settings do not allow this alignment",
                )
            write_whole(path, b"\n".join([*counted, line]))

    def count_trainings(self, digest: bytes, job_id: str, limit: int) -> int:
        """Count a training with synthetic rows over a set of our own, before anything of it leaves; the same job again is free.

        What stands in for a row is drawn anew in each: it could only stay as it was if the position of a foreign
        record did, and that is blinded anew. Real rows stay, so whoever compares trainings tells them apart.

        Args:
            digest: of our own set: a peer that changes its set begins no new count.
            job_id: of the training.
            limit: how many of them this node's owner allows over one set.

        Returns:
            Which one it is over these records with this partner, from 1.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        path, records = self._folder / "trainings", f"{digest.hex()} ".encode()
        line = records + job_id.encode()
        with self._lock:
            counted = path.read_bytes().splitlines() if path.exists() else []
            over = [known for known in counted if known.startswith(records)]
            if line in over:
                return over.index(line) + 1
            if len(over) >= limit:
                raise PolicyError(
                    f"there were {len(over)} trainings with {self._peer} over this node's records in which rows were made up "
                    f"for those that a party lacks, and this node allows {limit} (limits.trainings_per_set)",
                    code="E_BUDGET",
                    hint="align by psi, where no row is made up, or raise limits.trainings_per_set: such rows are drawn anew "
                    "in each training, and whoever compares trainings tells them from real ones",
                    for_peer="its owner's settings do not allow this training",
                )
            write_whole(path, b"\n".join([*counted, line]))
            return len(over) + 1

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError("a name is 1 to 80 of a-z, 0-9 and -")
        return self._folder / f"{name}.kept"
