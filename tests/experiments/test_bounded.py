"""What ε costs in accuracy on public tables, through alignment, training and predictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.hidden import bounded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "columns", "protocol", "least"),
    [
        ("default_credit", "bins", "psi", 0.76),
        ("default_credit", "bins", "psu", 0.755),
        ("adult", "plain", "psi", 0.89),
        ("adult", "plain", "psu", 0.885),
    ],
)
def test_ten_thousand_records_at_an_epsilon_of_one(
    shared_data: Path, data: str, columns: str, protocol: str, least: float
) -> None:
    """Mean of five seeds, whose standard error is .001 to .002; and the active party alone is far below."""
    federated, alone = bounded.mean(bounded.DATA[data](shared_data), 10_000, columns=columns, protocol=protocol, epsilon=1)
    assert federated >= least
    assert federated > alone + 0.02
