"""What a job in shares spends, which kinds have no bound, and what is said of those."""

from __future__ import annotations

from typing import Any

import pytest

from vfl_node.gdp import Exposure, compose, mu_of
from vfl_node.job.evaluate import Evaluate
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.shares.spending import ALARMING, alarming_columns, labels_auc, meter


def opens(evaluate: dict[str, Any] | None = None, shared: int | None = None, **train: Any) -> Exposure:
    return Hidden(algorithm="hidden", **train).opens(Evaluate(**evaluate or {}), shared)


@pytest.mark.parametrize(
    ("train", "evaluate", "epsilons"),
    [
        ({"epsilon": 1}, {}, [1]),
        ({"epsilon": 1}, {"epsilon": 2}, [2]),
        ({"epsilon": 2}, {"epsilon": 0.5}, [2]),
        ({"epsilon": 2, "metrics_by": "none"}, {"epsilon": 4}, [2]),
        ({"epsilon": 2, "reveal": "none"}, {}, [2]),  # predictions cost nothing more, and are paid for here
        ({"epsilon": 1}, {"test_fraction": 0}, [1, 1]),
        ({"epsilon": 1}, {"test_fraction": 0, "epsilon": 0.5}, [1, 0.5]),
        ({"epsilon": None}, {}, [1]),
        ({"epsilon": None}, {"epsilon": 2}, [2]),
        ({"epsilon": None}, {"epsilon": 2, "test_fraction": 0}, [2]),
        ({"epsilon": None, "metrics_by": "none"}, {}, []),
    ],
)
def test_a_job_spends_the_larger_of_model_and_metrics_and_both_where_rows_are_both(
    train: dict[str, Any], evaluate: dict[str, Any], epsilons: list[float]
) -> None:
    assert opens(evaluate, **train).mu == pytest.approx(compose(map(mu_of, epsilons)), rel=1e-12)


@pytest.mark.parametrize(
    ("train", "kind"),
    [
        ({"epsilon": 1}, ""),
        ({"epsilon": None}, "exact"),
        ({"epsilon": None, "task": "regression"}, "exact"),
        ({"epsilon": None, "loss": "taylor"}, "taylor"),
        ({"epsilon": None, "layers": [4]}, "networks"),
    ],
)
def test_what_has_no_bound_is_said_to_have_none(train: dict[str, Any], kind: str) -> None:
    opened = opens(**train)
    assert opened.unbounded == kind
    assert opened.warning.startswith("NO BOUND") == bool(kind)
    config = Hidden(algorithm="hidden", **train)
    assert config.opens(Evaluate()).anew == bool(kind)  # only these still count as trainings over a set


@pytest.mark.parametrize(
    ("records", "auc"), [(160, 0.86), (64, 1.0), (3200, 0.58)]
)  # 60 columns; 400/200, 2,000/80, 8,000/4,000
def test_the_meter_says_what_was_worked_out(records: int, auc: float) -> None:
    assert labels_auc(60, records) == pytest.approx(auc, abs=0.005)
    assert labels_auc(60, records, trainings=20) > labels_auc(60, records) or auc == 1.0
    said = meter(60, records, 1)
    assert f"{auc:.2f}".removeprefix("0") in said
    assert (said == said.upper()) == (auc > ALARMING)


@pytest.mark.parametrize("records", [2, 10, 160, 3200, 100_000])
def test_from_how_many_columns_on_labels_are_told(records: int) -> None:
    columns = alarming_columns(records)
    assert labels_auc(columns, records) > ALARMING
    assert columns == 1 or labels_auc(columns - 1, records) <= ALARMING


def test_before_a_job_the_warning_names_public_counts() -> None:
    said = opens({"test_fraction": 0.2}, 4000, epsilon=None).warning
    assert "WITH 3,200 SHARED RECORDS TRAINED ON, A PARTY WITH 100 COLUMNS OR MORE READS THEIR LABELS" in said
    assert labels_auc(0, 0) == 1.0
