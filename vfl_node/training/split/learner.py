"""A model with its optimiser: what each training, joint or local, is made of."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from vfl_node.job import Train
from vfl_node.models import OPTIMISERS
from vfl_node.models.storage import prefixed, under


class Learner:
    """A model and its optimiser; both go into a checkpoint and come back with the same bits."""

    def __init__(self, model: nn.Module, train: Train) -> None:
        self.model = model
        self._optimizer = OPTIMISERS[train.optimizer](model.parameters(), train)

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
