"""The passive party judges the embeddings of held-out rows before it sends any of them."""

from __future__ import annotations

from typing import Any

from vfl_node.errors import PolicyError
from vfl_node.job import Evaluate
from vfl_node.settings.protection import Protection
from vfl_node.training.split.config import Train
from vfl_node.transport.generated.vfl.v1 import training_pb2

TRAIN = Train(bottom=(16, 8), active_bottom=(8,), top=(8,), epochs=1, batch_size=64)


def sent(both: Any) -> int:
    return sum(isinstance(message, training_pb2.Embedding) for message in both.transcript)


def limited(run: Any, limit: float | None) -> Any:
    protections = Protection(), Protection(max_attack_auc=limit)
    return run(train=TRAIN, evaluate=Evaluate(test_fraction=0.5), protections=protections)


def test_copies_among_them_stop_it_with_a_limit_and_are_shown_without_one(run: Any, synthetic: Any) -> None:
    parties = synthetic(600, (0.8, 0.5))
    free, stopped = limited(run, None), limited(run, 0.65)
    clinic, lab = free(parties)
    assert (lab.section.held_out.attacks["same_step_twin"] or 0) > 0.65
    assert lab.section.held_out.judged["same_step_twin"] == lab.rows[1]
    assert clinic.section.held_out is None
    assert all(
        (value or 0.5) < 0.62 for epoch in lab.epochs for name, value in epoch.attacks.items() if name == "same_step_twin"
    )
    _, error = stopped.raw(parties)
    assert isinstance(error, PolicyError)
    assert error.code == "E_LEAK"
    steps = -(-lab.rows[0] // 64)
    assert sent(free) == steps + -(-lab.rows[1] // 64)
    assert "before they are sent" in str(error)
    assert sent(stopped) == steps
