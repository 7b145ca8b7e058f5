"""Calls over gRPC that tests make by hand."""

from __future__ import annotations

import threading
from typing import Any

import grpc

from vfl_node.transport.channel import run
from vfl_node.transport.credentials import Credentials
from vfl_node.transport.generated.vfl.v1.session_pb2 import Frame
from vfl_node.transport.streams import StreamPipe

METHOD = "/vfl.v1.Node/Converse"


def get(pipe: StreamPipe) -> Frame:
    return run(pipe.get())


def put(pipe: StreamPipe, frame: Frame) -> None:
    run(pipe.put(frame))


def raw_call(node: Any, credentials: Credentials, data: bytes, **options: Any) -> Any:
    """A caller that keeps to none of our limits."""
    channel = grpc.secure_channel(
        node.address,
        grpc.ssl_channel_credentials(credentials.authority, credentials.key, credentials.certificate),
        [("grpc.ssl_target_name_override", "clinic.trial.vfl"), ("grpc.max_send_message_length", -1)],
        **options,
    )
    hold = threading.Event()

    def requests() -> Any:
        yield data
        hold.wait(10)

    call = channel.stream_stream(METHOD)(requests(), metadata=[("vfl-job", "job-9"), ("vfl-party", "lab")], timeout=240)
    return call, hold, channel
