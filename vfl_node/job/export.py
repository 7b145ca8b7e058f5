"""Halves that leave their nodes by a job: the job's ``export`` section (see docs/guides/take-the-model-away.md)."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from vfl_node.configuration.models import Frozen
from vfl_node.job.names import Name
from vfl_node.job.parties import Parties
from vfl_node.job.training import TrainingJob
from vfl_node.ledger import Declaration, Disclosure


class Export(Frozen):
    """After training each party gives its half of the model to one of them, as a file."""

    joint: Name = Field(
        description="who gets the halves of all parties as files, and can then predict without any count: active, passive, or "
        "a party by its name. Each owner must allow it (allow_joint_export)"
    )

    def check(self, job: TrainingJob) -> None:
        """Raises ValueError unless one party with data is meant, the others meet it, and halves of the model can be files."""
        parties, named = job.parties, job.parties.members(self.joint)
        if not named:
            raise ValueError(f"export.joint: {self.joint} is none of active, passive and the data parties")
        if len(named) > 1 or (len(parties.passive) > 1 and named[0] in parties.passive):
            raise ValueError(
                "export.joint: with several passive parties the halves go to the active one, with which all of them have a "
                "conversation: say export: {joint: active}"
            )
        if not job.train:
            raise ValueError("export hands over halves of a model, and the job trains none: say train, or leave export out")
        job.train.check_export()

    def receiver(self, parties: Parties) -> str:
        """Name of the party that gets the halves."""
        (name,) = parties.members(self.joint)
        return name

    def disclose(self, parties: Parties, label_holder: str | None) -> tuple[Disclosure, ...]:
        """What the receiver learns, for reports. ``label_holder``: the role whose half predicts."""
        receiver = self.receiver(parties)
        told = tuple(Disclosure("half", 1, _tell_half(name, receiver)) for name in parties.others(receiver))
        predicting = set(parties.others(receiver)) & set(parties.members(label_holder or ""))
        return told + tuple(Disclosure("label model", 1, _tell_label_model(name)) for name in predicting)

    def declare(self, parties: Parties, label_holder: str | None) -> Iterator[Declaration]:
        """The same as it is said before the job."""
        for each in self.disclose(parties, label_holder):
            yield Declaration(self.receiver(parties), each.what, each.text)


def _tell_half(name: str, receiver: str) -> str:
    return (
        f"from {name} its trained half as a file: its weights, and levels and quantiles of its columns, which are cells of its "
        f"table. With the halves of all parties in one place {receiver} predicts any record any number of times: no budget of "
        "predictions counts it, and no ledger has it"
    )


def _tell_label_model(name: str) -> str:
    return f"from {name} the half that predicts: for any record what the model says of its label, and the names of the classes"
