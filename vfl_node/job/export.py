"""Halves that leave their nodes by a job: the job's ``export`` section (see docs/guides/take-the-model-away.md)."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from vfl_node.configuration.models import Frozen
from vfl_node.job.names import Name
from vfl_node.job.parties import Parties
from vfl_node.ledger import Declaration, Disclosure

HALF, LABEL_MODEL = "half", "label model"
"""Keywords of the ledger: a half as a file, and one that predicts the label."""


class Export(Frozen):
    """After training each party gives its half of the model to one of them, as a file."""

    joint: Name = Field(
        description="who gets the halves of all parties as files, and can then predict without any count: active, passive, or "
        "a party by its name. Each owner must allow it (allow_joint_export)"
    )

    def check(self, parties: Parties) -> None:
        """Raises ValueError unless one party with data is meant, and all others have a conversation with it."""
        named = parties.members(self.joint)
        if not named:
            raise ValueError(f"export.joint: {self.joint} is none of active, passive and the data parties")
        if len(named) > 1 or (len(parties.passive) > 1 and named[0] in parties.passive):
            raise ValueError(
                "export.joint: with several passive parties the halves go to the active one, with which all of them have a "
                "conversation: say export: {joint: active}"
            )

    def receiver(self, parties: Parties) -> str:
        """Name of the party that gets the halves."""
        (name,) = parties.members(self.joint)
        return name

    def declare(self, parties: Parties, label_holder: str | None) -> Iterator[Declaration]:
        """What the receiver learns, as it is said before the job. ``label_holder``: the role whose half predicts."""
        receiver = self.receiver(parties)
        for name in parties.others(receiver):
            yield Declaration(receiver, HALF, _tell_half(name, receiver))
            if name in parties.members(label_holder or ""):
                yield Declaration(receiver, LABEL_MODEL, _tell_label_model(name))

    def disclose(self, parties: Parties, label_holder: str | None) -> tuple[Disclosure, ...]:
        """The same as it is said in the report."""
        return tuple(Disclosure(each.what, 1, each.bound) for each in self.declare(parties, label_holder))


def _tell_half(name: str, receiver: str) -> str:
    return (
        f"from {name} its trained half as a file: its weights, and levels and quantiles of its columns, which are cells of its "
        f"table. With the halves of all parties in one place {receiver} predicts any record any number of times: no budget of "
        "predictions counts it, and no ledger has it"
    )


def _tell_label_model(name: str) -> str:
    return f"from {name} the half that predicts: for any record what the model says of its label, and the names of the classes"
