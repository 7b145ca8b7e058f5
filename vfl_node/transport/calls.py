"""What both ends of a call over gRPC agree on: its methods, its metadata, and how long a line may be silent.

Both ends use the synchronous API with a thread per stream: with messages of megabytes it was
faster than asyncio in every measured case. Every dialled stream has its own connection. So
a restarted peer is reached at once, a renewed certificate is used by the next call, and
a full window of one job never delays another job.
"""

from __future__ import annotations

import re
from typing import Any

from vfl_node.errors import UsageError
from vfl_node.transport.frames import PIECE_BYTES

SERVICE = "vfl.v1.Node"

METADATA_BYTES = 4 << 10
"""Largest size of the headers of a call; this product's have some hundred bytes."""

LOST_S = 20
"""A connection is lost if the other machine acknowledges nothing for this time; an idle one is tested every 10 s."""

FROZEN_S = 600
"""A conversation is lost if the other process answers no ping for this time.

On a slow line the answer waits behind the data. With 5 s, a line of 10 kB/s (50 ms, queue of
3 s) broke off every conversation of more than 64 KiB. LOST_S depends on progress and did not. A
link carries few bytes and needs no such limit: it notices a frozen process after LOST_S.
"""

OPTIONS = (
    ("grpc.max_receive_message_length", PIECE_BYTES),
    ("grpc.max_send_message_length", PIECE_BYTES),
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
    ("grpc.compression_enabled_algorithms_bitset", 1),  # slower than the wire, and allows decompression bombs
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", LOST_S * 1000),  # gRPC uses it as TCP_USER_TIMEOUT: how long the peer's machine may be silent
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
PING_TIMEOUT = "grpc.http2.ping_timeout_ms"  # how long the peer's process may be silent while its machine answers

JOB, PARTY, INSTANCE, CODE = "vfl-job", "vfl-party", "vfl-instance", "vfl-code"
"""Names of the metadata: the job of a conversation, the sender's name and process, the code of a refusal."""

ERROR_CODE = re.compile(r"E_[A-Z0-9_]{1,38}")
"""A code that a peer may send."""

INSTANCE_CHARACTERS = 64
"""Longest id of a process; what is longer is cut."""


def metadata(pairs: Any) -> dict[str, str]:
    """The textual metadata of a call; empty if there is none."""
    return {key: value for key, value in pairs or () if isinstance(value, str)}


def plaintext_error(address: str) -> UsageError:
    """The error for plaintext beyond loopback."""
    return UsageError(f"plaintext is for loopback only, and {address} is not", code="E_PLAINTEXT", hint="set tls")
