"""What the ledger says from the second training over the same records on."""

from __future__ import annotations

import pytest

from vfl_node.job import Evaluate
from vfl_node.ledger import Disclosure
from vfl_node.training.split.config import Train
from vfl_node.training.split.disclosures import RowCounts, Stopped, TrainingExchange, active_learns, passive_learns
from vfl_node.training.split.missing.section import Missing


def membership(entries: tuple[Disclosure, ...]) -> str:
    return next(entry.text for entry in entries if entry.what == "membership")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("majority", "comparing trainings tells more"),
        ("random-pos", "comparing trainings over several tells which they are"),
        ("random-pred", "comparing them tells which they are"),
    ],
)
def test_who_may_compare_trainings_is_told_so(labels: str, said: str) -> None:
    train = Train(missing=Missing(labels=labels))
    for learns, told in ((active_learns, "comparing trainings over several tells which they are"), (passive_learns, said)):
        first, third = (
            membership(learns(TrainingExchange("lab", RowCounts(70, 30), 20, train, Evaluate(), training)))
            for training in (1, 3)
        )
        assert "training 1" not in first
        assert "comparing" not in first
        assert third.startswith(f"{first}; this is training 3 over these records: ")
        assert third.endswith(told)


def test_where_no_record_is_lacked_there_is_nothing_to_compare() -> None:
    for learns in (active_learns, passive_learns):
        said = " ".join(entry.text for entry in learns(TrainingExchange("lab", RowCounts(70, 30), 0, Train(), Evaluate(), 3)))
        assert "training 3" not in said


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"insurer": 0, "telco": 0}, "explain the label of a row, for example (see docs/explanations/privacy/index.md)"),
        ({"insurer": 0, "telco": 9}, "and so in part for which rows telco made columns up"),
        ({"insurer": None, "telco": 9}, "and so in part for which rows insurer and telco made columns up"),
    ],
)
def test_only_a_party_that_lacks_rows_made_columns_up(others: dict[str, int | None], said: str) -> None:
    entries = passive_learns(TrainingExchange("clinic", RowCounts(70, 30), 0, Train(), Evaluate(), others=others))
    (text,) = (entry.text for entry in entries if entry.what == "other passive parties")
    assert said in text
    assert ("made columns up" in text) == (others["telco"] != 0)


@pytest.mark.parametrize(
    ("share", "stopped", "said"),
    [
        (False, (), "But the gradients from clinic depend"),
        (True, (), "But the gradients and the figures from clinic depend"),
        (True, ((2, 5),), "But the gradients and the figures and the decisions when to stop from clinic depend"),
    ],
)
def test_what_depends_on_the_columns_of_another_passive_party(share: bool, stopped: Stopped, said: str) -> None:
    evaluate = Evaluate(share_with_passive=share)
    exchange = TrainingExchange("clinic", RowCounts(70, 30), 0, Train(), evaluate, stopped=stopped, others={"insurer": 0})
    (text,) = (entry.text for entry in passive_learns(exchange) if entry.what == "other passive parties")
    assert said in text
