"""Key periods: how long one party answers another one under the same key.

Whoever has asked about an identifier keeps the answer, and a stolen key opens every list that was made with it. So a key lasts
for an epoch: some days that its owner chooses (``queries_per_peer.rotate_days``). The next job after that begins another epoch.
Then the seed of the old one is gone, and the lists of tags that were sent are of no use any more. Each set has a key of its
own, so two lists of one epoch cannot be compared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from vfl_node.crypto.groups import Group, Scalar
from vfl_node.crypto.randomness import Randomness
from vfl_node.process.machine import utc_now
from vfl_node.session.memory import Memory, change_total

_SEED_BYTES = 32


@dataclass(frozen=True)
class KeyPeriod:
    """One key period with one partner.

    Attributes:
        number: from 1.
        seed: from which its keys follow.
        begun: when, UTC.
    """

    number: int
    seed: bytes = field(repr=False)
    begun: str

    def name(self, about: str) -> bytes:
        """The name of a list by what it is ``about``, 16 bytes, which tells nothing of that."""
        return Randomness(self.seed).derive(f"upsi list {about}").bytes(16)

    def key(self, group: Group, name: bytes) -> Scalar:
        """The secret scalar of the list that is called ``name``."""
        return group.draw(Randomness(self.seed).derive(f"upsi key {name.hex()}"))


def current_epoch(memory: Memory, randomness: Randomness, rotate_days: int) -> KeyPeriod:
    """The epoch with a partner; a new one if there is none, or it has ended. It is on the disk when this returns.

    Args:
        memory: of the partner.
        randomness: gives the seed of a new one.
        rotate_days: how long it lasts.

    Raises:
        StateError: there was one, and it is gone (``E_STATE_LOST``), or damaged (``E_STATE_CORRUPT``).
    """
    now = utc_now()

    def change(kept: bytes | None) -> bytes:
        earlier = None if kept is None else _read(kept)
        if earlier and datetime.fromisoformat(now) < datetime.fromisoformat(earlier.begun) + timedelta(days=rotate_days):
            return kept or b""
        number = 1 + (earlier.number if earlier else 0)  # a job that goes on in a later epoch draws another seed for it
        seed = randomness.derive(f"upsi epoch {number}").bytes(_SEED_BYTES)
        return json.dumps({"number": number, "seed": seed.hex(), "begun": now}).encode()

    return _read(change_total(memory, "upsi-epoch", change, what="the key by which ids were answered"))


def _read(kept: bytes) -> KeyPeriod:
    read = json.loads(kept)
    return KeyPeriod(read["number"], bytes.fromhex(read["seed"]), read["begun"])
