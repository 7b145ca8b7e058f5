"""What a party stores of a training to predict with, beside its weights."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, StringConstraints, ValidationError

from vfl_node.configuration.versions import Steps, damage_error, parse
from vfl_node.training.additive.half import HINT, WHAT
from vfl_node.training.schedule import Schedule

VERSION = 1
STEPS: Steps = {}


class StoredBatches(BaseModel, extra="forbid", frozen=True):
    """How known records are asked for.

    Attributes:
        batches: 32 bytes that all data parties know, hexadecimal: the seed by which the shared rows are cut into batches.
    """

    batches: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

    @classmethod
    def from_schedule(cls, schedule: Schedule) -> StoredBatches:
        """The batches that follow from the ``schedule`` of a training."""
        return cls(batches=schedule.derive("predictions").hex())

    def to_json(self) -> str:
        """As JSON, with the version of its form."""
        return json.dumps({"version": VERSION, **self.model_dump()}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StoredBatches:
        """What :meth:`to_json` wrote. Raises StateError (``E_STATE_CORRUPT``, ``E_STATE_VERSION``)."""
        document = parse(text, VERSION, STEPS, what=WHAT, hint=HINT)
        try:
            return cls.model_validate(document)
        except ValidationError:
            raise damage_error(WHAT, HINT) from None
