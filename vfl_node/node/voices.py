"""What is said and heard over links beside jobs, each kind of notice by its own voice; the link outlives what fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from vfl_node.errors import VflError
from vfl_node.node.faults import explain
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice

log = structlog.get_logger()

T = TypeVar("T")


class Voice(Protocol):
    """One kind of notice. Its methods may be called from several threads."""

    @property
    def kind(self) -> str:
        """Name of the field of ``Notice``."""

    def show(self, peer: str) -> Sequence[Notice]:
        """What a peer hears when its link comes up."""

    def hear(self, peer: str, said: Any) -> Notice | None:
        """What a peer is answered at once."""


class Voices:
    """All of them; ``voices``: each of another kind."""

    def __init__(self, voices: Sequence[Voice]) -> None:
        self._voices = {voice.kind: voice for voice in voices}

    def show(self, peer: str) -> list[Notice]:
        """What a peer hears when its link comes up."""
        shown = [_outlive(peer, partial(voice.show, peer)) for voice in self._voices.values()]
        return [notice for said in shown for notice in said or ()]

    def hear(self, peer: str, notice: Notice) -> Notice | None:
        """What a peer is answered at once; nothing if no voice is of this kind."""
        kind = notice.WhichOneof("body") or ""
        voice = self._voices.get(kind)
        return _outlive(peer, partial(voice.hear, peer, getattr(notice, kind))) if voice else None


def _outlive(peer: str, speak: Callable[[], T]) -> T | None:
    """What ``speak`` returns; None where it fails, such as on a full disk."""
    try:
        return speak()
    except Exception as cause:
        error = explain(cause)
        if error.code == VflError.default_code:
            log.exception("internal error", peer=peer)
        else:
            log.warning("what is said beside jobs was not heard or said", peer=peer, code=error.code, reason=error.message)
        return None
