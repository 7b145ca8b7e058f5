"""What is refused in statistics: jobs, messages that no honest party sends, tables; and what an estimate says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tests.training.shares_attempts import edits, setting
from vfl_node.configuration.models import parse
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.errors import DataError, ProtocolError, UsageError
from vfl_node.job import Job
from vfl_node.job.costs import Beside
from vfl_node.training.statistics.columns import CountedColumns
from vfl_node.training.statistics.config import MOST_ROWS, Statistics
from vfl_node.transport.generated.vfl.v1.shares_pb2 import ColumnStatistics, DealingTerms, MaskedShares

JOB = {
    "name": "look",
    "parties": {"active": "bank", "passive": "telco", "coordinator": "notary"},
    "align": {"protocol": "psu"},
    "statistics": {},
}


def test_statistics_are_a_job_of_their_own() -> None:
    job = Job.model_validate(JOB)
    assert isinstance(job.train, Statistics)
    assert (job.train.bins, job.train.epsilon) == (10, 1.0)
    assert Job.model_validate(job.model_dump()) == job


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"train": {"algorithm": "hidden"}}, "leave train out"),
        ({"statistics": 3}, "keys and values"),
        ({"statistics": {"algorithm": "trees"}}, "leave statistics.algorithm out"),
        ({"statistics": {"bin": 3}}, "bin"),
        ({"statistics": {"bins": 1}}, "bins"),
        ({"statistics": {"epsilon": 0}}, "epsilon"),
        ({"statistics": {"classes": 3}}, "classes"),
        ({"parties": {"active": "bank", "passive": "telco"}}, "coordinator"),
        ({"align": {"protocol": "apsi", "obfuscation": {"size": 50}}}, "do not run with align.protocol: apsi"),
        ({"align": {"protocol": "psu", "dummies": 5}}, "do not run with align.dummies"),
        ({"parties": {"active": "a", "passive": ["b", "c"], "coordinator": "d"}}, "do not run with align.protocol: psu"),
        ({"serve": {"to": "active"}}, "serve"),
        ({"export": {"joint": "active"}}, "export"),
    ],
)
def test_jobs_that_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Job.model_validate({**JOB, **changed})
    if "do not run" in words:
        with pytest.raises(ValidationError, match=words):
            Job.model_validate({**JOB, **changed, "statistics": {"epsilon": None}})


@pytest.mark.parametrize(
    ("section", "words", "hint"),
    [
        ("{bins: 1}", "job.yaml:4:20: 'statistics.bins': 1 is not 2 or more", ""),
        ("{bin: 3}", "job.yaml:4:14: unknown key 'statistics.bin'", "did you mean 'bins'?"),
        ("{epsilon: x}", "job.yaml:4:23: 'statistics.epsilon': 'x' is not a number", ""),
        ("3", "job.yaml:4:1: statistics are keys and values", ""),
    ],
)
def test_errors_name_the_keys_that_were_written(section: str, words: str, hint: str) -> None:
    text = f"name: look\nparties: {{active: bank, passive: telco, coordinator: notary}}\nalign: {{}}\nstatistics: {section}\n"
    with pytest.raises(UsageError) as caught:
        parse(text, Job, source="job.yaml")
    assert str(caught.value).startswith(words)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("sender", "kind", "edit"),
    [
        ("lab", ColumnStatistics, lambda message: message.values.append(0.5)),
        ("lab", ColumnStatistics, lambda message: message.values.__setitem__(0, -1.0)),
        ("lab", ColumnStatistics, lambda message: message.values.__setitem__(2, 1.5)),
        ("lab", ColumnStatistics, lambda message: message.values.__delitem__(slice(None))),
        ("clinic", DealingTerms, setting("rows", MOST_ROWS + 1)),
        ("clinic", DealingTerms, setting("split", b"short")),
        ("clinic", DealingTerms, setting("epoch", 5)),
        ("lab", MaskedShares, setting("values", b"")),
    ],
)
def test_messages_that_cannot_be(world: Any, attempt: Any, sender: str, kind: type[Any], edit: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        attempt(tamper=edits(sender, kind, edit))(world(2, "psu"))
    assert caught.value.code == "E_COUNT"
    assert caught.value.hint or kind is MaskedShares


def test_a_table_without_columns_to_count_is_refused(world: Any, attempt: Any) -> None:
    over = world(2, "psu")
    table, view = over.data["lab"]
    over.data["lab"] = Table(table.ids, {"same": NumericColumn(np.ones(len(table)))}), view
    with pytest.raises(DataError) as caught:
        attempt()(over)
    assert caught.value.code == "E_NO_FEATURES"


@pytest.mark.parametrize("evaluate", [{}, {"test_fraction": 0.0}])
def test_an_estimate_is_what_is_sent(world: Any, attempt: Any, evaluate: dict[str, float]) -> None:
    over, of = world(2, "psu"), attempt(evaluate=evaluate)
    active, passive = of(over)
    job = of.job(over)
    cost = job.train.make_plan(1, Beside(columns=(3, 4))).cost(job.evaluate, len(over), "psu")
    assert (cost.active_bytes, cost.passive_bytes) == (active.section.bytes, passive.section.bytes)
    assert cost.coordinator_bytes == active.section.dealer_bytes + passive.section.dealer_bytes
    assert cost.steps == -(-active.section.rounds // 2)


LEVELS = ("a", "b", "c", "d", "e", "f")


def test_each_column_has_as_many_bins_and_the_frequent_levels_have_their_own() -> None:
    rng = np.random.default_rng(0)
    codes = rng.choice(np.arange(-1, 6), 600, p=[0.05, 0.3, 0.05, 0.25, 0.05, 0.2, 0.1])
    numbers = np.where(rng.random(600) < 0.1, np.nan, rng.normal(size=600))
    table = Table(
        Identifiers.from_items(str(row).encode() for row in range(600)),
        {"sort": CategoricalColumn(codes.astype(np.int32), LEVELS), "number": NumericColumn(numbers)},
    )
    found = CountedColumns.fit(table, 4, 5)
    bins = found.find_bins(table)
    assert [found.describe(number) for number in (0, 1)] == [
        ("a", "c", "e", "another level", "missing"),
        (*found.columns[1].describe_bins()[:4], "missing"),
    ]
    for row in range(600):
        level = LEVELS[codes[row]] if codes[row] >= 0 else "missing"
        said = found.describe(0)[bins[row, 0]]
        assert said == (level if level in ("a", "c", "e", "missing") else "another level")
        assert (bins[row, 1] == 4) == np.isnan(numbers[row])
    cells = found.cells(table, np.array([3, -1, 5])).block(0, 3)
    assert cells.sum(axis=1).tolist() == [2, 2, 2]
    assert CountedColumns.from_json(found.to_json()) == found
