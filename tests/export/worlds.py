"""Halves with random weights over tables with every kind of column; nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from vfl_node.data.design import LinearEncoder
from vfl_node.data.evidence import EvidenceColumns, weigh
from vfl_node.data.features import Encoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, NumericColumn, Table
from vfl_node.halves.half import About
from vfl_node.job import Job
from vfl_node.models import architecture_of
from vfl_node.models.building import build_bottom, build_classifier
from vfl_node.models.schema import InputSchema
from vfl_node.training.glm.exported import RegressionHalf
from vfl_node.training.hidden import frequent
from vfl_node.training.hidden.exported import HiddenHalf
from vfl_node.training.hidden.rows import RowEncoder
from vfl_node.training.predictor import StoredModel
from vfl_node.training.split.config import Train
from vfl_node.training.split.exported import SplitHalf
from vfl_node.training.statistics.columns import CountedColumns

ROWS = 600

WORDS = ("rot", "grün", "blau", "中文", "it's", 'a "word"')


def mixed_table(*, dates: bool = True, transforms: bool = True) -> Table:
    """Numbers of every scaling, with missing, huge and tiny ones, categories of rare levels, and dates."""
    draws = np.random.default_rng(7)
    wild = np.exp(draws.normal(0, 4, ROWS))
    wild[draws.random(ROWS) < 0.1] = np.nan
    wild[:2] = [1e300, -1e300]
    columns: dict[str, Column] = {
        "plain": NumericColumn(draws.normal(5, 2, ROWS)),
        "counted": NumericColumn(draws.integers(0, 9, ROWS).astype(np.float64), scaling="quantile"),
        "colour": CategoricalColumn(draws.choice([-1, 0, 1, 2, 3], ROWS, p=[0.1, 0.4, 0.3, 0.17, 0.03]), WORDS[:4]),
        "whole": CategoricalColumn(draws.integers(0, 3, ROWS), ("x", "y", "z")),
    }
    if transforms:
        columns |= {
            "amount 金额": NumericColumn(wild, scaling="log"),
            "tail": NumericColumn(draws.exponential(1, ROWS) ** 3, scaling="quantile"),
            "own": NumericColumn(draws.integers(-5, 5, ROWS).astype(np.float64), scaling="none"),
            "flat": NumericColumn(np.full(ROWS, 3.0), scaling="quantile"),
        }
    if dates:
        seconds = np.floor(draws.uniform(-3e9, 3e9, ROWS))
        seconds[:20] = np.nan
        columns["visit"] = DateColumn(seconds)
    return Table(Identifiers.from_items(b"text:%d" % row for row in range(ROWS)), columns)


def a_job(train: dict[str, Any], passive: tuple[str, ...] = ("lab",), **keys: Any) -> Job:
    parties = {"active": "clinic", "passive": list(passive)}
    if train.get("algorithm") == "hidden":
        parties["coordinator"] = "notary"
    protocol = "psi" if train.get("algorithm") else "psu"
    return Job.model_validate({"name": "trial", "parties": parties, "align": {"protocol": protocol}, "train": train, **keys})


def about(job: Job, role: str, reads: dict[str, Any], *, part: str) -> About:
    predicts = role == "active"
    result = "probability" if job.task == "classification" else "prediction"
    return About(
        party="clinic" if predicts else "lab",
        role=role,
        job="trial-1",
        manifest_digest=job.digest(),
        others=tuple(job.parties.passive) if predicts else (),
        gives=result if predicts else part,  # type: ignore[arg-type]
        width=0,
        reads=reads,
        id_form="text",
        task=job.task,
        classes=(),
        threshold=0.5,
    )


def split_half(
    table: Table, role: str, train: dict[str, Any], passive: tuple[str, ...] = ("lab",), **scoring: Any
) -> SplitHalf:
    """A half of split training with random weights of the size that trained ones have."""
    job = a_job({"bottom": [16, 8], "active_bottom": [8], "top": [8], **train}, passive)
    section = Train.section_of(job)
    encoder = Encoder.fit(table, np.arange(ROWS - 100), section.scaling, least_rows=section.least_rows)
    features = encoder.transform(table)
    schema = InputSchema(features.numeric.shape[1], features.cardinalities)
    kind = architecture_of(section.model)
    width = kind.cut_width(section.bottom, section.outputs)
    weights: dict[str, torch.Tensor] = {}
    if role == "passive":
        weights |= _random("bottom.", build_bottom(kind, section, schema, section.bottom))
    else:
        weights |= _random("", build_classifier(kind, section, schema, [width] * len(passive)))
        weights |= _random("local.", build_classifier(kind, section, schema, [])) if table.columns else {}
    said = {"calibration": '{"name": "none"}', "positive_rate": 0.3, "model_version": 1} | scoring
    model = StoredModel(job, weights, encoder.to_json(), json.dumps(said))
    return SplitHalf(about(job, role, _kinds(table, encoder.columns), part="embedding"), model)


def evidence_of(table: Table) -> EvidenceColumns:
    """Weights of every bin of a table, drawn."""
    columns = CountedColumns.fit(table, 8, 5)
    return columns.weigh("counted", np.random.default_rng(4).normal(size=(len(columns.columns), 9)))


def regression_half(
    table: Table, role: str, train: dict[str, Any], scaling: str = "standard", evidence: EvidenceColumns | None = None
) -> RegressionHalf:
    encoder = LinearEncoder.fit(table, scaling, evidence)  # type: ignore[arg-type]
    train = {"algorithm": "logistic", "scaling": scaling, **train}
    job = a_job(train)
    outputs = train["classes"] if train.get("classes", 2) > 2 else 1
    draws = torch.Generator().manual_seed(3)
    weights = {"weight": torch.randn(outputs, encoder.width, dtype=torch.float64, generator=draws)}
    if role == "active":
        weights["bias"] = torch.randn(outputs, dtype=torch.float64, generator=draws)
        if train["algorithm"] == "linear":
            weights["target"] = torch.tensor([120.0, 17.5], dtype=torch.float64)
    model = StoredModel(job, weights, encoder.to_json(), "")
    return RegressionHalf(about(job, role, dict(encoder.kinds), part="partial_scores"), model)


def hidden_half(
    table: Table, role: str, train: dict[str, Any], scaling: Any = "standard", evidence: EvidenceColumns | None = None
) -> HiddenHalf:
    job = a_job({"algorithm": "hidden", **train})
    bounded = job.train.epsilon is not None  # type: ignore[union-attr]
    found = frequent.find(weigh(table, evidence), 5)
    features = [feature for each in found.entering.values() for feature in each]
    rows = RowEncoder.fit(table, features, found, scaling, bins=evidence is None, bounded=bounded, evidence=evidence)
    draws = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=draws)

    sizes = [*train.get("layers", []), train["classes"] if train.get("classes", 2) > 2 else 1]
    weights = {"weight": normal(sizes[0], rows.width)}
    if role == "active":
        weights["bias"] = normal(sizes[0])
        for number, (before, after) in enumerate(pairwise(sizes)):
            weights |= {f"layer {2 * number}": normal(before, after), f"layer {2 * number + 1}": normal(1, after)}
    said = about(job, role, dict(rows.kinds), part="partial_scores")
    return HiddenHalf(said, StoredModel(job, weights, rows.to_json(), ""))


def unseen(table: Table) -> Table:
    """The same rows with levels that no encoder knows, and no value in many cells."""
    columns = {}
    for name, column in table.columns.items():
        if isinstance(column, CategoricalColumn):
            codes = column.codes.copy()
            codes[::5] = len(column.levels)
            columns[name] = CategoricalColumn(codes, (*column.levels, "～未知"))
        elif isinstance(column, NumericColumn):
            values = column.values.copy()
            values[::7], values[1::50], values[2::50] = np.nan, 1e300, -1e300
            columns[name] = NumericColumn(values)
        else:
            assert isinstance(column, DateColumn)
            seconds = column.seconds.copy()
            seconds[::7] = np.nan
            columns[name] = DateColumn(seconds)
    return replace(table, columns=columns)


def _kinds(table: Table, encodings: Iterable[Any]) -> dict[str, Any]:
    of = {NumericColumn: "numeric", CategoricalColumn: "categorical", DateColumn: "date"}
    return {each.name: of[type(table.columns[each.name])] for each in encodings}


def _random(prefix: str, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    draws = torch.Generator().manual_seed(11)
    found = {}
    for name, tensor in module.state_dict().items():
        if not tensor.is_floating_point():
            found[prefix + name] = torch.zeros_like(tensor)
            continue
        drawn = torch.randn(tensor.shape, generator=draws) * 0.4
        found[prefix + name] = drawn.abs() + 0.1 if "running_var" in name else drawn
    return found
