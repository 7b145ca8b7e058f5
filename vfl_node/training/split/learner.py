"""A model with its optimiser, and the columns it reads: what each training, joint or local, is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.data.features import Features
from vfl_node.models import MODELS, Bottom
from vfl_node.training.split.config import Train

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
"""Name in the job → optimiser, called with (parameters, lr=…)."""


class ModelInput:
    """One party's columns as tensors on the device, looked up by shared position.

    Args:
        features: the party's encoded table, n rows.
        source: int64[m], the local row whose columns are used at each shared position.
        device: where the model is.
    """

    def __init__(self, features: Features, source: NDArray[np.int64], device: torch.device) -> None:
        self._numeric = torch.from_numpy(features.numeric).to(device)
        self._categorical = torch.from_numpy(features.categorical).to(device)
        self._source = source
        self._device = device
        self._numeric_width = features.numeric.shape[1]
        self._cardinalities = features.cardinalities
        self.width = features.width

    def at(self, positions: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Numeric float32[B, p] and categorical int64[B, c] columns at ``positions``."""
        rows = torch.from_numpy(self._source[positions]).to(self._device)
        return self._numeric[rows], self._categorical[rows]

    def bottom(self, train: Train, sizes: tuple[int, ...]) -> Bottom:
        """A bottom that reads these columns, without initial weights."""
        return MODELS[train.model].bottom(
            numeric=self._numeric_width,
            cardinalities=self._cardinalities,
            embedding_size=train.embedding_size,
            sizes=sizes,
            outputs=train.outputs,
        )


class Learner:
    """A model and its optimiser; both go into a checkpoint and come back with the same bits."""

    def __init__(self, model: nn.Module, train: Train) -> None:
        self.model = model
        self._optimizer = OPTIMIZERS[train.optimizer](model.parameters(), lr=train.learning_rate)

    def zero_grad(self) -> None:
        """Forget the last batch's gradients."""
        self._optimizer.zero_grad()

    def step(self) -> None:
        """Update the weights from the gradients of this batch."""
        self._optimizer.step()

    def weights(self) -> dict[str, Tensor]:
        """The model's parameters by name, copied to the CPU."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}

    def tensors(self) -> dict[str, Tensor]:
        """Weights as ``model.NAME``, the optimiser's state as ``optimizer.PARAMETER.KEY``."""
        state: dict[int, dict[str, Tensor]] = self._optimizer.state_dict()["state"]
        moments = {f"optimizer.{index}.{key}": value for index, of in state.items() for key, value in of.items()}
        return {**prefixed("model", self.weights()), **moments}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""
        self.model.load_state_dict(under("model", tensors))
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in under("optimizer", tensors).items():
            index, key = name.split(".")
            state.setdefault(int(index), {})[key] = value.clone()
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": state})


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``tensors`` with ``prefix.`` before each name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of ``tensors`` whose name begins with ``prefix.``, without it."""
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(prefix + ".")}
