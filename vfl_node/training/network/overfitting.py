"""Warnings for the active party's owner where a network has learnt its training rows by heart."""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.training.trainer import Epoch

RISE = 1.1
"""The last validation loss, in multiples of the smallest, from which on the owner is warned."""

_LESS = "a smaller network (train.bottom, train.active_bottom, train.top), train.dropout or train.weight_decay"

_IN_TIME = f"Set evaluate.validation_fraction: 0.1, so that training stops in time; or try fewer epochs, {_LESS}."


def judge_validation(epochs: Sequence[Epoch], best: int) -> tuple[str, ...]:
    """A warning if the validation loss rose far above its smallest value, that of epoch ``best``, from 1."""
    smallest, last = epochs[best - 1].validation_loss, epochs[-1].validation_loss
    if smallest is None or last is None or last <= RISE * smallest:
        return ()
    slower = "a lower train.learning_rate, " if best == 1 else ""
    return (
        f"The network overfits: the loss on validation rows was {smallest:.3f} after epoch {best} and {last:.3f} after epoch "
        f"{len(epochs)}. The weights of epoch {best} are used. To go on learning for longer try {slower}{_LESS}.",
    )


def judge_classes(epochs: Sequence[Epoch], nll: float | None, constant_nll: float | None) -> tuple[str, ...]:
    """A warning without validation, if training rows are predicted better than by a constant, and held-out rows worse.

    Args:
        epochs: of the first repeat.
        nll: of the federated model on held-out rows; None where it was not measured.
        constant_nll: of the constant model on the same rows; likewise.
    """
    loss = epochs[-1].loss
    if nll is None or constant_nll is None or loss is None or not loss < constant_nll < nll:
        return ()
    return (
        f"The network overfits: its loss on training rows fell to {loss:.3f}, and on held-out rows its NLL, {nll:.3f}, is "
        f"larger than that of a model that always says how frequent each class is ({constant_nll:.3f}). {_IN_TIME}",
    )


def judge_numbers(epochs: Sequence[Epoch], rmse: float | None, constant_rmse: float | None) -> tuple[str, ...]:
    """As :func:`judge_classes`, of a regression, whose training loss is the squared error in standard deviations of the target.

    Args:
        epochs: of the first repeat.
        rmse: of the federated model on held-out rows; None where it was not measured.
        constant_rmse: of the mean on the same rows; likewise.
    """
    loss = epochs[-1].loss
    if rmse is None or constant_rmse is None or loss is None or not (loss < 1 and constant_rmse < rmse):
        return ()
    return (
        f"The network overfits: its squared error on training rows fell to {loss:.3f} times that of the mean target, and on "
        f"held-out rows its RMSE, {rmse:.4g}, is larger than that of the mean ({constant_rmse:.4g}). {_IN_TIME}",
    )
