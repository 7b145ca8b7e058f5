"""What attacks find among rows that all meet the same weights, before these are sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy import equal_weights
from vfl_node.privacy.attacks import ATTACKS, neighbours
from vfl_node.privacy.attacks.attack import ScoringAttack
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.attacks.whole import follow
from vfl_node.privacy.audit import Audit
from vfl_node.privacy.equal_weights import EqualWeights, audit_equal_weights

SIZE = 3000
SECRET = np.arange(SIZE) >= SIZE // 2


@pytest.fixture
def embedded() -> Any:
    """Embeddings of 3,000 rows, of which the second half is made from others by ``made``, or drawn as they are."""
    drawn = Randomness(b"e" * 32)
    x = torch.from_numpy(drawn.derive("rows").normal((SIZE, 6)))
    bottom = MlpBottom(InputSchema(6), (32, 24))
    initialise(bottom, drawn.derive("weights"))

    def embed(made: str) -> Tensor:
        rows, half = x.clone(), SIZE // 2
        sources = torch.from_numpy(drawn.derive("sources").choices(half, half))
        if made == "copies":
            rows[half:] = rows[sources]
        elif made == "between":
            near = torch.cdist(rows[sources], rows[:half]).argsort(dim=1)[:, 1]
            rows[half:] = torch.lerp(rows[sources], rows[near], 0.5)
        with torch.no_grad():
            return bottom(ModelInput.from_tensors(rows))

    return embed


@pytest.mark.parametrize(
    ("made", "attack", "least"),
    [
        ("copies", "same_step_twin", 0.65),
        ("between", "collinear", 0.75),
        ("between", "near_duplicate", 0.7),
        ("between", "distance_ratio", 0.7),
    ],
)
def test_rows_made_from_others_are_found_and_fresh_ones_are_not(embedded: Any, made: str, attack: str, least: float) -> None:
    assert audit_equal_weights(embedded(made), SECRET, Randomness(b"a" * 32)).attacks[attack] > least
    fresh = audit_equal_weights(embedded("fresh"), SECRET, Randomness(b"a" * 32))
    assert fresh.attacks[attack] == pytest.approx(0.5, abs=0.05)
    assert fresh.judged == {
        "collinear": 1024,
        "distance_ratio": 1024,
        "near_duplicate": SIZE,
        "same_step_twin": SIZE,
        "spectral": 1024,
    }


def test_it_finds_what_the_plain_attacks_on_all_rows_find(embedded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equal_weights, "SAMPLE", SIZE)
    rows = embedded("copies")
    found = audit_equal_weights(rows, SECRET, Randomness(b"a" * 32)).attacks
    plain = {name: follow(ATTACKS[name], [Batch(0, np.arange(SIZE), rows)], SECRET).score() for name in found}
    assert found["same_step_twin"] == plain["same_step_twin"]
    assert found["near_duplicate"] == pytest.approx(plain["near_duplicate"], abs=0.02)
    assert found["distance_ratio"] == pytest.approx(plain["distance_ratio"], abs=1e-4)
    assert found["collinear"] == pytest.approx(plain["collinear"], abs=1e-4)
    assert found["spectral"] == pytest.approx(plain["spectral"], abs=1e-4)


class Length(ScoringAttack):
    """The first number of each row, as an attack that judges each row by itself."""

    def see(self, batch: Batch) -> None:
        followed = self._scope.alone(batch)
        assert sorted(followed.positions) == sorted(self._scope.followed.positions)
        self._tally.add(followed.positions, followed.rows[:, 0].double().numpy())


def test_an_attack_that_judges_each_row_by_itself_sees_the_rows_that_are_followed() -> None:
    rows = torch.where(torch.from_numpy(SECRET), -1.0, 0.0)[:, None] + torch.linspace(0, 0.5, SIZE)[:, None]
    judged = audit_equal_weights(rows, SECRET, Randomness(b"j" * 32), {"length": Length})
    assert judged.attacks == {"length": 0.0}
    assert 0 < judged.judged["length"] < SIZE


def test_rows_of_one_kind_leave_nothing_to_tell_apart(embedded: Any) -> None:
    for kind in (True, False):
        assert audit_equal_weights(embedded("copies"), np.full(SIZE, kind), Randomness(b"a" * 32)).attacks == {}


def test_the_limit_holds_for_them_too(embedded: Any) -> None:
    audited = Audit("lab", SECRET, np.arange(SIZE), Randomness(b"a" * 32), limit=0.6)
    audited.judge(np.arange(SIZE), embedded("fresh"))
    with pytest.raises(PolicyError, match=r"\(the strongest on the rows held out, before they are sent\)") as caught:
        audited.judge(np.arange(SIZE), embedded("copies"))
    assert (caught.value.code, caught.value.peer_code) == ("E_LEAK", "E_STOPPED")
    assert audited.held_out is not None
    assert (audited.held_out.attacks["same_step_twin"] or 0) > 0.65


@pytest.mark.parametrize("made", ["copies", "between"])
def test_rows_that_come_one_after_the_other_give_the_figures_of_all_at_once(embedded: Any, made: str) -> None:
    rows, order = embedded(made), Randomness(b"o" * 32).permutation(SIZE)
    rows, secret = rows[torch.from_numpy(order)], SECRET[order]
    audit = EqualWeights(Randomness(b"a" * 32))
    for number, part in enumerate(np.array_split(np.arange(SIZE), 23)):
        audit.add(rows[torch.from_numpy(part)], secret[part])
        if number % 3 == 0:  # some audits on the way, and some rows that come between two of them
            audit.judge()
    whole, found = audit_equal_weights(rows, secret, Randomness(b"a" * 32)), audit.judge()
    assert found.judged == whole.judged
    assert found.attacks == pytest.approx(whole.attacks, abs=1e-4)


@pytest.mark.parametrize("first", [0.0, 1e-30])
def test_first_rows_that_are_all_but_nothing_spoil_no_later_figure(embedded: Any, first: float) -> None:
    """Their size says nothing of that of the others, whose squares must not overflow beside it."""
    rows, order = embedded("between"), Randomness(b"o" * 32).permutation(SIZE)
    rows, secret = rows[torch.from_numpy(order)], SECRET[order]
    rows[:100] *= first
    audit = EqualWeights(Randomness(b"a" * 32))
    for part in np.array_split(np.arange(SIZE), 30):
        audit.add(rows[torch.from_numpy(part)], secret[part])
        audit.judge()
    whole = audit_equal_weights(rows, secret, Randomness(b"a" * 32))
    assert audit.judge().attacks == pytest.approx(whole.attacks, abs=5e-3)  # of equal rows any may be the nearest


def test_what_was_compared_once_is_not_compared_again(embedded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    search = neighbours._search

    def count(rows: Tensor, which: Any, start: int, scale: float) -> Any:
        compared.append(len(which) * (len(rows) - start))
        return search(rows, which, start, scale)

    monkeypatch.setattr(neighbours, "_search", count)
    rows, order = embedded("between"), Randomness(b"o" * 32).permutation(SIZE)
    rows, secret = rows[torch.from_numpy(order)], SECRET[order]
    audit, parts = EqualWeights(Randomness(b"a" * 32)), np.array_split(np.arange(SIZE), 30)
    for part in parts:
        audit.add(rows[torch.from_numpy(part)], secret[part])
        audit.judge()
    again = sum(equal_weights.SAMPLE * len(part) * place for place, part in enumerate(parts, start=1))
    assert sum(compared[-2:]) < 3 * equal_weights.SAMPLE * len(parts[-1])
    assert sum(compared) < again / 4


def test_the_nearest_rows_that_are_kept_are_those_that_are_sought_at_once(embedded: Any) -> None:
    rows, kept = embedded("between"), neighbours.NearRows()
    for size, which in ((5, [0, 3]), (300, [0, 3, 7, 250]), (310, [3, 250, 309]), (SIZE, [1, 3, 309, 2999])):
        found = kept.look(rows[:size], np.array(which))
        wanted = torch.cdist(rows[which], rows[:size])
        wanted[torch.arange(len(which)), torch.tensor(which)] = torch.inf
        nearest = wanted.topk(min(16, size - 1), largest=False).indices
        assert (found.sort(dim=1).values == nearest.sort(dim=1).values).all()
