"""Sessions of parties in one process, for benchmarks, experiments and tests of what runs in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Align, Evaluate, Job, Parties, Predict
from vfl_node.session.session import Attempt, OwnMachine, OwnSettings, Recording, Session
from vfl_node.settings.limits import Limits
from vfl_node.transport.channel import Channel

PARTS: dict[str, Any] = {"attempt": Attempt, "machine": OwnMachine, "policy": OwnSettings, "recording": Recording}

TWO = Parties(active="clinic", passive=("lab",))
BY_ROLE = Parties(active="active", passive=("passive",))
"""Two parties that are called as what they are."""


def limits_from(rows: int, **rest: Any) -> Limits:
    """Limits of an owner who aligns sets of as few ``rows``, its own and others'."""
    return Limits(min_own_rows=rows, min_peer_rows=rows, **rest)


def session(
    name: str,
    peers: Mapping[str, Channel],
    randomness: Randomness,
    *,
    align: Align | None = None,
    train: Any = None,
    evaluate: Evaluate | None = None,
    predict: Predict | None = None,
    parties: Parties = TWO,
    folder: Path = Path("/nowhere"),
    attempt: int = 1,
    job: Job | None = None,
    **rest: Any,
) -> Session:
    """One party's session of a job that need not be one that a user could submit.

    ``rest`` has fields of the session itself, and of its attempt, machine, policy and recording.
    """
    job = job or Job.model_construct(
        name="test",
        parties=parties,
        align=align or Align(),
        train=train,
        evaluate=evaluate or Evaluate(),
        serve=None,
        predict=predict,
    )
    rest |= {"folder": folder, "number": attempt}
    parts = {
        part: kind(**{own.name: rest.pop(own.name) for own in fields(kind) if own.name in rest}) for part, kind in PARTS.items()
    }
    return Session(job=job, name=name, peers=peers, randomness=randomness, **parts, **rest)
