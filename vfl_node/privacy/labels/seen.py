"""What the label meter has seen of an epoch, step by step, and the same in the order of the rows that are followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vfl_node.privacy.peers import TOGETHER

WINDOW = 128
"""Judged rows of which a leading direction is computed, at least: those of one step, or of several."""


class SeenEpoch:
    """Places of rows among those followed, and what each peer got and sent.

    Args:
        peers: names of the passive parties.
    """

    def __init__(self, peers: Sequence[str]) -> None:
        self._places: list[Tensor] = []
        self._gradients: dict[str, list[Tensor]] = {peer: [] for peer in peers}
        self._embeddings: dict[str, list[Tensor]] = {peer: [] for peer in peers}

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, places: Tensor, gradients: Mapping[str, Tensor], embeddings: Mapping[str, Tensor]) -> None:
        """Take in a step: places int64[b], and of each peer float32[b, d] of its rows' own losses, and of its embeddings."""
        self._places.append(places)
        for peer, rows in gradients.items():
            self._gradients[peer].append(rows)
            self._embeddings[peer].append(embeddings[peer])

    def sort(self, followed: int) -> Mapping[str, tuple[Tensor, Tensor]]:
        """Attacker → gradients and embeddings of all rows that are followed, float32[followed, d]; zeros of rows not seen."""
        places = torch.cat(self._places)
        shown = {
            peer: tuple(_sort(places, torch.cat(rows[peer]), followed) for rows in (self._gradients, self._embeddings))
            for peer in self._gradients
        }
        if len(shown) > 1:
            shown[TOGETHER] = tuple(torch.cat(parts, dim=1) for parts in zip(*shown.values(), strict=True))
        return {attacker: (gradients, embeddings) for attacker, (gradients, embeddings) in shown.items()}

    def windows(self) -> list[Tensor]:
        """Places of the rows of consecutive steps, at least :data:`WINDOW` of them together; the last may join those before."""
        windows: list[list[Tensor]] = [[]]
        for step in self._places:
            if sum(map(len, windows[-1])) >= WINDOW:
                windows.append([])
            windows[-1].append(step)
        if len(windows) > 1 and sum(map(len, windows[-1])) < WINDOW:
            windows[-2:] = [windows[-2] + windows[-1]]
        return [torch.cat(steps) for steps in windows]


def _sort(places: Tensor, rows: Tensor, followed: int) -> Tensor:
    ordered = torch.zeros(followed, rows.shape[1])
    ordered[places] = rows.float()
    return ordered
