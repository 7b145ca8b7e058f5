"""Audits of what is told beside the requests: nobody waits for them, and at the end they cover everything that was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.training.predicting import TO_ACTIVE, TO_PASSIVE, Request, Requests, Shown, Tally, World
from vfl_node.errors import PeerLost, PolicyError
from vfl_node.job import Predict
from vfl_node.privacy.equal_weights import Judged, audit_equal_weights
from vfl_node.settings.protection import Protection
from vfl_node.training.prediction.audit import GROWN, PredictionAudit
from vfl_node.training.prediction.side_work import SideWork
from vfl_node.training.split.missing.section import Missing
from vfl_node.transport.generated.vfl.v1 import prediction_pb2

pytestmark = pytest.mark.usefixtures("audits")

Make = Callable[..., Any]


class Seen:
    """All rows that audits were shown, by audit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[PredictionAudit, list[tuple[Tensor, NDArray[np.bool_]]]] = {}
        see = PredictionAudit.see

        def note(audit: PredictionAudit, rows: Tensor, synthetic: NDArray[np.bool_]) -> None:
            self.rows.setdefault(audit, []).append((rows.clone().float(), synthetic.copy()))
            see(audit, rows, synthetic)

        monkeypatch.setattr(PredictionAudit, "see", note)

    def whole(self, made: World, party: int, told: int) -> Judged:
        """One audit of everything that ``party`` told."""
        mine = [parts for parts in self.rows.values() if (parts[0][0].shape[1] == 1) == (party == 0)]  # probabilities are
        (parts,) = [parts for parts in mine if sum(len(rows) for rows, _ in parts) == told]
        rows, synthetic = torch.cat([rows for rows, _ in parts]), np.concatenate([kinds for _, kinds in parts])
        return audit_equal_weights(rows, synthetic, made.sides[party].draws.derive("audit of predictions"))


def one_by_one(made: World, predict: Predict) -> list[Request]:
    table = made.parties.clinic if predict is TO_ACTIVE else made.parties.lab
    return [made.known(table, [row]) for row in range(len(table))]


@pytest.fixture(name="made")
def made_fixture(world: Make) -> World:
    found: World = world(missing=Missing(features="sampling"), owned=(0.9, 0.9), epochs=1)
    return found


@pytest.mark.parametrize(("predict", "party"), [(TO_ACTIVE, 1), (TO_PASSIVE, 1), (TO_PASSIVE, 0)])
def test_the_last_figures_are_those_of_one_audit_of_everything(
    made: World, monkeypatch: pytest.MonkeyPatch, predict: Predict, party: int
) -> None:
    seen, tallies, shown = Seen(monkeypatch), (Tally(), Tally()), (Shown(), Shown())
    result = made.talk(predict, Requests(*one_by_one(made, predict)), tallies=tallies, shown=shown)[party]
    assert result.told == len(shown[party].rows())
    whole = seen.whole(made, party, result.told)
    # Of probabilities that are nearly equally near, the processor's instructions decide which is the 16th.
    bounds = {name: 5e-3 if name == "distance_ratio" else 1e-4 for name in whole.attacks}
    assert result.attacks == {name: pytest.approx(figure, abs=bounds[name]) for name, figure in whole.attacks.items()}
    assert tallies[party].kept == result
    assert made.progress[party].attacks[-1] == result.attacks


@pytest.mark.parametrize("predict", [TO_ACTIVE, TO_PASSIVE])
def test_the_count_of_a_service_that_broke_off_has_the_figures_of_all_that_was_sent(
    made: World, monkeypatch: pytest.MonkeyPatch, predict: Predict
) -> None:
    seen, tallies, asks = Seen(monkeypatch), (Tally(), Tally()), list[Any]()

    def lose(message: Any) -> None:
        if isinstance(message, prediction_pb2.PredictionAsk):
            asks.append(message)
            if len(asks) == 12:
                raise PeerLost("broken off")

    results = made.talk(predict, Requests(*one_by_one(made, predict)), tallies=tallies, tamper=lose)
    assert any(isinstance(result, PeerLost) for result in results)
    kept = tallies[1].kept
    assert kept is not None
    assert kept.attacks == pytest.approx(seen.whole(made, 1, kept.told).attacks, abs=1e-4)


