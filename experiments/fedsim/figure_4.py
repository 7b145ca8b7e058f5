"""Figure 4: how a candidate's weight rises with its similarity, and which ranks a prediction depends on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.fedsim.data import ACTIVE, PASSIVE
from experiments.fedsim.linkage import Linkage, link
from experiments.fedsim.training import train
from experiments.fedsim.trials import CANDIDATES, FEDSIM, RATES, SIGMA, Plan, set_up
from experiments.florist.figures import Curve, Panel, drawing
from experiments.inference.experiment import Expectation, Found, Work, mean
from vfl_node.data.features import Encoder
from vfl_node.job import Job
from vfl_node.metrics.numbers import spearman
from vfl_node.training.candidates.config import Linked
from vfl_node.training.candidates.gates import ConvolutionMerge
from vfl_node.training.candidates.network import ActiveNetwork, LinearCut
from vfl_node.training.candidates.passive import deduplicate, mean_record
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.trainer import Trained

TITLE = "Figure 4: weights and ranks"

GRID = np.linspace(-3, 3, 25)
"""Scaled similarities at which the weight is drawn."""

STEPS = 20
"""Steps of the path of integrated gradients."""

SEEDS = 3

RISES = 0.1
"""Rank correlation from which something is said to rise; one that is not defined, as all of one are equal, counts as −1."""


def tables(plan: Plan) -> dict[str, float | None]:
    """Table → scatter of its keys."""
    return {"small": 0.1} if plan.small else {"made_up": 0.1, "hdb": None}


def works(plan: Plan) -> list[Work]:
    """As in :mod:`experiments.inference.experiment`."""
    return [seen(name, seed, scatter) for seed in plan.few(SEEDS) for name, scatter in tables(plan).items()]


def seen(table: str, seed: int, scatter: float | None) -> Work:
    """One training of FedSim, and what is seen in its model."""
    keys = {"method": FEDSIM, "candidates": CANDIDATES, "sigma": SIGMA, "rate": RATES[table]}
    return Work(looked_into, {"table": table, "seed": seed, "scatter": scatter, **keys})


def looked_into(shared: Path, *, seed: int, **chosen: Any) -> Any:
    """The work of :func:`seen`.

    Returns:
        ``weights`` at the similarities of :data:`GRID`; ``spearman`` of weight and similarity on the rows held out; and
        ``importance``: of each rank, the largest similarity last, the mean over rows held out of the sum of absolute integrated
        gradients of what is merged, as a share of all ranks.
    """
    case, job = set_up(shared, seed=seed, **chosen)
    linkage = link(case, job.align, seed)
    done = train(case, linkage, job, seed)
    model, merged = rebuilt(job, linkage, done, {ACTIVE: case.active, PASSIVE: case.passive})
    assert model.gate is not None
    with torch.no_grad():
        weights = model.gate(torch.from_numpy(GRID.astype(np.float32)).unsqueeze(0)).squeeze(0)
    importance = importance_by_rank(merged["merge"], *merged["inputs"])
    section: Any = done[ACTIVE].section
    return {
        "weights": [round(value, 5) for value in weights.tolist()],
        "spearman": section.spearman,
        "importance": [round(value, 5) for value in importance.tolist()],
    }


def rebuilt(
    job: Job, linkage: Linkage, done: Mapping[str, Trained], tables: Mapping[str, Any]
) -> tuple[ActiveNetwork, dict[str, Any]]:
    """The trained model, and what its merge gets for the rows held out."""
    section = Linked.section_of(job)
    held_out = done[ACTIVE].held_out
    similarities, rows = linkage.views[ACTIVE].similarities, linkage.views[PASSIVE].rows[held_out]
    assert similarities is not None
    training = np.setdiff1d(np.arange(len(similarities)), np.concatenate([held_out, done[ACTIVE].validated]))
    inputs = {}
    for party, table in tables.items():
        features = Encoder.from_json(done[party].encoder).transform(table)
        if party == PASSIVE:
            features = features.append(mean_record(features))
        inputs[party] = PositionedInput.from_features(features, np.arange(len(features)), torch.device("cpu"))
    model = ActiveNetwork(section, inputs[ACTIVE].schema, similarities[training])
    bottom = LinearCut(inputs[PASSIVE].schema, section.bottom, section)
    restore(model, done[ACTIVE].weights)
    restore(torch.nn.ModuleDict({"bottom": bottom}), done[PASSIVE].weights)
    merged: dict[str, Any] = {"merge": model.merge}
    assert model.merge is not None
    handle = model.merge.register_forward_pre_hook(lambda _, given: merged.update(inputs=given))
    with torch.no_grad():
        distinct, index = deduplicate(rows, mean=len(tables[PASSIVE]))
        embeddings = bottom(inputs[PASSIVE].take(distinct))
        places = torch.from_numpy(index.astype(np.int64))
        model(inputs[ACTIVE].take(held_out), embeddings, places, torch.from_numpy(similarities[held_out]))
    handle.remove()
    return model, merged


def restore(module: torch.nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Take trained weights, and rest."""
    module.load_state_dict(dict(weights))
    module.eval()


