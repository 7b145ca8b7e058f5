"""What a party brings to training, and what it takes home."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.alignment.alignment import Alignment, MemoryPins, Pins
from vfl_node.data.tables import Table
from vfl_node.job import Evaluate, Flow, Train
from vfl_node.ledger import Disclosure
from vfl_node.privacy.equal_weights import Judged
from vfl_node.progress import Progress, Silent
from vfl_node.settings import Protection
from vfl_node.training.checkpoints import Checkpoints, MemoryCheckpoints
from vfl_node.training.evaluation import Curve, Values


@dataclass(frozen=True)
class Task:
    """One party's side of a training.

    Attributes:
        alignment: the shared rows as this party sees them.
        table: its own records; the active party's has labels.
        train: the job's section.
        evaluate: the job's section.
        clock: seconds since any fixed moment, for the duration of epochs only.
        party: its name.
        device: where models and columns are.
        checkpoints: where its state is kept.
        pins: digests of what the peer sent in earlier attempts of the job.
        progress: whom to tell.
        protection: what its owner does about what the tensors that it sends tell.
        training: which training with synthetic rows over these records with this partner it is, from 1.
    """

    alignment: Alignment
    table: Table
    train: Train
    evaluate: Evaluate
    clock: Callable[[], float]
    party: str
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    checkpoints: Checkpoints = field(default_factory=MemoryCheckpoints)
    pins: Pins = field(default_factory=MemoryPins)
    progress: Progress = field(default_factory=Silent)
    protection: Protection = field(default_factory=Protection)
    training: int = 1


@dataclass(frozen=True)
class Epoch:
    """One epoch of the first repeat.

    Attributes:
        loss: as :attr:`vfl_node.training.evaluation.Figures.loss`; None at a passive party that the job does not tell.
        auc: as :attr:`vfl_node.training.evaluation.Figures.auc`; likewise.
        seconds: from its first batch to its last.
        bytes: sent and received, as serialised frames.
        attacks: attack → AUC of this party's own attacks on what it sent; empty where none of its rows is synthetic.
        judged: attack → number of rows behind that AUC.
    """

    loss: float | None
    auc: float | None
    seconds: float
    bytes: int
    attacks: Mapping[str, float | None] = field(default_factory=dict)
    judged: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LogisticFigures:
    """What a logistic regression took, beside its iterations.

    Attributes:
        flow: as the job has it.
        rows: shared rows trained on, dummies included; None if this party does not know.
        features: party → encoded columns, of the parties of which this one knows it.
        rounds: gradients computed under encryption.
        decryptions: party → values decrypted for it, of the parties of which this one knows it.
        decrypted_bits: party → bits that it was told of these.
        dropped: this party's own columns left out.
        warnings: whole sentences for this party's owner.
    """

    flow: Flow
    rows: int | None
    features: Mapping[str, int]
    rounds: int
    decryptions: Mapping[str, int]
    decrypted_bits: Mapping[str, int]
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingResult:
    """What one party has after training. Metrics are None at a party that the job does not tell.

    Attributes:
        epochs: of the first repeat; the iterations of a logistic regression.
        steps: batches trained on in all repeats.
        rows: shared rows trained on and held out in each repeat; all of them twice where none are held out.
        device: its name.
        metrics: metric → value, the mean over repeats; None for one that is not defined.
        local_metrics: the active party alone on the same rows; None without own features.
        intervals: metric → {mean, sd, low, high} over repeats; empty for a single repeat.
        local_intervals: the same of ``local_metrics``.
        gains: the same of the difference federated − local, repeat by repeat.
        population: which rows the metrics are about: ``population``, ``rows`` (of the first
            repeat), ``real_share`` (share with real passive features, a ratio of counts).
        calibration_curve: (confidence, frequency, rows) of each range, first repeat; empty at the passive party.
        local_calibration_curve: the same of the active party alone; empty without own features.
        matched: metrics on the held-out rows that both parties own, first repeat; None where the job does not ask.
        matched_rows: how many they are; None if not known.
        audit: attack → moving average of :attr:`Epoch.attacks` at the last repeat's end, where twins of all repeats count.
        held_out: the same attacks on the embeddings of the rows held out, first repeat; None where none are sent.
        tested: int64[t], shared positions whose embeddings by ``weights`` the peer has received: those held out in the first
            repeat; none where none are sent.
        weights: this party's half, first repeat: parameter → tensor on the CPU; the active party's own model as ``local.NAME``.
        serving: JSON of what predictions need beside weights, encoder and alignment (see
            :mod:`vfl_node.training.split.serving`); holds a secret of this party.
        encoder: JSON of the encoder that belongs to ``weights``.
        learnt: every party of the job → what it learnt from training, as far as this party can know.
        logistic: of a logistic regression; None for a split network.
    """

    epochs: tuple[Epoch, ...]
    steps: int
    rows: tuple[int, int]
    device: str
    learnt: Mapping[str, tuple[Disclosure, ...]]
    tested: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    encoder: str = ""
    serving: str = field(default="", repr=False)
    metrics: Values | None = None
    local_metrics: Values | None = None
    intervals: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    local_intervals: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    gains: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    population: Mapping[str, Any] | None = None
    calibration_curve: Curve = field(default_factory=list)
    local_calibration_curve: Curve = field(default_factory=list)
    matched: Values | None = None
    matched_rows: int | None = None
    audit: Mapping[str, float | None] = field(default_factory=dict)
    held_out: Judged | None = None
    logistic: LogisticFigures | None = None


def device_name(device: torch.device) -> str:
    """The accelerator's name, or ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
