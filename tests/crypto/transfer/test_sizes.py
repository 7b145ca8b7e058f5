"""Sizes that others count with."""

from __future__ import annotations

import pytest

from vfl_node.crypto.transfer.sizes import message_bytes, row_bytes


def test_a_message_has_16_bytes_a_transfer_and_a_salt() -> None:
    assert [row_bytes(count) for count in (0, 1, 8, 9)] == [0, 1, 1, 2]
    assert [message_bytes(count) for count in (0, 1, 8, 9, 1 << 20)] == [16, 144, 144, 272, (16 << 20) + 16]


def test_there_are_no_fewer_than_no_transfers() -> None:
    with pytest.raises(ValueError, match="-1 transfers"):
        message_bytes(-1)
