"""What a node remembers of one partner for as long as they work together, beyond any job.

Each partner has a folder (0700) with

- a secret, from which everything is drawn that hides something and must be the same in every job with this partner;
- data stored by name;
- a lane (:mod:`vfl_node.trust.lanes`): which sets of ids were aligned with the partner, how often one of them was trained on,
  what hidden trainings over a table have spent, which randomised answers about labels the partner has, and how many ids were
  asked about.

Beside the folders lies a secret of the node for all of them (:mod:`vfl_node.node.own_secret`).

It outlives jobs, because a partner could compare a second draw over the same ids with the first. Therefore both nodes show each
other how their lanes stand before each job (:mod:`vfl_node.trust.heads`). A node whose memory is older than what its partner
has seen, for example after a backup was restored, notices it, and its owner decides. Every file has a checksum.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import StateError, UsageError
from vfl_node.execution.trial import Trial
from vfl_node.job import Name
from vfl_node.node.counts import PartnerCounts
from vfl_node.node.own_secret import own_secret
from vfl_node.node.partner_upgrade import CLAIMED, SECRET_BYTES
from vfl_node.process.files import read_checked, remove, write_checked
from vfl_node.session.answers import Answer, check_secret, mark
from vfl_node.session.heads import MOST_COMMITS
from vfl_node.session.questions import KIND as QUESTIONS
from vfl_node.session.spent import loss_line
from vfl_node.transport.generated.vfl.v1.session_pb2 import LedgerHead
from vfl_node.trust.heads import BEGIN, HEAD, LEARNT, LOST, PEER_LOST, LaneHeads
from vfl_node.trust.lanes import Signing

_PEER: TypeAdapter[str] = TypeAdapter(Name)
_NAME = re.compile(r"[a-z0-9-]{1,80}")
_REDRAWN, _ACCEPTED = "answers-redrawn", "answers-accepted"
"""Files with the mark of a secret under which labels would be answered anew: one that was met, and one that is accepted."""


class Claim:
    """The head of this node's lane that a peer has seen and that is missing here: in a file, until its owner accepts the loss.

    Args:
        path: of the file.
        lock: of the partner's memory.
    """

    def __init__(self, path: Path, lock: AbstractContextManager[Any]) -> None:
        self._path, self._lock = path, lock

    def read(self) -> LedgerHead | None:
        """As :meth:`vfl_node.trust.heads.Claims.read`. Raises StateError if the file is damaged."""
        try:
            claimed = json.loads(read_checked(self._path))
        except FileNotFoundError:
            return None
        return LedgerHead(entries=claimed["entries"], link=bytes.fromhex(claimed["link"]))

    def write(self, seen: LedgerHead | None) -> None:
        """As :meth:`vfl_node.trust.heads.Claims.write`. Raises OSError."""
        with self._lock:
            if seen is not None:
                write_checked(self._path, json.dumps({"entries": seen.entries, "link": seen.link.hex()}).encode())
            elif self._path.exists():
                remove(self._path)


class Partner(PartnerCounts):
    """The memory of one peer (:class:`vfl_node.session.memory.Memory`). Safe to use from several threads.

    There must be only one such object for a folder.
    """

    def __init__(
        self,
        folder: Path,
        peer: str,
        secret: bytes | None = None,
        own: bytes | None = None,
        signing: Signing | None = None,
    ) -> None:
        """Open the memory of ``peer`` in ``folder``, or begin one, whose secret is drawn from the operating system.

        Args:
            folder: of all partners.
            peer: a party's name.
            secret: with which it begins in a trial.
            own: with which :attr:`own` begins in a trial.
            signing: of this node.

        Raises:
            ValueError: ``peer`` is not a party's name.
            StateError: the secret is damaged, or what an earlier version wrote (``E_STATE_CORRUPT``).
        """
        try:
            peer = _PEER.validate_python(peer)
        except ValidationError:
            raise ValueError("not a party's name") from None
        self._partners, self._first = folder, own
        (folder / peer).mkdir(parents=True, exist_ok=True)
        (folder / peer).chmod(0o700)
        path = folder / peer / "secret"
        if not any(file.suffix != ".tmp" for file in path.parent.iterdir()):
            write_checked(path, secret or secrets.token_bytes(SECRET_BYTES))
        super().__init__(folder / peer, peer, signing)
        hint = f"restore it from a backup; under another secret {peer} may compare new alignments with earlier ones"
        try:
            self._secret = read_checked(path, hint=hint)
        except FileNotFoundError:
            raise StateError(f"{path} is gone", code="E_STATE_CORRUPT", hint=hint) from None

    def __repr__(self) -> str:
        return f"Partner({self.peer})"

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
        with self._alone():
            own, lines = self.own, self._lines("answers")
            try:
                check_secret(mark(own), lines, (self._read(self.folder / _ACCEPTED) or b"").decode(), self.peer)
            except StateError:
                write_checked(self.folder / _REDRAWN, mark(own).encode())
                raise
            if what.line(own) not in lines:
                self._add("answer", {"answers": [what.line(own)]})
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

    def heads(self, job_id: str, about: Mapping[str, Any]) -> LaneHeads:
        """As :meth:`vfl_node.session.memory.PeerMemory.heads`.

        The entry comes before any head is shown: so a backup of before this job is older than what the peer has seen.
        """
        self.lane.append_once(BEGIN, job_id, about)
        return LaneHeads(self.lane, MOST_COMMITS, Claim(self.folder / CLAIMED, self._lock))

    def report(self, job_id: str, learnt: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """As :meth:`vfl_node.session.memory.PeerMemory.report`; what others have learnt does not belong to this lane."""
        known = {name: learnt[name] for name in (self.lane.signing.name, self.peer) if name in learnt}
        self.lane.append_once(LEARNT, job_id, {"learnt": known})

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError("a name is 1 to 80 of a-z, 0-9 and -")
        return self.folder / f"{name}.kept"


class Partners:
    """The memory of every partner of a node; safe to use from several threads.

    Args:
        folder: of all of them.
        trial: whose secrets they begin with.
        signing: of this node.
    """

    def __init__(self, folder: Path, trial: Trial, signing: Signing | None) -> None:
        self._folder, self._trial, self._signing = folder, trial, signing
        self._lock = threading.Lock()
        self._met: dict[str, Partner] = {}

    def find(self, peer: str) -> Partner:
        """The memory of ``peer``, always the same object. Raises as :class:`Partner`, and OSError."""
        with self._lock:
            if peer not in self._met:
                self._folder.mkdir(exist_ok=True)  # not the state folder, should that be gone
                secret, own = self._trial.memory_secret(peer), self._trial.own_secret()
                self._met[peer] = Partner(self._folder, peer, secret, own, self._signing)
            return self._met[peer]


def accept_loss(counts: PartnerCounts) -> int:
    """Let a node work again with a peer that has seen entries which are lost here; the node may be running.

    What is lost stays lost, and counts as a changed set and as a linkage. Of hidden trainings it leaves nothing to spend until
    the owner begins a new count (:meth:`PartnerCounts.forget`). The peer's owner must accept the loss, too
    (:func:`accept_loss_of_peer`). A peer that claims too much only keeps itself from working with this node.

    Returns:
        How many entries the peer says that it has seen. If it later says more, that is another loss.

    Raises:
        UsageError: there is none to accept (``E_CONFIG``).
    """
    claim = Claim(counts.folder / CLAIMED, counts.lane.lock)
    missing = claim.read()
    if missing is None:
        raise UsageError(
            f"{counts.peer} has not seen more of this node than it remembers",
            code="E_CONFIG",
            hint="a job that meets a loss says so (E_STATE_OLDER)",
        )
    number, link = missing.entries, missing.link.hex()
    line = loss_line(number, link)
    lost = {kind: [line] for kind in ("inputs", "changes", "linkages", "spent", QUESTIONS)}
    counts.lane.append(LOST, {"lines": lost, "entries": number, "link": link})
    claim.write(None)
    return number


def accept_loss_of_peer(counts: PartnerCounts) -> int:
    """Let a peer's ledger begin anew, which it has lost; the node may be running. Returns how many entries of it were seen.

    Raises:
        UsageError: none were (``E_CONFIG``).
    """
    heads = counts.lane.list(HEAD)
    if not heads:
        raise UsageError(f"this node has seen no ledger of {counts.peer}", code="E_CONFIG", hint="there is nothing to accept")
    begun = max((entry.number for entry in counts.lane.list(PEER_LOST)), default=0)
    since = [entry.body["theirs"] for entry in heads if entry.number > begun] or [heads[-1].body["theirs"]]
    newest = max(since, key=lambda head: int(head["entries"]))
    counts.lane.append(PEER_LOST, {"entries": newest["entries"], "link": newest["link"]})
    return int(newest["entries"])


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
