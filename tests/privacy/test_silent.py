"""Numbers that no attack can use: huge ones, infinities, NaN. An attack then says nothing, and the job goes on."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.attachment import TrainingStep
from vfl_node.privacy.audit import Audit
from vfl_node.privacy.equal_weights import audit_equal_weights
from vfl_node.privacy.labels.meter import LabelMeter
from vfl_node.privacy.labels.truth import truth_of
from vfl_node.privacy.outgoing import Sent
from vfl_node.privacy.peers import AuditOfPeers
from vfl_node.privacy.silent import attempt, silent
from vfl_node.transport.codec import MOST

ROWS, WIDTH = 200, 20
SYNTHETIC = np.arange(ROWS) % 3 == 0
SIZES = [1e-38, MOST, 1e20, 1e30, 3e38, math.inf, math.nan]


def huge(size: float, name: str) -> Tensor:
    """Rows of which every third number is of that size; one row is all of it."""
    rows = torch.from_numpy(Randomness(bytes(32)).derive(name).normal((ROWS, WIDTH))).float()
    rows[:, ::3] *= size
    rows[0] = size
    return rows


@pytest.mark.parametrize("size", SIZES)
def test_no_attack_on_rows_ends_a_job(size: float) -> None:
    positions = np.arange(ROWS)

    def audit() -> Audit:
        return Audit("clinic", SYNTHETIC, positions, Randomness(bytes(32)), limit=None)

    peers = AuditOfPeers(["lab", "shop"], audit)
    for epoch in range(3):
        for batch in np.array_split(positions, 3):
            sent = [huge(size, f"{epoch}/{peer}")[batch] for peer in ("lab", "shop")]
            for peer, rows in zip(("lab", "shop"), sent, strict=True):
                peers.peer_audit(peer).see(Sent(batch, rows, rows))
            peers.step_done(TrainingStep(batch, sent, sent))
        found = peers.epoch_done()
        fresh = AuditOfPeers(["lab", "shop"], audit)
        fresh.restore(peers.tensors())
        assert fresh.averages == peers.averages
    assert len(found) == 7
    assert all(value is None or 0 <= value <= 1 for value in (*found.values(), *peers.averages.values()))
    if size <= MOST:
        assert None not in found.values()
    judged = audit_equal_weights(huge(size, "held out"), SYNTHETIC, Randomness(bytes(32)))
    assert all(value is None or 0 <= value <= 1 for value in judged.attacks.values())


@pytest.mark.parametrize("classes", [2, 3, 0])
@pytest.mark.parametrize("size", SIZES)
def test_no_attack_on_labels_ends_a_job(size: float, classes: int) -> None:
    positions = np.arange(ROWS)
    truth = truth_of(SYNTHETIC.astype(float), positions, positions.astype(np.uint64), classes=classes)
    meter = LabelMeter(truth, ["lab", "shop"], party="clinic")
    for epoch in range(2):
        for batch in np.array_split(positions, 3):
            rows = huge(size, f"{epoch}")[batch]
            meter.see(batch, [rows, rows], [rows, rows.flip(0)])
        meter.epoch_done()
        found = meter.judge()
    assert set(found) == set(truth.attacks.names)
    assert all(value is None or 0.5 <= value <= 1 for value in found.values())
    if size <= MOST:
        assert any(value is not None for value in found.values())


def test_a_silent_attack_has_a_reason() -> None:
    epochs = [{"spectral": 0.5, "longitudinal": None}, {"spectral": None, "longitudinal": 0.6}]
    assert silent(epochs[:1], {"longitudinal": 2}) == ()
    (said,) = silent(epochs, {"longitudinal": 2})
    assert "spectral in 1 of 2 epochs" in said
    assert "longitudinal" not in said
    assert silent([{"near_duplicate": None}], {}) != ()
    assert silent([], {}) == ()


@pytest.mark.parametrize(
    "attack",
    [
        lambda: torch.linalg.eigh(torch.full((3, 3), math.nan)),
        lambda: np.linalg.svd(np.full((2, 2), math.nan)),
        lambda: math.exp(1e6),
    ],
)
def test_only_numbers_of_no_use_are_passed_over(attack: Callable[[], object]) -> None:
    assert attempt(attack) is None
    with pytest.raises(KeyError):
        attempt(lambda: {}["a defect"])
