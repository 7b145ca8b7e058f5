"""Embeddings of rows trained on beside those held out: alike, and with a trigger in some."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from vfl_node.privacy.attachment import TrainingStep
from vfl_node.privacy.integrity import ALARM, LEAST, NEWEST, USUAL, Compared, share_unlike, warn


def drawn(rows: int, width: int = 6, seed: int = 0) -> Tensor:
    """Embeddings whose coordinates have different sizes, the last of them none."""
    numbers = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
    return numbers * torch.tensor([1.0, 5.0, 0.5, 1.0, 1.0, 0.0])[:width]


def triggered(embeddings: Tensor, share: float, coordinate: int, size: float) -> Tensor:
    """With ``size`` added to one coordinate of the first ``share`` of the rows."""
    changed = embeddings.clone()
    changed[: round(share * len(changed)), coordinate] += size
    return changed


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_one_kind_are_alike(seed: int) -> None:
    """About 2 % are unlike, with a standard error of .007 (of the quantile among 1,000 rows, and of 1,000 others) at most."""
    rows = drawn(2000, seed=seed)
    found = share_unlike(rows[:1000], rows[1000:])
    assert found < ALARM
    assert not warn({"lab": found})


@pytest.mark.parametrize(("coordinate", "size"), [(0, 8.0), (1, 40.0), (2, 4.0), (5, 4.0)])
def test_a_trigger_in_any_coordinate_is_found_also_where_held_out_rows_do_not_differ(coordinate: int, size: float) -> None:
    rows = drawn(2000)
    found = share_unlike(triggered(rows[:1000], 0.15, coordinate, size), rows[1000:])
    assert 0.15 <= found < 0.2
    (said,) = warn({"lab": found, "insurer": USUAL})
    assert "lab" in said
    assert "insurer" not in said


def test_a_trigger_in_held_out_rows_as_well_is_not_found() -> None:
    """The control of the claim that a party which knows of the comparison passes it."""
    rows = drawn(2000)
    trained, held_out = (triggered(of, 0.15, 0, 8.0) for of in (rows[:1000], rows[1000:]))
    assert share_unlike(trained, held_out) < ALARM


def test_twins_that_the_last_steps_moved_a_little_are_alike_and_moved_far_are_not() -> None:
    kinds = drawn(5)[:, :5]
    rows = kinds[torch.arange(1000) % 5]
    assert share_unlike(rows + 0.1 * kinds.std(dim=0), rows) == 0.0
    assert share_unlike(rows + 3.0 * kinds.std(dim=0), rows) > 0.5


def test_a_party_that_says_the_same_of_every_row_is_not_judged() -> None:
    assert share_unlike(torch.ones(300, 4), torch.zeros(300, 4)) == 0.0


def test_no_number_that_a_peer_may_send_ends_the_job() -> None:
    assert share_unlike(drawn(300), drawn(300, seed=1) * 1e15) == 0.0
    assert share_unlike(drawn(300) * 1e15, drawn(300, seed=1)) == 1.0


def see(kept: Compared, embeddings: list[Tensor]) -> None:
    """One step of training."""
    kept.step_done(TrainingStep(np.arange(len(embeddings[0])), embeddings, embeddings))


def test_the_newest_rows_of_each_peer_are_compared_and_no_more_than_an_epoch() -> None:
    held_out = [drawn(LEAST, seed=1), drawn(LEAST, seed=2)]
    kept = Compared(["lab", "insurer"], 200)
    for step in range(20):  # two epochs of 10 steps: in the first both parties send something else
        see(kept, [drawn(20, seed=10 + step) + (1e3 if step < 10 else 0), drawn(20, seed=50 + step)])
    found = kept.share_unlike(held_out)
    assert found is not None
    assert list(found) == ["lab", "insurer"]
    assert max(found.values()) < 0.1  # about .02, with a standard error of .014
    resumed = Compared(["lab", "insurer"], 200)
    resumed.restore(kept.tensors())
    assert resumed.share_unlike(held_out) == found
    see(kept, [drawn(20) + 1e3, drawn(20)])  # a tenth of the epoch
    assert kept.share_unlike(held_out)["lab"] == pytest.approx(found["lab"] + 0.1, abs=0.02)  # type: ignore[index]


def test_memory_has_a_bound() -> None:
    kept = Compared(["lab"], 10 * NEWEST)
    for step in range(12):
        see(kept, [drawn(300, seed=step)])
    assert kept.tensors()["newest"].shape == (1, NEWEST, 6)


def test_too_few_rows_are_not_compared() -> None:
    kept = Compared(["lab"], 500)
    assert kept.share_unlike([drawn(LEAST)]) is None
    assert kept.tensors() == {}
    see(kept, [drawn(500)])
    assert kept.share_unlike([drawn(LEAST - 1)]) is None
    assert kept.share_unlike([drawn(LEAST)]) is not None
    assert warn(None) == ()