def importance_by_rank(merge: ConvolutionMerge, pairs: Tensor, weights: Tensor) -> Tensor:
    """Importance of each rank, float32[K], which add up to 1, of pairs float32[n, K, l] with weights float32[n, K]."""
    importance = integrate(merge, pairs, weights).abs().sum(dim=2).mean(dim=0)
    return importance / importance.sum()


def integrate(merge: ConvolutionMerge, pairs: Tensor, weights: Tensor) -> Tensor:
    """Integrated gradients from zero, as in the paper, float32[n, K, l]; those of a row add up to what pairs change."""
    total = torch.zeros_like(pairs)
    for step in range(STEPS):
        scaled = (pairs * ((step + 0.5) / STEPS)).requires_grad_()
        (gradient,) = torch.autograd.grad(merge(scaled, weights).sum(), scaled)
        total += gradient
    return total / STEPS * pairs


def _found(plan: Plan, found: Found, name: str, key: str) -> list[Any]:
    return [found[seen(name, seed, tables(plan)[name]).name][key] for seed in plan.few(SEEDS)]


def page(plan: Plan, found: Found) -> list[str]:
    """What is drawn, and rank correlations."""
    lines = [
        "Above: the weight of a candidate by its similarity, in deviations. Below: importance by rank, the largest similarity",
        "last, by integrated gradients of what is merged, as a share of all ranks. The merge reads candidates in the order of",
        "similarity, so a rank can count whatever the weights are. The paper has weights that rise on [−3, 3], and importance",
        "that rises with the rank.",
        "",
    ]
    for name in tables(plan):
        ranks = _listed(_found(plan, found, name, "spearman"))
        rising = _listed([_rising(outcome) for outcome in _found(plan, found, name, "importance")])
        lines.append(
            f"- `{name}`, rank correlations by seed: of weight and similarity {ranks}; of importance and rank {rising}."
        )
    return [*lines, "", "![Weight by similarity, importance by rank](fedsim-figure-4.svg)"]


def _rising(importance: list[float]) -> float | None:
    return spearman(np.arange(len(importance)), np.array(importance))


def _listed(values: list[float | None]) -> str:
    return ", ".join("–" if value is None else f"{value:.2f}" for value in values)


def _mean(values: list[float | None]) -> float:
    return mean([-1.0 if value is None else value for value in values])


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """Weights by seed, and importance of each table."""
    columns = []
    for name in tables(plan):
        weights = [
            Curve(f"seed {seed}", [(float(x), y, 0.0) for x, y in zip(GRID, outcome, strict=True)])
            for seed, outcome in enumerate(_found(plan, found, name, "weights"))
        ]
        ranked = [
            Curve(f"seed {seed}", [(float(rank), y, 0.0) for rank, y in enumerate(outcome, 1)])
            for seed, outcome in enumerate(_found(plan, found, name, "importance"))
        ]
        above = Panel(f"{name}: weight", "similarity, deviations", weights)
        columns.append([above, Panel(f"{name}: importance", "rank, the largest similarity last", ranked)])
    return {"fedsim-figure-4.svg": drawing(columns)}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """Both rise, on the mean over seeds."""
    expected = []
    for name in tables(plan):
        correlation = _mean(_found(plan, found, name, "spearman"))
        rising = _mean([_rising(outcome) for outcome in _found(plan, found, name, "importance")])
        expected.append(Expectation(f"`{name}`: rank correlation of weight and similarity, mean", correlation, RISES))
        expected.append(Expectation(f"`{name}`: rank correlation of importance and rank, mean", rising, RISES))
    return expected
