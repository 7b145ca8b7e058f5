"""What a node remembers of one partner for as long as they work together, beyond any job.

Each partner has a folder (0700) with

- a secret, from which everything is drawn that hides something and must be the same in every job with this partner;
- data stored by name;
- which sets of ids were aligned with the partner, how often one of them was trained on, what hidden trainings over a table
  have spent, and which randomised answers about labels the partner has.

Beside the folders lies a secret of the node for all of them (:mod:`vfl_node.node.own_secret`).

It outlives jobs, because a partner could compare a second draw over the same ids with the first. Therefore both nodes count
the alignments that they have begun with each other, and remember the other's count. A node whose memory is older than what its
partner has seen, for example after a backup was restored, notices it, and its owner decides. Every file has a checksum.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import StateError, UsageError
from vfl_node.job import Name
from vfl_node.node.counts import PartnerCounts
from vfl_node.node.own_secret import own_secret
from vfl_node.node.partner_upgrade import SECRET_BYTES, upgrade
from vfl_node.process.files import read_checked, remove, write_checked
from vfl_node.session.answers import Answer, check_secret, mark
from vfl_node.session.counted import LOSS
from vfl_node.session.memory import forgotten_error
from vfl_node.session.spent import loss_line

_PEER: TypeAdapter[str] = TypeAdapter(Name)
_NAME = re.compile(r"[a-z0-9-]{1,80}")
_REDRAWN, _ACCEPTED = "answers-redrawn", "answers-accepted"
"""Files with the mark of a secret under which labels would be answered anew: one that was met, and one that is accepted."""


class Partner(PartnerCounts):
    """The memory of one peer (:class:`vfl_node.session.memory.Memory`). Safe to use from several threads.

    There must be only one such object for a folder.
    """

    def __init__(self, folder: Path, peer: str, secret: bytes | None = None, own: bytes | None = None) -> None:
        """Open the memory of ``peer`` in ``folder``, or begin one, whose secret is drawn from the operating system.

        Args:
            folder: of all partners.
            peer: a party's name.
            secret: with which it begins in a trial.
            own: with which :attr:`own` begins in a trial.

        Raises:
            ValueError: ``peer`` is not a party's name.
            StateError: the secret is damaged, or what an earlier version wrote (``E_STATE_CORRUPT``).
        """
        try:
            peer = _PEER.validate_python(peer)
        except ValidationError:
            raise ValueError("not a party's name") from None
        super().__init__(folder / peer, peer)
        self._partners, self._first = folder, own
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        path = self._folder / "secret"
        if not any(file.suffix != ".tmp" for file in self._folder.iterdir()):
            write_checked(path, secret or secrets.token_bytes(SECRET_BYTES))
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

    @property
    def own(self) -> Randomness:
        """As :attr:`vfl_node.session.memory.Memory.own`. Raises StateError as :func:`own_secret`."""
        return Randomness(own_secret(self._partners, self._first))

    def answer(self, what: Answer) -> float:
        """As :meth:`vfl_node.session.memory.Memory.answer`; it is on the disk when this returns."""
        with self._lock:
            own, lines = self.own, self._lines("answers")
            try:
                check_secret(mark(own), lines, (self._read(self._folder / _ACCEPTED) or b"").decode(), self._peer)
            except StateError:
                write_checked(self._folder / _REDRAWN, mark(own).encode())
                raise
            if what.line(own) not in lines:
                self._add("answers", what.line(own))
            return what.total_epsilon([*lines, what.line(own)])

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

    def update(self, name: str, change: Callable[[bytes | None], bytes]) -> bytes:
        """Store what ``change`` makes of the data under ``name``, in its place; returns that.

        Raises:
            ValueError: as :meth:`recall`.
        """
        with self._lock:
            data = change(self.recall(name))
            write_checked(self._path(name), data)
            return data

    @property
    def seen(self) -> int:
        """How many alignments the peer has begun with this node, by the last count that it sent."""
        with self._lock:
            return self._count_meetings()[1]

    def check_not_older(self, peer_has_seen: int) -> None:
        """Refuse to go on if the peer has seen alignments that this node does not remember, unless the owner accepted the loss.

        What is lost stays lost, and accepting it counts as a changed set. Of hidden trainings it leaves nothing to spend until
        the owner begins a new count (:meth:`PartnerCounts.forget`). A peer that claims too much only keeps itself
        from working with this node.

        Raises:
            StateError: the peer has seen alignments that are not remembered (``E_STATE_OLDER``).
        """
        with self._lock:
            begun, seen = self._count_meetings()
            if peer_has_seen <= begun:
                return
            accepted = self._read(self._folder / "accepted")
            if accepted is None or peer_has_seen > int(accepted):
                write_checked(self._folder / "claimed", b"%d" % peer_has_seen)
                raise forgotten_error(self._peer, peer_has_seen, begun)
            for kind in ("inputs", "changes", "linkages"):
                self._add(kind, f"{LOSS}{peer_has_seen}")
            self._add("spent", loss_line(int(accepted)))
            write_checked(self._folder / "met", b"%d %d" % (peer_has_seen, seen))
            remove(self._folder / "accepted")  # this loss, and no other

    def begin(self) -> int:
        """Count an alignment that begins with this peer; returns how many there were, this one included."""
        with self._lock:
            begun, seen = self._count_meetings()
            write_checked(self._folder / "met", b"%d %d" % (begun + 1, seen))
            return begun + 1

    def saw(self, begun: int) -> None:
        """Remember how many alignments the peer says that it has begun."""
        with self._lock:
            own, seen = self._count_meetings()
            if begun > seen:
                write_checked(self._folder / "met", b"%d %d" % (own, begun))

    def _count_meetings(self) -> tuple[int, int]:
        """How many alignments this node has begun with the peer, and how many the peer says that it has begun."""
        begun, seen = map(int, (self._read(self._folder / "met") or b"0 0").split())
        return begun, seen

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


def accept_new_answers(folder: Path, peer: str) -> bool:
    """Let a node answer ``peer`` under the secret that it has, although earlier answers had another one; it may be running.

    Args:
        folder: as for :class:`Partner`.
        peer: a party's name.

    Returns:
        Whether there was something to accept.
    """
    try:
        redrawn = read_checked(folder / peer / _REDRAWN)
    except FileNotFoundError:
        return False
    write_checked(folder / peer / _ACCEPTED, redrawn)
    remove(folder / peer / _REDRAWN)
    return True
