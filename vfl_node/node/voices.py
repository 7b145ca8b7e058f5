"""What is said and heard over links beside jobs, each kind of notice by its own voice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice


class Voice(Protocol):
    """One kind of notice. Its methods may be called from several threads, and raise nothing."""

    @property
    def kind(self) -> str:
        """Name of the field of ``Notice``."""

    def show(self, peer: str) -> Notice | None:
        """What a peer hears when its link comes up."""

    def show_changed(self) -> Notice | None:
        """What all peers hear, if it has changed by itself since."""

    def hear(self, peer: str, said: Any) -> Notice | None:
        """What a peer is answered at once."""


class Voices:
    """All of them; ``voices``: each of another kind."""

    def __init__(self, voices: Sequence[Voice]) -> None:
        self._voices = {voice.kind: voice for voice in voices}

    def show(self, peer: str) -> list[Notice]:
        """What a peer hears when its link comes up."""
        return [said for voice in self._voices.values() if (said := voice.show(peer))]

    def show_changed(self) -> list[Notice]:
        """What all peers hear by now."""
        return [said for voice in self._voices.values() if (said := voice.show_changed())]

    def hear(self, peer: str, notice: Notice) -> Notice | None:
        """What a peer is answered at once; nothing if no voice is of this kind."""
        kind = notice.WhichOneof("body") or ""
        return self._voices[kind].hear(peer, getattr(notice, kind)) if kind in self._voices else None
