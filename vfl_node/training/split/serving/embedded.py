"""Embeddings of a passive party's own rows by the half that it has kept, as they are sent; nothing is sent for it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models import architecture_of
from vfl_node.training.schedule import cut
from vfl_node.training.serving import KeptHalf
from vfl_node.training.split.config import Train
from vfl_node.training.split.local import ROWS_AT_ONCE
from vfl_node.training.split.serving.joined import served
from vfl_node.training.split.serving.served_model import VERSION
from vfl_node.training.split.serving.sides import Embedder


def embed(half: KeptHalf, positions: NDArray[np.int64], randomness: Randomness, device: torch.device) -> Tensor:
    """What the active party gets of the rows at ``positions``, all of which are this party's own.

    Args:
        half: of a passive party. Where its job does not serve, nothing of it is kept but the weights and the encoder
            (``half.model.state`` is empty): then what a defence draws is drawn anew.
        positions: int64[n], of ``half.alignment``.
        randomness: for these draws.
        device: where to compute.

    Returns:
        float32[n, d], on the CPU.
    """
    model = half.model
    if not model.state:
        version = architecture_of(Train.of(model.job).model, model.models).version
        draws = {name: randomness.derive(name).bytes(32).hex() for name in ("draws", "batches")}
        model = replace(model, state=json.dumps({"version": VERSION, "model_version": version, **draws}))
    embedder = Embedder(served(replace(half, model=model)), half.alignment, half.table, device, half.defences)
    return torch.cat([embedder.shared(part).cpu() for part in cut(positions, ROWS_AT_ONCE) or [positions]])
