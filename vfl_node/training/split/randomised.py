"""Training on randomised answers in place of labels (the defence ``randomised-labels``).

Whatever a peer gets depends on labels through their answers alone: targets of real rows and of rows outside of the alignment,
made-up labels, how frequent classes are or how far targets spread, the validation loss by which training stops. The labels
themselves are used for what stays here: metrics, the party's own models that the joint one is compared with, and the attacks on
labels.

A network that learnt the answers would predict answers. So its probabilities p are mapped to those of an answer, and the loss
is taken there (forward correction)::

    P̃ = T p,   P̃_k = b + (a − b)·p_k          a = e^ε / (e^ε + K − 1) an answer that is the label, b = (1 − a) / (K − 1) another
    L = −Σ_k ỹ_k · log P̃_k                    its minimum over all answers is at p, the probability of the label

Numbers need no correction: the answer's mean is the target, so that squared errors are smallest at its mean.

Source: Patrini et al. 2017, section 4.2, theorem 2. Deviation: T is known here and need not be estimated.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from vfl_node.data.tables import LabelColumn
from vfl_node.errors import UsageError
from vfl_node.privacy.defences.randomised.answers import answer_classes, answer_numbers, move_probability
from vfl_node.privacy.defences.randomised.spec import RandomisedParams
from vfl_node.session.answers import Answer
from vfl_node.session.session import Session
from vfl_node.settings.protection import Protection
from vfl_node.training.evaluation import measure
from vfl_node.training.network.tasks import facts_of_classes
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.calibration import Calibration, Composition, Identity, Rate
from vfl_node.training.split.tasks import ClassLabels, ScaledTargets, SplitTask, task_of
from vfl_node.training.targets import TargetScale
from vfl_node.training.trainer import TrainingData


def find_defence(protection: Protection) -> RandomisedParams | None:
    """The defence in an owner's settings; None without it."""
    return next((params for params in protection.defences if isinstance(params, RandomisedParams)), None)


def check_randomised(session: Session) -> None:
    """Refuse what the defence cannot hold its promise with, or what would be wrong with it.

    Raises:
        UsageError: one of these (``E_CONFIG``).

    Leaks: that this owner's settings do not allow it; it follows from job and settings.
    """
    params = find_defence(session.policy.protection)
    if session.role != "active" or params is None:
        return
    train, numbers = Train.section_of(session.job), Train.section_of(session.job).task == "regression"
    if sum(isinstance(other, RandomisedParams) for other in session.policy.protection.defences) > 1:
        raise _refusal("is there twice, and a label has one answer", "leave one entry")
    if numbers and params.target_range is None:
        raise _refusal(
            "needs to know between which numbers targets lie, and this job is a regression",
            "say target_range: [low, high] beside epsilon: what is publicly known of such targets",
            "task: regression",
        )
    if train.task == "poisson":
        raise _refusal(
            "gives answers below 0, too, and a count is none",
            "say task: regression, with target_range beside epsilon",
            "task: poisson",
        )
    if train.class_weight is not None:
        raise _refusal(
            "does not know the class of a row, and train.class_weight weighs rows by it",
            "leave class_weight out; evaluate.threshold predicts a rare class more often",
            "train.class_weight",
        )
    if train.missing.calibration != "none":
        raise _refusal(
            "corrects the loss for its answers, and train.missing.calibration would correct probabilities for made-up labels: "
            "both together are not defined",
            "set train.missing.calibration: none, or align by psi",
            "train.missing.calibration",
        )
    if session.job.evaluate.share_with_passive:
        raise _refusal(
            "bounds what is told of a label, and evaluate.share_with_passive tells figures of the labels themselves",
            "set evaluate.share_with_passive: false",
            "evaluate.share_with_passive",
        )


def _refusal(why: str, hint: str, key: str = "") -> UsageError:
    """The error of a job or of settings that do not go with the defence; ``key`` of the job is told to peers."""
    return UsageError(
        f"the defence 'randomised-labels' {why}",
        code="E_CONFIG",
        hint=f"{hint}; or remove the defence from this node's settings for this job" if key else hint,
        for_peer=f"its settings do not allow {key}" if key else "its settings do not allow this job",
    )


def answer_of(session: Session, data: TrainingData) -> Answer | None:
    """What is answered in this job about the labels; None without the defence, and at a party without labels."""
    params = find_defence(session.policy.protection)
    if params is None or session.role != "active":
        return None
    train = Train.section_of(session.job)
    if params.target_range and train.task == "regression":
        terms = "{!r} to {!r}".format(*params.target_range)
    else:
        names = hashlib.sha256(repr(data.table.classes).encode()).hexdigest()  # another order of them is another label
        terms = f"{train.classes} classes {names}"
    return Answer(data.name, data.table.label, terms, params.epsilon)


