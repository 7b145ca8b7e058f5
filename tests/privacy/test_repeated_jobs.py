"""Trainings over the same records, compared: synthetic rows are drawn again in each alignment and real rows are not.

They cannot stay the same there: a position stands for another record, and whose record it is that a party lacks is blinded.
Over one alignment, used again, they can, and do.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from experiments.florist.again import COMPARED, attack
from experiments.florist.experiment import ACTIVE, PASSIVE, Trial
from tests.thorough import examples
from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy.attacks.near_duplicate import nearest
from vfl_node.training.split.missing.features.rows import sampling
from vfl_node.training.split.missing.labels.contract import Known, build
from vfl_node.training.split.missing.strategies import LABELS

OWN, LACKED = 1000, 214
"""Records of the attacker, and how many of them, the first ones, the other party lacks."""

SYNTHETIC = np.arange(OWN) < LACKED


def job(number: int, *, same: bool) -> tuple[NDArray[np.int64], Randomness]:
    """The attacker's record at each position, int64[OWN], and what the peer draws from; ``same``: as in the first job."""
    of = Randomness(b"job".ljust(32)).derive("1" if same else str(number))
    return of.derive("order").permutation(OWN), of.derive("draws")


def twins(number: int, *, same: bool) -> NDArray[np.bool_]:
    """bool[OWN]: which of its records have an exact twin among the embeddings of one evaluation with nothing held out."""
    records, draws = job(number, same=same)
    columns = torch.from_numpy(Randomness(b"columns".ljust(32)).normal((OWN, 6)))
    real = np.flatnonzero(~SYNTHETIC)
    source = np.where(SYNTHETIC[records], real[sampling(len(real), OWN, draws)], records)
    bottom = MlpBottom(InputSchema(6), (32, 16))
    initialise(bottom, Randomness(b"weights".ljust(32)).derive(str(number)))  # secret, and others in each job
    with torch.no_grad():
        embedding = bottom(ModelInput.from_tensors(columns[source]))
    found = np.empty(OWN, dtype=np.bool_)
    found[records] = (nearest(embedding, torch.arange(OWN)) < 1e-5 * embedding.norm(dim=1).mean()).numpy()
    return found


def wrongly_taken(jobs: int, *, same: bool = False) -> int:
    """How many real records had a twin in each of so many jobs; every synthetic one has."""
    suspected = np.logical_and.reduce([twins(number, same=same) for number in range(1, jobs + 1)])
    assert suspected[SYNTHETIC].all()
    return int(suspected[~SYNTHETIC].sum())


def test_each_job_clears_most_of_the_real_rows_that_were_copied_before() -> None:
    one, two, three = (wrongly_taken(jobs) for jobs in (1, 2, 3))
    assert one == pytest.approx((OWN - LACKED) * (1 - np.exp(-LACKED / (OWN - LACKED))), abs=40)
    assert two < one / 3
    assert three < two / 3


def test_were_the_draws_the_same_another_job_would_tell_nothing() -> None:
    assert wrongly_taken(3, same=True) == wrongly_taken(1, same=True) > 100


@pytest.mark.parametrize(("strategy", "found"), [("random-pos", True), ("majority", False)])
def test_labels_that_are_drawn_and_change_between_jobs_are_surely_synthetic(strategy: str, found: bool) -> None:
    """The passive party reads the label used off every gradient; here the attacked party is the active one."""

    def labels_seen(number: int, *, same: bool) -> NDArray[np.float32]:
        records, draws = job(number, same=same)
        real = (np.arange(OWN) % 4 == 0).astype(np.float32)
        known = Known(real[~SYNTHETIC], OWN, 2, randomness=draws)
        drawn = build(LABELS[strategy](), known).labels  # type: ignore[attr-defined]
        seen = np.empty(OWN, dtype=np.float32)
        seen[records] = np.where(SYNTHETIC[records], drawn, real[records])
        return seen

    def changed(jobs: int, *, same: bool = False) -> NDArray[np.bool_]:
        return np.ptp([labels_seen(number, same=same) for number in range(1, jobs + 1)], axis=0) > 0

    assert not changed(1).any()
    assert not changed(3, same=True).any()
    two, three = changed(2), changed(3)
    assert not (three & ~SYNTHETIC).any()
    assert (two.sum() > 0.25 * LACKED) == found
    assert (three.sum() > 1.3 * two.sum()) == found


SEEDS = examples(5, fewer=2)


@pytest.mark.parametrize(("attacker", "least"), [(ACTIVE, 0.9), (PASSIVE, 0.65)])
def test_over_one_alignment_neighbours_tell_what_was_made_up_anew_and_not_what_was_kept(attacker: str, least: float) -> None:
    """Two trainings suffice, and eight tell all. Kept rows: hardly off chance, and no nearer to twins than in one training.

    Of 800 rows that the active party owns 30 % are synthetic: an AUC at chance deviates by .022 (√((s + r + 1) / 12sr)), the
    mean of two by .016; of 700 rows of the passive party, 20 %, by .028 and .020. A made-up row is a little nearer to others,
    which one training shows, too: over five seeds that moved the AUC by .05. So a mean beyond .15 has a chance below one in a
    million.
    """
    shares: dict[str, Any] = {"alpha": 0.3, "beta": 0.2, "labels": "random-pos", "features": "smoothed", "at_active": 4}
    trial = Trial("made_up", 0, **shares, rows=1000, epochs=2, attacked=(2,))

    def mean(kept: bool) -> dict[str, float]:
        trials = (replace(trial, seed=seed, kept=kept) for seed in range(SEEDS))
        found = [attack(each, Path("/nowhere"), attacker) for each in trials]  # the table is made up
        return {name: float(np.mean([each[name] for each in found])) for name in COMPARED}

    anew, kept = mean(False), mean(True)
    assert anew["neighbours, 2"] > least
    assert anew["neighbours, 8"] > 0.9
    for name in ("neighbours, 2", "neighbours, 8"):
        assert kept[name] == pytest.approx(0.5, abs=0.15)
    assert kept["twins, 8"] == pytest.approx(kept["twins, 1"], abs=0.1)
    assert anew["twins, 8"] < kept["twins, 8"] - 0.2
