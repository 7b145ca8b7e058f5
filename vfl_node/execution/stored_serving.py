"""What a party stores of a training for predictions, beside the model and the alignment."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import StringConstraints, ValidationError

from vfl_node.configuration import versions
from vfl_node.configuration.models import Frozen

VERSION = 2
"""Of the form of its JSON; version 1 has no names of classes."""

STEPS: versions.Steps = {1: lambda document: {**document, "classes": []}}

_WHAT, _HINT = "what a training stored for predictions", "restore it from a backup, or train again"


class Serving(Frozen):
    """What predictions need.

    Attributes:
        input: digest of the records that took part, hexadecimal.
        encoder: JSON of the encoder that belongs to the model.
        serving: JSON, as :attr:`vfl_node.training.trainer.Servable.state`; holds a secret.
        classes: their names, as :attr:`vfl_node.data.tables.Table.classes`; empty at a party without labels.
        held_out: shared positions that were held out; None but in a trial.
        validated: shared positions set apart for validation; likewise.
    """

    input: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    encoder: str
    serving: str
    classes: tuple[str, ...] = ()
    held_out: tuple[int, ...] | None = None
    validated: tuple[int, ...] | None = None

    def to_json(self) -> str:
        """As JSON, with the version of its form."""
        return json.dumps({"version": VERSION, **self.model_dump(mode="json")}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Serving:
        """What :meth:`to_json` wrote, of this version or an earlier one.

        Raises:
            StateError: it is something else (``E_STATE_CORRUPT``), or of a version that is not known (``E_STATE_VERSION``).
        """
        document = versions.parsed(text, VERSION, STEPS, what=_WHAT, hint=_HINT)
        try:
            return cls.model_validate(document)
        except ValidationError:
            raise versions.damaged(_WHAT, _HINT) from None