def replace_labels(session: Session, data: TrainingData) -> TrainingData:
    """``data`` with answers in place of labels, as everything gets them that a peer hears of; itself without the defence.

    Cost: 2 µs a record of the table, 30 µs in a regression.
    """
    answer, table = answer_of(session, data), data.table
    if answer is None or table.labels is None:
        return data
    secret, ids = session.memory.own.derive(answer.name), table.plain or table.ids
    params, train = find_defence(session.policy.protection), Train.section_of(session.job)
    assert params is not None
    labels: LabelColumn
    if train.task == "regression":
        assert params.target_range is not None
        labels = answer_numbers(secret, ids, table.labels, params.target_range, params.epsilon)
    else:
        labels = answer_classes(secret, ids, table.labels, train.classes, params.epsilon)
    return replace(data, table=replace(table, labels=labels))


def learnt_task(session: Session, answers: NDArray[Any], offsets: NDArray[np.float64] | None = None) -> SplitTask:
    """The job's task as a network learns it of ``answers``, the labels trained on where there is no such defence."""
    params, train = find_defence(session.policy.protection), Train.section_of(session.job)
    if params is None or train.task == "regression":
        return task_of(train, answers, offsets)
    return RandomisedClasses(*facts_of_classes(train, answers), epsilon=params.epsilon)


def own_task(session: Session, learnt: SplitTask, labels: NDArray[Any]) -> SplitTask:
    """The task of what stays here, of the ``labels`` themselves; as it is ``learnt`` without the defence.

    It never fails: whether it does would tell the peer of the labels.
    """
    params, train = find_defence(session.policy.protection), Train.section_of(session.job)
    if params is None:
        return learnt
    if train.task == "regression":
        assert params.target_range is not None
        return ScaledTargets(replace(TargetScale.from_range(*params.target_range), mean=float(labels.mean())))
    return ClassLabels(*facts_of_classes(train, labels))


@dataclass(frozen=True)
class RandomisedClasses(ClassLabels):
    """Classes of which the answers are known, some of them made up.

    Attributes:
        epsilon: ε of an answer.
    """

    epsilon: float = 1.0

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """As :meth:`ClassTask.losses`, corrected; ``targets`` are answers."""
        return corrected_losses(logits, targets, self.classes, self.epsilon)

    def mean_loss(
        self, labels: NDArray[Any], scores: NDArray[np.float64], weights: NDArray[np.float64] | None = None
    ) -> float | None:
        """As :meth:`ClassTask.mean_loss`: NLL of answers, by what ``scores`` say of them; settings allow no ``weights``."""
        other = move_probability(self.classes, self.epsilon)
        return measure(("nll",), labels, other + (1 - self.classes * other) * scores)["nll"]

    def calibration(self, name: str, composition: Composition | None, rate: Rate) -> Calibration:
        """The calibration ``none``, the only one that is allowed beside the defence."""
        return ForwardCorrected(self.classes, self.epsilon)


class ForwardCorrected(Identity):
    """Probabilities are of labels, the loss is of their answers.

    Args:
        classes: K.
        epsilon: ε.
    """

    def __init__(self, classes: int, epsilon: float) -> None:
        self._classes, self._epsilon = classes, epsilon

    def loss(self, logits: Tensor, targets: Tensor, base_rate: Tensor) -> Tensor:
        """As :meth:`Calibration.loss`; ``targets`` are answers."""
        return corrected_losses(logits, targets, self._classes, self._epsilon).mean()

    def observed_output(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        """As :meth:`Calibration.observed_output`: of an answer."""
        other = move_probability(self._classes, self._epsilon)
        return other + (1 - self._classes * other) * super().observed_output(logits, base_rate)


def corrected_losses(logits: Tensor, answers: Tensor, classes: int, epsilon: float) -> Tensor:
    """−Σ_k ỹ_k · log P̃_k of each row, float32[B].

    log P̃_k is logaddexp(log(a − b) + log p_k, log b), in which no p_k is lost to rounding.

    Args:
        logits: float32[B], or [B, K] for K above 2.
        answers: the same shape, ỹ: 0 … 1; rows of K sum to 1.
        classes: K.
        epsilon: ε.
    """
    other = move_probability(classes, epsilon)
    slope, floor = math.log1p(-classes * other), logits.new_tensor(math.log(other))

    def log_answer(log_label: Tensor) -> Tensor:
        return torch.logaddexp(slope + log_label, floor)

    if logits.dim() == 1:
        return -(answers * log_answer(logsigmoid(logits)) + (1 - answers) * log_answer(logsigmoid(-logits)))
    return -(answers * log_answer(torch.log_softmax(logits, dim=1))).sum(dim=1)