def test_no_request_waits_for_an_audit_where_nothing_is_limited(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit does not end before the last request is answered: were one to wait for it, none would ever be."""
    answered, catch_up = threading.Event(), PredictionAudit.catch_up

    def wait(audit: PredictionAudit) -> None:
        assert answered.wait(240)
        catch_up(audit)

    monkeypatch.setattr(PredictionAudit, "catch_up", wait)
    requests = one_by_one(made, TO_ACTIVE)
    requests[-1].answer = lambda values: (Request.answer(requests[-1], values), answered.set())  # type: ignore[method-assign, func-returns-value, assignment]
    result = made.talk(TO_ACTIVE, Requests(*requests))[1]
    assert all(request.answered is not None for request in requests)
    assert result.attacks["near_duplicate"] > 0.9


def test_where_the_owner_has_a_limit_all_rows_are_judged_before_they_are_told(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for less than a hundredth of them. The limit is one that nothing passes."""
    audits: list[PredictionAudit] = []
    check = PredictionAudit.check

    def note(audit: PredictionAudit, expected: PredictionAudit | None = None) -> None:
        audits.append(audit)
        check(audit, expected)

    monkeypatch.setattr(PredictionAudit, "check", note)

    class Strict(Shown):
        told: list[tuple[int, int]] = []

        def add(self, rows: NDArray[np.int64]) -> None:
            super().add(rows)
            self.told.append((len(self.kept), audits[-1]._attacked))

    shown = (Shown(), Strict())
    made.ask(TO_ACTIVE, *one_by_one(made, TO_ACTIVE), shown=shown, protection=Protection(max_attack_auc=1.0))
    assert len(shown[1].told) > 3
    assert all(rows < GROWN * judged or rows == judged for rows, judged in shown[1].told)


def test_a_limit_is_kept_before_anything_leaves_though_earlier_figures_were_beside(made: World) -> None:
    """An owner sets a limit after a service without one: what that has told counts, and nothing more leaves."""
    shown = (Shown(), Shown())
    some = one_by_one(made, TO_ACTIVE)[:2]
    made.ask(TO_ACTIVE, *some, shown=shown)
    told = shown[1].rows()
    rest = made.known(made.parties.clinic, range(len(made.parties.clinic)))
    results = made.talk(TO_ACTIVE, Requests(rest), shown=shown, protection=Protection(max_attack_auc=0.6))
    assert isinstance(results[1], PolicyError)
    assert results[1].code == "E_LEAK"
    assert made.bodies("Embedding") == []
    assert (shown[1].rows() == told).all()


# The thread.


def test_work_beside_is_never_done_twice_at_once_and_what_is_left_is_done_at_the_end() -> None:
    going, most, done = threading.Semaphore(0), [0, 0], list[str]()

    def work() -> None:
        most[0] += 1
        most[1] = max(most)
        done.append(threading.current_thread().name)
        if len(done) == 1:
            assert going.acquire(timeout=240)
        most[0] -= 1

    beside = SideWork(work)
    for _ in range(5):
        beside.ask()  # returns at once, though the work has not ended
    going.release()
    beside.finish()
    assert most == [0, 1]
    assert done[0] == "audit"
    assert done[-1] == threading.current_thread().name
    assert len(done) <= 3  # five wishes are two pieces of work at most, and one at the end


def test_without_a_wish_there_is_no_thread_but_the_work_at_the_end() -> None:
    done: list[str] = []
    SideWork(lambda: done.append(threading.current_thread().name)).finish()
    assert done == [threading.current_thread().name]


def test_a_defect_of_the_work_is_raised_where_it_is_asked_for() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    beside = SideWork(fail)
    beside.ask()
    assert beside._thread is not None
    beside._thread.join(240)
    for use in (beside.ask, beside.finish):
        with pytest.raises(ZeroDivisionError):
            use()
