"""What a node remembers of one partner for as long as they work together, beyond any job.

A folder (0700) for each partner: a secret, from which is drawn whatever hides something and has
to be the same in every job with this partner; things kept by name; which sets of ids were
aligned with it, and how often one was trained on. It outlives jobs: without it, a new draw over
the same ids could be compared with the old one. So both nodes count the alignments that they have begun with each other and
what they have heard of the other's count: a node whose memory is older than what its partner has seen, as after a
restored backup, notices, and its owner decides. Every file has a checksum.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.files import read_checked, remove, write_checked
from vfl_node.job import Name
from vfl_node.session.memory import older

_PEER: TypeAdapter[str] = TypeAdapter(Name)
_NAME = re.compile(r"[a-z0-9-]{1,80}")


class Partner:
    """The memory of one peer (:class:`vfl_node.session.memory.Memory`); safe to use from several threads.

    A folder has one such object at a time.
    """

    def __init__(self, folder: Path, peer: str) -> None:
        """Open the memory of ``peer`` in ``folder``, or begin one: its secret is drawn once, from the operating system.

        Raises:
            ValueError: ``peer`` is not a party's name.
            StateError: the secret is damaged (``E_STATE_CORRUPT``), or an earlier version wrote it (``E_STATE_VERSION``).
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
            write_checked(path, secrets.token_bytes(32))
        if path.exists() and path.stat().st_size == 32:
            raise StateError(
                f"{self._folder} was written by an earlier vfl-node, without checksums",
                code="E_STATE_VERSION",
                hint="go on with that version; or move the folder away at both nodes: all that hid something from "
                f"{peer} is drawn anew then, and it may compare new alignments with earlier ones",
                for_peer="what it remembers of this partner is of an earlier version",
            )
        hint = f"restore it from a backup; under another secret {peer} may compare new alignments with earlier ones"
        try:
            self._secret = read_checked(path, hint=hint)
        except FileNotFoundError:
            raise StateError(f"{path} is gone", code="E_STATE_CORRUPT", hint=hint) from None

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
        return self._read(self._path(name))

    def keep(self, name: str, data: bytes) -> bytes:
        """Keep ``data`` under ``name``, unless something is kept there already; what is kept from now on.

        Raises:
            ValueError: as :meth:`recall`.
        """
        with self._lock:
            kept = self.recall(name)
            if kept is None:
                write_checked(self._path(name), data)
            return data if kept is None else kept

    @property
    def seen(self) -> int:
        """How many alignments the peer has begun with this node, by its own count, as far as it was heard."""
        with self._lock:
            return self._met()[1]

    def check_not_older(self, peer_has_seen: int) -> None:
        """Refuse to go on with less memory than the peer has seen of this node, unless the owner has accepted the loss.

        What is lost stays lost; that it is accepted counts as a changed set. Nothing else follows from what a peer
        claims, so one that lies keeps nobody but itself from working with this node.

        Raises:
            StateError: the peer has seen alignments that are not remembered (``E_STATE_OLDER``).
        """
        with self._lock:
            begun, seen = self._met()
            if peer_has_seen <= begun:
                return
            accepted = self._read(self._folder / "accepted")
            if accepted is None or peer_has_seen > int(accepted):
                write_checked(self._folder / "claimed", b"%d" % peer_has_seen)
                raise older(self._peer, peer_has_seen, begun)
            for name in ("inputs", "changes"):
                line = hashlib.sha256(b"loss %d" % peer_has_seen).hexdigest().encode()
                write_checked(self._folder / name, b"\n".join([*self._lines(name), line]))
            write_checked(self._folder / "met", b"%d %d" % (peer_has_seen, seen))
            remove(self._folder / "accepted")  # this loss, and no other

    def begin(self) -> int:
        """Count an alignment that begins with this peer; how many there were, this one included."""
        with self._lock:
            begun, seen = self._met()
            write_checked(self._folder / "met", b"%d %d" % (begun + 1, seen))
            return begun + 1

    def saw(self, begun: int) -> None:
        """Remember how many alignments the peer says that it has begun."""
        with self._lock:
            own, seen = self._met()
            if begun > seen:
                write_checked(self._folder / "met", b"%d %d" % (own, begun))

    def count_inputs(self, digest: bytes, limit: int) -> None:
        """Count two sets of ids, ours and the peer's, that are to be aligned, before any list leaves; the same again are free.

        Running again when either set differs in one id is a differencing attack on that id.

        Args:
            digest: of both sets; the peer's by its own word.
            limit: how many different ones this node's owner allows.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        with self._lock:
            if (counted := self._count("inputs", digest, limit)) is not None:
                raise PolicyError(
                    f"{counted} different pairs of sets have been aligned with {self._peer}, "
                    f"and this node allows {limit} (limits.inputs_per_peer)",
                    code="E_BUDGET",
                    hint="align one of the earlier sets again, or raise limits.inputs_per_peer: "
                    "from sets that differ in a few ids both parties may learn about those",
                    for_peer="its owner's settings do not allow this alignment",
                )

    def count_changes(self, digest: bytes, limit: int) -> None:
        """Count two sets that are to be aligned while it is hidden how many of them are shared; the same again are free.

        What hides it (the number of dummies, the obfuscated set) is drawn anew when either set changes, by the peer's own
        word if it is the peer's; each draw over sets that hardly differ narrows what it can be.

        Args:
            digest: of both sets.
            limit: how many changes this node's owner allows.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        with self._lock:
            if (counted := self._count("changes", digest, limit + 1)) is not None:
                raise PolicyError(
                    f"sets have changed {counted - 1} times between alignments with {self._peer} that hide how many are "
                    f"shared, and this node allows {limit} changes (limits.changes_per_peer)",
                    code="E_BUDGET",
                    hint="align one of the earlier sets again, or raise limits.changes_per_peer: c changes leave about "
                    "2/(c + 2) of what dummies hide, and what obfuscated sets have in common comes closer to what is shared",
                    for_peer="its owner's settings do not allow this alignment",
                )

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
        records = f"{digest.hex()} ".encode()
        line = records + job_id.encode()
        with self._lock:
            counted = self._lines("trainings")
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
            write_checked(self._folder / "trainings", b"\n".join([*counted, line]))
            return len(over) + 1

    def _count(self, name: str, digest: bytes, limit: int) -> int | None:
        """Add ``digest`` to those counted under ``name``, unless it is there; how many there are, if no more may be."""
        counted, line = self._lines(name), digest.hex().encode()
        if line in counted:
            return None
        if len(counted) >= limit:
            return len(counted)
        write_checked(self._folder / name, b"\n".join([*counted, line]))
        return None

    def _lines(self, name: str) -> list[bytes]:
        return (self._read(self._folder / name) or b"").splitlines()

    def _met(self) -> tuple[int, int]:
        """How many alignments this node has begun with the peer, and how many the peer, as far as it was heard."""
        begun, seen = map(int, (self._read(self._folder / "met") or b"0 0").split())
        return begun, seen

    def _read(self, path: Path) -> bytes | None:
        try:
            return read_checked(path, hint="put the newest copy of state/partners back")
        except FileNotFoundError:
            return None

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError("a name is 1 to 80 of a-z, 0-9 and -")
        return self._folder / f"{name}.kept"


def accept_loss(folder: Path, peer: str) -> int:
    """Let the node work with ``peer`` again, which has seen more of it than it remembers; also while it runs.

    Args:
        folder: as :class:`Partner`.
        peer: whose name is known to be one.

    Returns:
        How many alignments the peer says it has seen. Should it say more later, that is another loss.

    Raises:
        UsageError: there is none to accept (``E_CONFIG``).
    """
    try:
        claimed = read_checked(folder / peer / "claimed")
    except FileNotFoundError:
        raise UsageError(
            f"{peer} has not seen more of this node than it remembers",
            code="E_CONFIG",
            hint="a job that meets a loss says so (E_STATE_OLDER)",
        ) from None
    write_checked(folder / peer / "accepted", claimed)
    remove(folder / peer / "claimed")
    return int(claimed)
