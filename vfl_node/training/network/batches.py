"""Whether the tensors of a batch fit into one message."""

from __future__ import annotations

from vfl_node.errors import UsageError
from vfl_node.transport.bounds import MAX_FRAME_BYTES

FRAME_HEAD_BYTES = 1 << 10
"""More than a frame has beside the values of its tensors."""


def check_batch_fits(rows: int, row_bytes: int, *, of: str, setting: str = "train.batch_size", narrower: str) -> None:
    """Refuse, before anything is trained, batches of ``rows`` rows that one message cannot hold.

    Args:
        rows: of a batch.
        row_bytes: that each has in the message.
        of: what makes a row as large, for errors: "at a cut layer of width 128".
        setting: the job's key that sets ``rows``, for errors.
        narrower: what else makes a message smaller, for errors.

    Raises:
        UsageError: they are too large (``E_SIZE``).
    """
    most = (MAX_FRAME_BYTES - FRAME_HEAD_BYTES) // row_bytes
    if rows > most:
        raise UsageError(
            f"a batch of {rows} rows {of} has {row_bytes * rows} bytes, more than one message "
            f"may have ({MAX_FRAME_BYTES}); at most {most} rows fit",
            code="E_SIZE",
            hint=f"set {setting} to at most {most}, or {narrower}",
            for_peer="the job's batches are too large for one message",
        )
