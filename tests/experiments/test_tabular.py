"""The tables of the experiment with default settings: how they are cut, and what its figures assert."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

from experiments.tabular.data import SOURCES, write_tables
from experiments.tabular.run import MODELS, SEEDS, measured, page

RESULTS = Path(__file__).parents[2] / "docs" / "experiments" / "tabular.json"

MARGINS = {"adult": 0.018, "default_credit": 0.005, "criteo": 0.02}
"""Table → how far the network may stay behind boosted trees over the same joint rows."""


@pytest.fixture(scope="module")
def shared() -> Path:
    folder = os.environ.get("VFL_SHARED_DATA")
    if not folder:
        pytest.skip("no shared data sets here (VFL_SHARED_DATA)")
    return Path(folder)


def differences(name: str, model: str, other: str) -> list[float]:
    return [of[model] - of[other] for of in json.loads(RESULTS.read_text())[name]]


@pytest.mark.parametrize("name", MARGINS)
def test_the_network_with_default_settings_is_near_boosted_trees(name: str) -> None:
    gaps = differences(name, "split network", "boosted trees, joint")
    assert len(gaps) == SEEDS
    assert np.mean(gaps) > -MARGINS[name]


@pytest.mark.parametrize("name", SOURCES)
def test_the_network_is_nowhere_worse_than_alone(name: str) -> None:
    gains = differences(name, "split network", "alone")
    half = 2.776 * np.std(gains, ddof=1) / np.sqrt(SEEDS)
    assert np.mean(gains) + half > 0


def test_the_page_shows_what_was_measured() -> None:
    assert RESULTS.with_suffix(".md").read_text() == page(json.loads(RESULTS.read_text()))


@pytest.mark.data
@pytest.mark.parametrize("name", SOURCES)
def test_both_parties_have_all_rows_and_one_has_labels(shared: Path, tmp_path: Path, name: str) -> None:
    files = write_tables(shared, name, tmp_path)
    (active, *rows), (passive, *others) = (list(csv.reader(file.open(encoding="utf-8"))) for file in files.values())
    assert (active[0], active[-1], passive[0]) == ("id", "label", "id")
    assert "label" not in passive
    assert set(active) & set(passive) == {"id"}
    assert [row[0] for row in rows] == [row[0] for row in others]
    assert {len(row) for row in rows} == {len(active)}
    assert {row[-1] for row in rows} == {"0", "1"}
    assert set(SOURCES[name].categorical) <= {*active, *passive}


@pytest.mark.data
@pytest.mark.slow
def test_every_model_is_measured_on_the_same_rows(shared: Path, tmp_path: Path) -> None:
    found = measured("criteo", write_tables(shared, "criteo", tmp_path), seed=0)
    assert set(found) == set(MODELS)
    assert all(0.55 < auc < 0.9 for auc in found.values())
