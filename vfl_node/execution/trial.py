"""What ``vfl-node run`` adds to a job on one machine: a seed for all randomness, halves to predict with, transcripts.

A service has none of it. No setting, no key of a job, no environment variable and no message can give it: in one process
it is an argument, and for parties in processes of their own it is the file :data:`FILE`, which the trial writes into the state
folders that it has just made (0700), before it starts them. Whoever can write there can read and replace the secrets of every
job anyway. A node refuses to start on such a folder unless it talks with this machine only, and the report of every party says
that the run was seeded.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from vfl_node.errors import UsageError
from vfl_node.process.files import read_checked, write_checked
from vfl_node.settings.node import Settings

FILE = "trial"


@dataclass(frozen=True)
class Trial:
    """What a trial asks of one party; nothing of it by default.

    Attributes:
        seed: 32 bytes from which all its secrets follow; None: they come from the operating system.
        keeps: whether it keeps its half of the model as for predictions, although the job does not say ``serve``.
        transcript: whether it records what split training exchanges (:mod:`vfl_node.session.transcript`).
        joint: whether it keeps what the joint attack needs (:mod:`vfl_node.execution.joint`).
    """

    seed: bytes | None = field(default=None, repr=False)
    keeps: bool = False
    transcript: bool = False
    joint: bool = False

    @classmethod
    def from_number(
        cls, number: int | None, party: str, *, keeps: bool = False, transcript: bool = False, joint: bool = False
    ) -> Trial:
        """The trial of ``party`` in a run whose seed is ``number``, of at most 64 bits, or that has none."""
        if number is None:
            return cls(None, keeps, transcript, joint)
        seed = hashlib.sha256(b"vfl-node trial" + number.to_bytes(8, "big") + party.encode()).digest()
        return cls(seed, keeps, transcript, joint)

    @property
    def seeded(self) -> bool:
        """Whether all secrets follow from a seed."""
        return self.seed is not None

    def job_id(self, name: str) -> str | None:
        """The id of the only job of this name that a seeded trial runs; None without a seed."""
        return None if self.seed is None else f"{name[:48]}-{self._derive('id', name)[:4].hex()}"

    def job_seed(self, job_id: str) -> bytes | None:
        """The seed of a job at this party; None without a seed."""
        return None if self.seed is None else self._derive("job", job_id)

    def memory_secret(self, peer: str) -> bytes | None:
        """The secret of this party's memory of a peer; None without a seed."""
        return None if self.seed is None else self._derive("memory", peer)

    def own_secret(self) -> bytes | None:
        """This party's secret for all peers alike; None without a seed."""
        return None if self.seed is None else self._derive("own", "")

    def _derive(self, what: str, name: str) -> bytes:
        assert self.seed is not None
        return hashlib.sha256(b"vfl-node trial " + self.seed + f"{what} {name}".encode()).digest()


def write_trial(state: Path, trial: Trial) -> None:
    """Make ``state`` the state folder of a party in a trial, before its node first starts."""
    state.mkdir(mode=0o700)
    document = {
        "seed": trial.seed.hex() if trial.seed else None,
        "keeps": trial.keeps,
        "transcript": trial.transcript,
        "joint": trial.joint,
    }
    write_checked(state / FILE, json.dumps(document).encode())


def read_trial(settings: Settings) -> Trial:
    """The trial to which a node's state folder belongs; an empty one for a service.

    Raises:
        UsageError: it belongs to one, and the node may talk with other machines (``E_CONFIG``).
        StateError: the file is damaged (``E_STATE_CORRUPT``).
    """
    path = settings.state_dir / FILE
    try:
        document = json.loads(read_checked(path, hint="begin with a new state folder"))
    except FileNotFoundError:
        return Trial()
    if not settings.local:
        raise UsageError(
            f"{path} belongs to a trial on one machine (vfl-node run), and this node may talk with other machines",
            code="E_CONFIG",
            hint="give the node a state_dir of its own: secrets of a trial are not secret",
        )
    seed = bytes.fromhex(document["seed"]) if document["seed"] else None
    return Trial(seed, document["keeps"], document["transcript"], document["joint"])
