"""Predictions of two parties without a coordinator: the asker gets the model's own score to some steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.crypto.lattice.variants import compiled
from tests.declared import undeclared
from tests.training.hidden.answering import Asked, errors_of, new_records, trained
from tests.training.hidden.test_paired import PARTIES
from tests.training.hidden.test_predictions import bare
from tests.training.shares_attempts import KilledError
from vfl_node.crypto.kernels import choice
from vfl_node.crypto.shares.paired.stock import MadeAhead
from vfl_node.errors import StateError, UsageError
from vfl_node.job import Job
from vfl_node.training.hidden.predictor import HiddenPredictor
from vfl_node.training.predictor import Predicted
from vfl_node.training.shares.prediction import answers
from vfl_node.training.shares.prediction.predictor import check_flood

pytestmark = compiled
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "classes": ({"classes": 3, "reveal": "none"}, {"classes": 3}),
    "numbers": ({"task": "regression"}, {"numbers": True}),
}


def told_besides(asked: Asked, to: str, exchanged: Any, rows: str = "known") -> set[tuple[str, str]]:
    """What parties learnt, and nobody has declared. It is no less than what there is of two parties alone."""
    job = asked.trained.model_dump() | {"train": None, "serve": None, "predict": {"model": "the-job", "to": to, "rows": rows}}
    learnt = HiddenPredictor().learnt(Job.model_validate(job), exchanged)
    assert all({"ciphertexts", "deviation"} < {entry.what for entry in entries} for entries in learnt.values())
    return undeclared(Job.model_validate(job), learnt, asked.trained)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("to", ["active", "passive"])
def test_the_asker_gets_the_models_scores(world: Any, attempt: Any, kind: str, to: str) -> None:
    train, people = KINDS[kind]
    asked = trained(world, attempt, 2, {**PARTIES, **train}, **people)
    step = 2.0 ** -answers.step_bits(asked.kept("clinic").form)
    request, positions = asked.all_rows(to)
    with bare():
        results = asked.talk(to, request)
    assert errors_of(results) == {}
    assert request.answered is not None
    found, expected = request.answered.reshape(len(positions), -1), asked.scores(positions)
    assert np.abs(found - expected).max() < 1.5 * step + 1e-4
    assert told_besides(asked, to, results[asked.name(to)]) == set()
    again, _ = asked.all_rows(to)
    with bare():
        assert errors_of(asked.talk(to, again)) == {}
    assert np.array_equal(again.answered, request.answered)  # the same values under the same masks


def test_new_records_are_predicted(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt, 2, {**PARTIES, "reveal": "none"})
    data = new_records(asked, 30)
    with bare():
        results = asked.once("active", data)
    assert errors_of(results) == {}
    found = results["clinic"]
    assert isinstance(found, Predicted)
    assert told_besides(asked, "active", found, rows="new") == set()
    expected = asked.scores(np.arange(30), data)[:, 0]
    assert np.abs(found.probabilities - expected[np.argsort(data["clinic"][1].rows)]).max() < 2 / 16


def test_a_machine_without_compiled_lattices_is_refused_at_once(
    world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = trained(world, attempt, 2, {**PARTIES, "reveal": "none"})
    monkeypatch.setattr(choice, "_native", lambda: None)
    with pytest.raises(StateError) as caught:
        HiddenPredictor().check(asked.models["clinic"])
    assert caught.value.code == "E_DEVICE"


def test_a_model_too_wide_for_the_noise_of_answers_is_refused() -> None:
    form = SimpleNamespace(widths=(2, 165), outputs=3)
    check_flood(form)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="too wide for predictions"):
        check_flood(SimpleNamespace(widths=(2, 1 << 20), outputs=1))  # type: ignore[arg-type]


def test_a_batch_that_breaks_off_leaves_nothing_made_ahead(world: Any, attempt: Any) -> None:
    asked, fill = trained(world, attempt, 2, {**PARTIES, "reveal": "none"}), MadeAhead.fill
    written: list[int] = []

    async def dies(self: MadeAhead) -> int:
        await fill(self)
        written.append(len(list(self._folder.iterdir())))
        raise KilledError

    for broken in (True, False):
        request, _ = asked.all_rows("active")
        with bare(), mock.patch.object(MadeAhead, "fill", dies if broken else fill):
            assert bool(errors_of(asked.talk("active", request))) == broken
        assert not any(list((asked.state.folder_of(name) / "ahead").iterdir()) for name in ("clinic", "lab"))
    assert all(written)
