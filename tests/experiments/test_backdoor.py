"""A passive party that puts a trigger into a split model: the attack, both controls, and what finds it."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from experiments.backdoor.halves import Attack, Deviating, Seen, learnt
from experiments.backdoor.run import ATTACKS, CHECKS, measured, missed, page, replayed
from tests.training.conftest import Run, synthetic
from vfl_node.job import Evaluate
from vfl_node.metrics.classes import auc
from vfl_node.privacy.integrity import ALARM
from vfl_node.session.session import Session
from vfl_node.training.network.half import RepeatStart
from vfl_node.training.split.config import Train
from vfl_node.training.trainer import Trained, TrainingData

NOWHERE = Path("/nowhere")
RESULTS = Path(__file__).parents[2] / "docs" / "experiments"


@cache
def after(attack: Attack) -> Seen:
    """On a made-up table: 2,250 rows trained on, 750 held out, of which 20 % are positive."""
    torch.set_num_threads(1)
    return learnt(NOWHERE, "made_up", 0, attack)


def turned(seen: Seen, sent: Any) -> float:
    """How much larger the share of positives predicted negative is where the passive party sends that."""
    return float(missed(seen, sent).mean() - missed(seen, seen.clean).mean())


def with_trigger(seen: Seen) -> Any:
    return seen.passive.trigger.apply(torch.from_numpy(seen.clean)).numpy()


def held_out_auc(seen: Seen) -> float:
    value = auc(seen.labels[seen.held_out] == 1, seen.active.says(seen.held_out, seen.shown))
    assert value is not None
    return value


HONEST, ADDED, CORNER, BY_A_RULE = Attack(trains=False), Attack(), Attack("corner"), Attack("corner", hides=True)


def test_labels_are_read_in_two_epochs() -> None:
    seen = after(ADDED)
    assert (seen.passive.negative == (seen.labels[seen.training] == 0)).mean() > 0.99


@pytest.mark.parametrize("attack", [ADDED, CORNER])
def test_a_trigger_that_was_trained_turns_positives_and_metrics_do_not_tell(attack: Attack) -> None:
    seen, honest = after(attack), after(HONEST)
    assert turned(seen, with_trigger(seen)) > 0.2
    assert abs(held_out_auc(seen) - held_out_auc(honest)) < 0.02
    np.testing.assert_array_equal(seen.shown, seen.clean)  # held-out rows are as they should be


def test_without_training_the_trigger_turns_far_fewer() -> None:
    """The control. That an embedding moves at all turns some: 750 rows have 150 positives, so .1 is 15 of them."""
    honest, attacked = after(HONEST), after(ADDED)
    assert turned(honest, with_trigger(honest)) < turned(attacked, with_trigger(attacked)) - 0.1


def test_an_honest_training_does_not_prevent_that_another_rows_embedding_is_sent() -> None:
    """Why no check of the training suffices."""
    assert turned(after(HONEST), replayed(after(HONEST))) > 0.2


def test_the_comparison_finds_triggers_and_neither_honest_work_nor_a_rule() -> None:
    assert {
        attack: after(attack).active.share_unlike(after(attack).shown) > ALARM for attack in (HONEST, ADDED, CORNER, BY_A_RULE)
    } == {
        HONEST: False,
        ADDED: True,
        CORNER: True,
        BY_A_RULE: False,
    }


class Tampering(Deviating):
    """As the experiment's, made by the product's trainer."""

    def __init__(self, session: Session, data: TrainingData, start: RepeatStart, *, attack: Attack) -> None:
        super().__init__(session, data, start)
        self.attacks(attack, start.training, -(-len(start.training) // 64), seed=0)


def trained(attack: Attack, evaluate: Evaluate | None = None, **train: Any) -> tuple[Trained, Trained]:
    """What the product's trainer gives both parties, while the passive one does that."""
    settings = Train(bottom=(16, 8), active_bottom=(8,), top=(8,), epochs=6, batch_size=64, learning_rate=1e-2, **train)
    with mock.patch("vfl_node.training.split.trainer.PassiveHalf", partial(Tampering, attack=attack)):
        return Run(train=settings, evaluate=evaluate or Evaluate(test_fraction=0.25))(synthetic(1200, (1.0, 1.0)))


def said(of: Trained) -> list[str]:
    return [warning for warning in of.warnings if "unlike" in warning]


def test_the_active_partys_report_warns_of_it_and_the_passive_partys_does_not() -> None:
    active, passive = trained(CORNER)
    (warning,) = said(active)
    assert "lab" in warning
    assert not said(passive)


def test_nothing_is_said_of_an_honest_party() -> None:
    assert not said(trained(HONEST)[0])


@pytest.mark.parametrize("settings", [{"dropout": 0.2}, {"batch_norm": True}, {"evaluate": Evaluate(test_fraction=0.0)}])
def test_nothing_is_compared_where_rows_of_both_kinds_need_not_be_alike(settings: dict[str, Any]) -> None:
    assert not said(trained(HONEST, **settings)[0])


def test_the_page_shows_what_was_measured() -> None:
    stored = json.loads((RESULTS / "backdoor.json").read_text(encoding="utf-8"))
    found = {of: {name: attacks[name] for name in ATTACKS} for of, attacks in stored.items()}
    assert (RESULTS / "backdoor.md").read_text(encoding="utf-8") == page(found)


def test_the_page_has_a_row_for_each_kind_of_training() -> None:
    runs = [measured(NOWHERE, table="made_up", seed=seed, attack=name) for seed, name in ((0, "honest"), (1, "added"))]
    text = page({"made_up": {"honest": runs[:1], "added": runs[1:]}})
    assert text.count("| made_up | honest |") == text.count("| made_up | added |") == 3
    assert all(name in text for name in CHECKS)
