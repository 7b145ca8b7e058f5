"""Which tensors a job has decrypted, and what a plaintext of theirs holds."""

from __future__ import annotations

from typing import Any

from vfl_node.crypto.paillier import packing
from vfl_node.training.glm.masked_tensors import MaskedTensor, tensors_of


def test_what_each_role_may_have_decrypted(logistic: Any) -> None:
    both = {role: tensors_of(logistic(), role) for role in ("active", "passive")}
    assert both == {"active": (), "passive": ("gradient",)}
    assert tensors_of(logistic(flow="coordinator-open-scores"), "active") == ()
    assert tensors_of(logistic(flow="coordinator-open-scores", tolerance=0.1), "passive") == ("gradient",)
    blind = {"flow": "coordinator", "loss": "taylor"}
    assert tensors_of(logistic(**blind), "active") == ("gradient",)
    assert tensors_of(logistic(**blind, tolerance=0.1), "active") == ("gradient", "loss")
    assert tensors_of(logistic(**blind, tolerance=0.1), "passive") == ("gradient",)
    assert tensors_of(logistic(**blind, tolerance=0.1, labels="passive"), "active") == ("gradient",)
    assert tensors_of(logistic(**blind, tolerance=0.1, labels="passive"), "passive") == ("gradient", "loss")


def test_a_plaintext_holds_nothing_beyond_its_slots() -> None:
    """Else the room that is left would open values that nobody counts."""
    tensor = MaskedTensor("gradient", units=4, slots=2, slot_bits=80)  # of two columns and three models: slots 2, 2, 1, 1
    assert tensor.layout(3) == [2, 2, 1, 1]
    assert tensor.values(3) == 6
    assert tensor.returned_bits == 15
    plaintexts = [packing.join([1, 2, 3, 4, 5], 80), 6]
    assert tensor.unpack(plaintexts, 3, 3, "additive") == [1, 2, 3, 4, 5, 6]
    for place, bit in [(0, 480), (0, 400), (1, 160), (1, 80)]:
        more = [value + (1 << bit) * (place == of) for of, value in enumerate(plaintexts)]
        assert tensor.unpack(more, 3, 3, "additive") is None
