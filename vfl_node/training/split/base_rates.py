"""q, the rate of positives where the peer's features are synthetic: what a model of the active party alone says of each row.

Calibration needs it (:mod:`vfl_node.training.split.missing.calibration`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models import architecture_of
from vfl_node.models.building import build_classifier
from vfl_node.models.classifier import Classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.session.session import Session
from vfl_node.training.network.half import Positions
from vfl_node.training.network.local import local_logits, train_local
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.split.config import Train
from vfl_node.training.split.tasks import SplitTask


def model_alone(session: Session, inputs: PositionedInput) -> Classifier:
    """A network of the active party alone, whose weights are still to be set, on its device."""
    train = Train.section_of(session.job)
    architecture = architecture_of(train.model, session.policy.models)
    return build_classifier(architecture, train, inputs.schema, []).to(session.machine.device)


def base_rates(
    session: Session,
    model: Classifier,
    inputs: PositionedInput,
    task: SplitTask,
    targets: Tensor,
    real: Tensor,
    private: Randomness,
    *,
    training: Positions,
    validation: Positions,
    labelled: Positions,
) -> Tensor:
    """Train ``model`` alone, and give q at each shared position, float32[m].

    The peer waits for the first gradient meanwhile. How long must not tell how many of the rows are this party's, which
    padding hides: all rows of training are computed, of which only the labelled ones count.

    In the loss q of a row must not come from a model that has learnt its label, which would make up for what the
    joint model is to learn: there rows of one half are judged by a model of the other.

    Args:
        session: the active party's.
        model: as :func:`model_alone`.
        inputs: its columns.
        task: what its labels are.
        targets: float32[m], or float32[m, K].
        real: bool[m] on the device, which shared rows have a label of its own.
        private: gives weights, orders and halves.
        training: shared positions trained on.
        validation: those that decide when training stops; may be none.
        labelled: those of ``training`` with a label of its own.
    """
    train = Train.section_of(session.job)

    def train_one(model: Classifier, own: Randomness, counted: Tensor) -> Classifier:
        initialise(model, own)
        train_local(
            model,
            train,
            inputs,
            targets,
            training,
            own,
            session.progress,
            counted=counted,
            losses=task.losses,
            validation=validation,
        )
        return model

    def rates_of(model: Classifier) -> Tensor:
        return task.base_rate(local_logits(model, inputs, np.arange(len(real))))

    rates = rates_of(train_one(model, private, real))
    if train.missing.calibration == "train" and len(labelled) > 1:
        mixed = labelled[private.derive("folds").permutation(len(labelled))]
        folds = np.array_split(mixed, 2)
        for number, (judged, learnt) in enumerate((folds, folds[::-1])):
            other = model_alone(session, inputs)
            counted = torch.zeros_like(real)
            counted[torch.from_numpy(learnt)] = True
            counted[torch.from_numpy(validation)] = real[torch.from_numpy(validation)]
            train_one(other, private.derive(f"fold/{number}"), counted)
            rows = torch.from_numpy(judged)
            rates[rows] = rates_of(other)[rows]
    return rates
