"""``diffusion``: draws an embedding for each row outside, given its label and what the own bottom makes of its columns."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.training.unaligned.contract import EVERY, AlignedRows, Filling, JointModel, OwnPart, Rows, Standardised
from vfl_node.training.unaligned.diffusion.generator import WIDEST, Generator
from vfl_node.training.unaligned.diffusion.spec import BLOCK, Diffusion


class DiffusionFiller:
    """The conditional diffusion model of FedAds, section 4.1.

    h_N and the condition [y; h_L] are standardised over the aligned rows before. The embedding of a row follows from the seed
    and from the row's place in the table, whichever other rows are drawn. Where rows are repeated, so that their number tells
    nothing, it follows from the place among them: as many blocks are drawn then, whichever rows they are.

    Args:
        settings: of the job.
    """

    def __init__(self, settings: Diffusion) -> None:
        self._settings = settings

    def __call__(self, aligned: AlignedRows, outside: OwnPart, joint: JointModel, randomness: Randomness) -> Filling:
        """As :class:`~vfl_node.training.unaligned.contract.Filler`.

        Cost: what the generator's updates cost, and ``sampler_steps`` passes of each row outside through its network.
        """
        received = Standardised.of(aligned.received)
        labels, own = Standardised.of(aligned.part.labels), Standardised.of(aligned.part.own(EVERY))

        def condition(part: OwnPart, places: slice = EVERY) -> Tensor:
            known = torch.cat([labels.apply(part.labels[places]), own.apply(part.own(places))], dim=1)
            return known.clamp(-WIDEST, WIDEST)

        generator = Generator(
            self._settings, received.apply(aligned.received), condition(aligned.part), randomness.derive("generator")
        )
        drawn = torch.empty(len(outside), aligned.received.shape[1], device=aligned.received.device)
        named = _numbers(outside)
        for block, places in _blocks(named):
            own_draws = randomness.derive(f"rows/{block}")
            shape = (BLOCK, aligned.received.shape[1])  # of a whole block, so that a row's noise depends on its place alone
            whole = torch.zeros(BLOCK, labels.mean.shape[0] + own.mean.shape[0], device=drawn.device)
            within = torch.from_numpy(named[places] % BLOCK).to(drawn.device)
            whole[within] = condition(outside, places)
            noise = torch.from_numpy(own_draws.normal(shape)).to(drawn.device)
            drawn[places] = received.undo(generator.draw(whole, noise, own_draws)[within])
        return Filling(drawn, {"denoising_loss": generator.loss})


def _numbers(outside: OwnPart) -> Rows:
    """What the noise of each row follows from, ascending: its place in the table, or among the rows where some are repeated."""
    repeated = bool((np.diff(outside.rows) == 0).any())
    return np.arange(len(outside)) if repeated else outside.rows


def _blocks(numbers: Rows) -> list[tuple[int, slice]]:
    """(number of a block, the places of ``numbers``, which ascend, that lie in it)."""
    blocks, starts = np.unique(numbers // BLOCK, return_index=True)
    ends = [*starts[1:], len(numbers)]
    return [(int(block), slice(int(start), int(end))) for block, start, end in zip(blocks, starts, ends, strict=True)]
