"""What the report of statistics says first, and what it does not say: nothing of a model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_report import page, text
from vfl_node.report import envelope
from vfl_node.report.envelope import Report
from vfl_node.report.summary import summary
from vfl_node.settings.protection import Protection
from vfl_node.transport.pipe import Traffic

OF_A_MODEL = ("does not show whether", "No metrics were", "curves", "the model is", "Metrics were not shared")


def reports(of: Any, over: Any) -> dict[str, Report]:
    """Of the parties with data."""
    return {
        name: envelope.build(
            job=of.job(over),
            job_id="look-0a1b2c3d",
            party=name,
            alignment=over.data[name][1],
            align_seconds=0.5,
            records=len(over.data[name][0]),
            protection=Protection(),
            traffic={"align": Traffic(3000, 4000, 5, 6)},
            training=result,
            started="2026-03-01T10:00:00+00:00",
            finished="2026-03-01T10:00:14+00:00",
            versions={"vfl_node": "0"},
        )
        for name, result in zip(over.data, of(over), strict=True)
    }


@pytest.mark.parametrize("train", [{}, {"correlations": True}, {"epsilon": None, "worth": True}])
def test_a_report_says_that_columns_were_counted_and_nothing_of_a_model(
    world: Any, attempt: Any, train: dict[str, Any]
) -> None:
    for name, report in reports(attempt(train), world(2, "psu")).items():
        count = {"clinic": 7, "lab": 4}[name]
        words = f"Done. {count} columns were counted, and no model was trained."
        assert report.verdict
        assert (report.verdict.helped, report.verdict.words) == ("not_measured", words)
        said = text(page(report))
        assert said.count(words) == 1
        assert not [each for each in OF_A_MODEL if each in said]
        assert words in summary(report.model_dump(mode="json"))
        unbounded = "what is opened at the end has no bound" in said
        assert unbounded == ("epsilon" in train)
