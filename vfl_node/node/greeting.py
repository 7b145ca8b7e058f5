"""The first notice over a link: who is there, and which protocol version it speaks."""

from __future__ import annotations

import vfl_node
from vfl_node.errors import peer_text
from vfl_node.session.preflight import PROTOCOL_VERSION
from vfl_node.settings import Settings
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


def mistake_in(notice: Notice | None, peer: str) -> str:
    """What is wrong with the first notice of ``peer``, None if there was none; empty if nothing is."""
    if notice is None or notice.WhichOneof("body") != "hello":
        return "it did not greet"
    hello = notice.hello
    if hello.party != peer:
        return "it presents itself as another party"
    if hello.protocol_version != PROTOCOL_VERSION:
        version = peer_text(hello.software_version, 20)
        return f"it speaks protocol version {hello.protocol_version} (vfl-node {version}), this node {PROTOCOL_VERSION}"
    return ""
