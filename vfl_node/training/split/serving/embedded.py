"""Embeddings of a passive party's own rows by the half that it has kept, as they are sent; nothing is sent for it."""

from __future__ import annotations

import json
from dataclasses import replace

import torch
from torch import Tensor

from vfl_node.computing import ROWS_AT_ONCE
from vfl_node.crypto.randomness import Randomness
from vfl_node.models import architecture_of
from vfl_node.models.inputs import ModelInput
from vfl_node.training.schedule import cut
from vfl_node.training.service.sides import Positions
from vfl_node.training.serving import KeptHalf
from vfl_node.training.split.config import Train
from vfl_node.training.split.serving.joined import served
from vfl_node.training.split.serving.served_model import VERSION
from vfl_node.training.split.serving.sides import Embedder


class KeptEmbeddings:
    """As :class:`vfl_node.training.serving.Embeddings`.

    Args:
        half: of a passive party. Where its job does not serve, only its weights and its encoder are kept
            (``half.model.state`` is empty): then what a defence draws is drawn anew.
        randomness: for these draws.
        device: where to compute.
    """

    def __init__(self, half: KeptHalf, randomness: Randomness, device: torch.device) -> None:
        model = half.model
        if not model.state:
            version = architecture_of(Train.of(model.job).model, model.models).version
            draws = {name: randomness.derive(name).bytes(32).hex() for name in ("draws", "batches")}
            model = replace(model, state=json.dumps({"version": VERSION, "model_version": version, **draws}))
        self._side = Embedder(served(replace(half, model=model)), half.alignment, half.table, device, half.defences)

    def inputs(self, positions: Positions) -> ModelInput:
        """As :meth:`Embeddings.inputs`."""
        return self._side.inputs.at(positions)

    def rows(self, positions: Positions) -> Tensor:
        """As :meth:`Embeddings.rows`."""
        return torch.cat([self._side.shared(part) for part in cut(positions, ROWS_AT_ONCE) or [positions]])
