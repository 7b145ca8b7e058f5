"""The first notice over a link: who is there, and which protocol version it speaks."""

from __future__ import annotations

import vfl_node
from vfl_node.errors import ProtocolError, VflError
from vfl_node.session.preflight import PROTOCOL_VERSION, other_version
from vfl_node.settings.node import Settings
from vfl_node.transport.generated.vfl.v1.session_pb2 import Hello, Notice


def greeting(settings: Settings) -> Notice:
    """What this node says first."""
    hello = Hello(
        party=settings.name,
        role=settings.role,
        protocol_version=PROTOCOL_VERSION,
        software_version=vfl_node.__version__,
    )
    return Notice(hello=hello)


def mistake_in(notice: Notice | None, peer: str) -> VflError | None:
    """What is wrong with the first notice of ``peer``, None if there was none."""
    if notice is None or notice.WhichOneof("body") != "hello":
        return ProtocolError("it did not greet")
    hello = notice.hello
    if hello.party != peer:
        return ProtocolError("it presents itself as another party")
    if hello.protocol_version != PROTOCOL_VERSION:
        return other_version(peer, hello.protocol_version, hello.software_version)
    return None
