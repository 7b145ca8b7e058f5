"""A model with its optimiser: what each training, joint or local, is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import StateError
from vfl_node.models import check_version
from vfl_node.models.layers import Dropout
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.models.updates import Updates, clip_gradients
from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.network.rate import rate_factor


class Learner:
    """A model and its optimiser; both go into a checkpoint and come back with the same bits.

    Args:
        model: with its initial weights, on the device.
        train: the job's section.
        private: the party's own randomness, of which masks of dropout are made: those of a step come from its number, so a
            restarted party draws the same ones again.
        version: of the architecture that built the model.
    """

    def __init__(self, model: nn.Module, train: NetworkConfig, private: Randomness, version: int = 1) -> None:
        self.model = model
        self._name, self._version = train.model, version
        self._clip, self._train = train.clip, train
        self.forget()
        self._private = private
        self._layers = list(model.modules())
        self._parameters = list(model.parameters())
        self._dropouts = [layer for layer in self._layers if isinstance(layer, Dropout)]

    def forget(self) -> None:
        """Let the optimiser remember nothing of the steps so far, for weights that begin anew."""
        self._optimizer = Updates(self.model, self._train.optimizer, self._train)
        groups = self._optimizer.param_groups
        self._rates: list[float] = [group["lr"] for group in groups] if _has_schedule(self._train) else []

    def begin(self, step: int) -> None:
        """Make the model ready for training step ``step``: no gradient is left, norms follow the batch, masks are new."""
        self._optimizer.zero_grad()
        if not all(layer.training for layer in self._layers):  # a quicker question than to set it in every layer
            self.model.train()
        for number, layer in enumerate(self._dropouts):
            layer.draw_from(self._private.derive(f"dropout/{step}/{number}"))

    @contextmanager
    def rehearse(self) -> Iterator[None]:
        """Let the model compute within as in a training step, but without dropout, and leave its running averages as they are.

        Norms follow the batch. What dropout leaves out differs from step to step, and the mean over steps tells what nothing
        is left out of.
        """
        averages = [buffer.clone() for buffer in self.model.buffers()]
        self.model.train()
        for layer in self._dropouts:
            layer.eval()
        yield
        with torch.no_grad():
            for buffer, before in zip(self.model.buffers(), averages, strict=True):
                buffer.copy_(before)

    def pace(self, step: int, steps: int) -> None:
        """Set the learning rate of step ``step`` of the ``steps`` of this training, counted from 0."""
        if not self._rates:
            return
        factor = rate_factor(self._train, step, steps)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = factor * rate

    def rest(self) -> None:
        """Make the model ready for evaluation: no dropout, and norms by their running averages."""
        self.model.eval()

    def backward(self, loss: Tensor, *, alone: bool) -> None:
        """Compute gradients of ``loss`` by the weights of this model; unless it is ``alone``, by those of other models, too."""
        loss.backward(inputs=[*filter(_learns, self._parameters)] if alone else None)  # type: ignore[no-untyped-call]

    def step(self) -> None:
        """Update the weights from the gradients of this batch.

        With ``train.clip`` the gradient of all weights of this model, taken as one vector, is shortened to that Euclidean
        norm if it is longer, before weight decay. What crosses the wire is not changed by it.
        """
        if self._clip is not None:
            clip_gradients(self.model.parameters(), self._clip)
        self._optimizer.step()

    def weights(self) -> dict[str, Tensor]:
        """The model's parameters and the running averages of its norms by name, copied to the CPU."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}

    def go_back(self, weights: Mapping[str, Tensor]) -> None:
        """Take back earlier weights that :meth:`weights` gave, for evaluation; others may be among them."""
        self.model.load_state_dict({name: weights[name] for name in self.model.state_dict()})

    def tensors(self) -> dict[str, Tensor]:
        """Weights as ``model.NAME``, the optimiser's state as ``optimizer.PARAMETER.KEY``, the architecture's ``version``."""
        moments = add_prefix("optimizer", self._optimizer.tensors())
        return {**add_prefix("model", self.weights()), **moments, "version": torch.tensor(self._version)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave.

        Raises:
            StateError: another version of the architecture gave it (``E_STATE_VERSION``), or its weights have other names or
                shapes, although the version is the same (``E_STATE_CORRUPT``).
        """
        stored = tensors.get("version")
        check_version(self._name, self._version, 1 if stored is None else int(stored))
        try:
            self.model.load_state_dict(take_part("model", tensors))
        except RuntimeError:
            raise StateError(
                f"the stored weights do not fit model {self._name!r}",
                code="E_STATE_CORRUPT",
                hint="an own network must raise its version when its weights change; submit the job again as a new one",
                for_peer="what it stored does not fit its model",
            ) from None
        self._optimizer.restore(take_part("optimizer", tensors))


def _learns(weight: Tensor) -> bool:
    return weight.requires_grad


def _has_schedule(train: NetworkConfig) -> bool:
    return train.learning_rate_schedule != "constant" or train.warmup_steps > 0
