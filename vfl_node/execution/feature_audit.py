"""How well columns are rebuilt from the embeddings of a model that was kept: ``vfl-node audit``.

The owner of a passive node repeats the feature audit of a job that has ended, with decoders that have seen nothing of the
training: this node computes the embeddings of its own rows by its kept half, as they are sent, and attacks them. Nothing
is sent, and nothing that the job has left is changed.

Which rows: with ``serve`` the alignment is kept, so they are the shared rows that this party owns. Without, nobody knows any
more which rows were shared, and they are all of its rows that took part.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch

from vfl_node.alignment.alignment import Alignment
from vfl_node.configuration.registry import load
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.errors import StateError
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job
from vfl_node.models import storage
from vfl_node.privacy.features.attacks import rebuild
from vfl_node.privacy.features.measures import Score, measure
from vfl_node.privacy.features.rows import check_enough, choose
from vfl_node.privacy.features.targets import targets_of
from vfl_node.process.tensors import choose_device
from vfl_node.settings.defences import DefenceParams, read_params
from vfl_node.settings.node import Settings
from vfl_node.training.predictor import Embeddings, KeptHalf, StoredModel

DECODERS = 3
"""How many times fresh decoders attack, each time with other known rows."""


@dataclass(frozen=True)
class RebuiltColumn:
    """How well one column is rebuilt, on the average of :data:`DECODERS` attacks.

    Attributes:
        column: its name.
        metric: ``accuracy``, ``auc`` or ``r2``, by its kind.
        constant: what always guessing the same gives; None where it is not defined.
        rebuilt: what the attack gives; likewise.
        each: that of each attack.
        rows: that were judged in an attack, on the average.
    """

    column: str
    metric: str
    constant: float | None
    rebuilt: float | None
    each: tuple[float | None, ...]
    rows: int

    @property
    def gain(self) -> float | None:
        """How much better than always guessing the same."""
        return None if self.rebuilt is None or self.constant is None else self.rebuilt - self.constant

    @classmethod
    def from_scores(cls, name: str, scores: Sequence[Score]) -> RebuiltColumn:
        """A column by its ``scores``, one of each attack."""
        defined = [score for score in scores if score.success is not None and score.constant is not None]
        constants, successes = ([float(getattr(score, name)) for score in defined] for name in ("constant", "success"))
        return cls(
            column=name,
            metric=scores[0].metric,
            constant=fmean(constants) if constants else None,
            rebuilt=fmean(successes) if successes else None,
            each=tuple(score.success for score in scores),
            rows=round(fmean(score.rows for score in scores)),
        )


@dataclass(frozen=True)
class FeatureAuditResult:
    """What an audit of a kept model found.

    Attributes:
        columns: worst first.
        shared: whether the rows are shared ones; else all that took part, since which were shared is not known any more.
        rows: how many there are.
        known: of how many the peer is assumed to know the columns.
        defences: names of those that the job had, in their order.
    """

    columns: tuple[RebuiltColumn, ...]
    shared: bool
    rows: int
    known: int
    defences: tuple[str, ...]


def kept_half(settings: Settings, job: Job, folder: JobFolder, table: Table) -> tuple[KeptHalf, bool]:
    """This party's half of the model of an ended job, over rows that are all its own or with the job's alignment.

    Args:
        settings: of this party.
        job: that trained it.
        folder: of the job.
        table: the records of this party that took part.

    Returns:
        The half, and whether the alignment is the job's.

    Raises:
        StateError: the table has changed (``E_INPUT_CHANGED``); what the job has left is gone, damaged or of another version
            (``E_STATE_LOST``, ``E_STATE_CORRUPT``, ``E_STATE_VERSION``).
        UsageError: a defence of the job cannot be loaded any more (``E_EXTENSION``).
    """
    weights, head = storage.load(folder.artefact("model.safetensors"))
    stored = folder.predictor
    aligned = folder.load_alignment(job.parties.others(settings.name)) if stored else None
    before, after = stored.input if stored else head.get("input"), table.digest().hex()
    if before not in (None, after):  # None: an earlier version did not say
        raise StateError(
            f"the table has changed since job {job.name} trained on it (digest {str(before)[:12]}…, now {after[:12]}…)",
            code="E_INPUT_CHANGED",
            hint="put the original file back, and what the settings said under data (and state/partners, where align.at_most "
            "took a part of it)",
        )
    state, encoder = (stored.serving, stored.encoder) if stored else ("", head["encoder"])
    model = StoredModel(job.choose(head.get("trial")), weights, encoder, state, settings.models)
    rows = np.arange(len(table), dtype=np.int64)
    own = Alignment(spec=job.align.spec, group=job.align.group, rows=rows, ours=len(table), peers={})
    alignment = aligned[0] if aligned else own
    return KeptHalf(model, alignment, table, defences_of(job, folder)), aligned is not None


def defences_of(job: Job, folder: JobFolder) -> tuple[DefenceParams, ...]:
    """The defences that this party had in a job, as its report says."""
    assert job.train is not None
    training = json.loads(folder.artefact("report.json").read_bytes())["training"]
    return tuple(map(read_params, training[job.train.algorithm].get("defences", ())))


def audit(
    settings: Settings,
    job: Job,
    folder: JobFolder,
    table: Table,
    columns: Sequence[str],
    known_share: float,
    randomness: Randomness,
) -> FeatureAuditResult:
    """Attack the embeddings of this party's own rows by the half that it has kept.

    Args:
        settings: of this party.
        job: that trained it; :attr:`~vfl_node.job.training.TrainerParts.embedded` names what embeds.
        folder: of the job, which has ended well.
        table: the records of this party that took part.
        columns: that are rebuilt; none: all that can be.
        known_share: of how many of the rows the peer is assumed to know the columns.
        randomness: of this audit alone.

    Raises:
        StateError: as :func:`kept_half`.
        UsageError: a column cannot be rebuilt (``E_COLUMN``, ``E_CONFIG``); so few rows are known, or left to judge, that
            nothing can be learnt (``E_CONFIG``).

    Cost: a forward pass of at most 4,096 rows, and one :func:`~vfl_node.privacy.features.attacks.rebuild`, :data:`DECODERS`
        times.
    """
    assert job.train is not None
    half, shared = kept_half(settings, job, folder, table)
    torch.set_num_threads(settings.threads)  # the node may be running
    device = choose_device(settings.device)
    targets = targets_of(table, half.alignment.rows, columns, device, party=settings.name)
    own = np.flatnonzero(half.alignment.owned)
    kind = load(job.train.parts.embedded, what=f"embeddings of trainer {job.train.algorithm!r}")
    embeddings: Embeddings = kind(half, randomness.derive("defences"), device)
    found: list[dict[str, Score]] = []
    for number in range(DECODERS):
        draws = randomness.derive(f"attack/{number}")
        chosen = choose(own, known_share, embeddings.inputs, draws.derive("rows"))
        check_enough(len(chosen.known), len(chosen.judged), share=known_share, by="--known-share")
        known, judged = (embeddings.rows(positions) for positions in (chosen.known, chosen.judged))  # float32[n, d]
        known_at, judged_at = (torch.from_numpy(positions).to(device) for positions in (chosen.known, chosen.judged))
        found.append(measure(targets, rebuild(known, known_at, judged, targets, draws), judged_at))
    each = [RebuiltColumn.from_scores(name, [scores[name] for scores in found]) for name in found[0]]
    worst_first = sorted(each, key=lambda column: (-(column.gain if column.gain is not None else -np.inf), column.column))
    names = tuple(params.name for params in half.defences)
    return FeatureAuditResult(tuple(worst_first), shared, len(own), len(chosen.known), names)
