"""What a node remembers of one partner for as long as they work together, beyond any job.

Each partner has a folder (0700) with

- a secret, from which everything is drawn that hides something and must be the same in every job with this partner;
- data stored by name;
- which sets of ids were aligned with the partner, and how often one of them was trained on.

It outlives jobs, because a partner could compare a second draw over the same ids with the first. Therefore both nodes count
the alignments that they have begun with each other, and remember the other's count. A node whose memory is older than what its
partner has seen, for example after a backup was restored, notices it, and its owner decides. Every file has a checksum.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.files import read_checked, remove, write_checked
from vfl_node.job import Name
from vfl_node.node.partner_upgrade import upgrade
from vfl_node.session.memory import older

_PEER: TypeAdapter[str] = TypeAdapter(Name)
_NAME = re.compile(r"[a-z0-9-]{1,80}")
_LOSS = b"loss "
"""Before the number of an accepted loss among linkages: it counts for every set, as noise may be drawn anew after it."""


class Partner:
    """The memory of one peer (:class:`vfl_node.session.memory.Memory`). Safe to use from several threads.

    There must be only one such object for a folder.
    """

    def __init__(self, folder: Path, peer: str, secret: bytes | None = None) -> None:
        """Open the memory of ``peer`` in ``folder``, or begin one, whose secret is drawn from the operating system.

        Args:
            folder: of all partners.
            peer: a party's name.
            secret: with which it begins in a trial.

        Raises:
            ValueError: ``peer`` is not a party's name.
            StateError: the secret is damaged (``E_STATE_CORRUPT``), or what an earlier version wrote cannot be upgraded
                (``E_STATE_VERSION``).
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
            write_checked(path, secret or secrets.token_bytes(32))
        upgrade(self._folder, self._peer)
        hint = f"restore it from a backup; under another secret {peer} may compare new alignments with earlier ones"
        try:
            self._secret = read_checked(path, hint=hint)
        except FileNotFoundError:
            raise StateError(f"{path} is gone", code="E_STATE_CORRUPT", hint=hint) from None

    def __repr__(self) -> str:
        return f"Partner({self._peer})"

    @property
    def secret(self) -> Randomness:
        """A new stream of this node's randomness for this peer; the same in every job."""
        return Randomness(self._secret)

    def recall(self, name: str) -> bytes | None:
        """The data stored under ``name``, if any.

        Raises:
            ValueError: ``name`` is not 1 to 80 of ``a-z``, ``0-9`` and ``-``.
        """
        return self._read(self._path(name))

    def keep(self, name: str, data: bytes) -> bytes:
        """Store ``data`` under ``name`` unless something is stored there already; returns what is stored now.

        Raises:
            ValueError: as :meth:`recall`.
        """
        with self._lock:
            stored = self.recall(name)
            if stored is None:
                write_checked(self._path(name), data)
            return data if stored is None else stored

    @property
    def seen(self) -> int:
        """How many alignments the peer has begun with this node, by the last count that it sent."""
        with self._lock:
            return self._met()[1]

    def check_not_older(self, peer_has_seen: int) -> None:
        """Refuse to go on if the peer has seen alignments that this node does not remember, unless the owner accepted the loss.

        What is lost stays lost, and accepting it counts as a changed set. A peer that claims too much only keeps itself
        from working with this node.

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
            write_checked(self._folder / "linkages", b"\n".join([*self._lines("linkages"), _LOSS + b"%d" % peer_has_seen]))
            write_checked(self._folder / "met", b"%d %d" % (peer_has_seen, seen))
            remove(self._folder / "accepted")  # this loss, and no other

    def begin(self) -> int:
        """Count an alignment that begins with this peer; returns how many there were, this one included."""
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
        """Count a pair of sets of ids, ours and the peer's, before any list of an alignment leaves; a known pair is free.

        A second alignment in which either set differs by one id is a differencing attack on that id.

        Args:
            digest: of both sets, of which the peer's is only claimed.
            limit: how many different pairs this node's owner allows.

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
        """Count a pair of sets for an alignment that hides how many ids are shared; a known pair is free.

        What hides it (the number of dummies, the obfuscated set) is drawn anew whenever either set changes, or the peer claims
        that its set has changed. Each draw over almost the same sets narrows the number down.

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
        """Count a training with synthetic rows over a set of our own, before anything of it leaves; a job is counted once.

        Synthetic rows are drawn anew in each training: they could only stay the same if the shared positions of the other
        party's records did, and these are blinded anew. Real rows stay the same, so a peer that compares trainings can tell
        synthetic rows from real ones.

        Args:
            digest: of our own set, so that a peer cannot begin a new count by changing its set.
            job_id: of the training.
            limit: how many of them this node's owner allows over one set.

        Returns:
            The number of this training over these records with this partner, from 1.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        records = f"{digest.hex()} ".encode()
        line = records + job_id.encode()
        with self._lock:
            counted = self._lines("trainings")
            over = [entry for entry in counted if entry.startswith(records)]
            if line in over:
                return over.index(line) + 1
            if len(over) >= limit:
                raise PolicyError(
                    f"there were {len(over)} trainings with {self._peer} over this node's records in which rows were made up "
                    f"for those that a party lacks, or weights or sums opened, and this node allows {limit} "
                    "(limits.trainings_per_set)",
                    code="E_BUDGET",
                    hint="align by psi, where no row is made up; train hidden with reveal: none and metrics_by: none; or "
                    "raise limits.trainings_per_set: such rows, first weights and the records held out are drawn anew in each "
                    "training, and whoever compares trainings sees through them",
                    for_peer="its owner's settings do not allow this training",
                )
            write_checked(self._folder / "trainings", b"\n".join([*counted, line]))
            return len(over) + 1

    def count_linkages(self, records: bytes, linkage: bytes, limit: int) -> None:
        """Count a linkage over a set of records, before anything of it leaves; the same one again is free.

        Noise on similarities is the same in every job on the same terms, and drawn anew on others. Another set of the peer asks
        for similarities of other pairs.

        Args:
            records: stand for the set, so that a peer cannot begin a new count by changing its own.
            linkage: stands for the other set and the terms.
            limit: how many of them this node's owner allows over one set.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        with self._lock:
            counted = self._lines("linkages")
            if line := self._one_more(counted, records, linkage, limit):
                write_checked(self._folder / "linkages", b"\n".join([*counted, line]))

    def check_linkages(self, records: bytes, linkage: bytes, limit: int) -> None:
        """Raise what :meth:`count_linkages` would, and count nothing."""
        self._one_more(self._lines("linkages"), records, linkage, limit)

    def _one_more(self, counted: Sequence[bytes], records: bytes, linkage: bytes, limit: int) -> bytes | None:
        """The line of a linkage that is not counted yet."""
        over = f"{records.hex()} ".encode()
        line = over + linkage.hex().encode()
        if line in counted:
            return None
        if (count := sum(entry.startswith((over, _LOSS)) for entry in counted)) >= limit:
            raise PolicyError(
                f"this node's records were linked with those of {self._peer} in {count} different ways (other terms, or "
                f"another set), and this node allows {limit} (limits.linkages_per_set)",
                code="E_BUDGET",
                hint="link the same sets on the terms of an earlier job, or raise limits.linkages_per_set: noise is drawn "
                "anew on other terms, and the mean of several similarities of a pair tells its distance",
                for_peer="its owner's settings do not allow this linkage",
            )
        return line

    def _count(self, name: str, digest: bytes, limit: int) -> int | None:
        """Add ``digest`` to those counted under ``name``, unless it is there; returns their number if it is at the limit."""
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
        """How many alignments this node has begun with the peer, and how many the peer says that it has begun."""
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
    """Let a node work again with ``peer``, which has seen more alignments than the node remembers; the node may be running.

    Args:
        folder: as for :class:`Partner`.
        peer: a party's name.

    Returns:
        How many alignments the peer says that it has seen. If it later says more, that is another loss.

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
