"""``diffusion``: draws an embedding for each row outside, given its label and what the own bottom makes of its columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.layers import linear
from vfl_node.training.unaligned.contract import EVERY, AlignedRows, Filling, JointModel, OwnPart, Rows, Standardised
from vfl_node.training.unaligned.specs import BATCH, BLOCK, TIME_WIDTH, Diffusion


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
        received = Standardised.fit(aligned.received)
        labels, own = Standardised.fit(aligned.part.labels), Standardised.fit(aligned.part.own(EVERY))

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


# A conditional diffusion model of rows of numbers: learns p(h | c), and draws from it.
#
# ::
#
#     forward    h_t = √ᾱ_t · h_0 + √(1 − ᾱ_t) · ε,   ε ~ N(0, I),   β_t linear in t, ᾱ_t = Π (1 − β_s)
#     network    ε̂ of (h_t, c, t): two hidden layers; mean squared error at uniform t
#     ddpm       h_{t−1} ~ N(posterior mean of ĥ_0 and h_t, β_t), without noise at the last step
#     ddim       h_s = √ᾱ_s · ĥ_0 + √(1 − ᾱ_s) · ε̂ over some of the steps, from the same first noise always the same
#
# The condition is an input of each step and is never noised. β runs from .1/T to 20/T, which is the usual 1e-4 to .02 at
# T = 1000, so that h_T is noise for any T.
#
# A step of ddim is of the first order: with 50 steps it draws Gaussian rows with 7 to 15 % too little variance. So ĥ_0 is taken
# from the line through the estimates of this step and the one before (second order), and steps lie closer where there is little
# noise, at squares; then less than 1 % is missing.
#
# Source: Ho et al. 2020 (DDPM), Song et al. 2021 (DDIM), Lu et al. 2022 (DPM-Solver++ 2M, the second order). Deviations: the
# weights that draw are a moving average of the trained ones; ĥ_0 stays within :data:`WIDEST` standard deviations, as clipping
# is customary in sampling.


WIDEST = 6.0
KEPT = 0.995
"""What stays of the moving average of the weights in an update."""


class Denoiser(nn.Module):
    """h_t, c and t → ε̂.

    Args:
        width: d, of h.
        condition: width of c.
        hidden: of both hidden layers.
    """

    def __init__(self, width: int, condition: int, hidden: int) -> None:
        super().__init__()
        first, second = linear(width + condition + TIME_WIDTH, hidden), linear(hidden, hidden)
        self.layers = nn.Sequential(first, nn.SiLU(), second, nn.SiLU(), linear(hidden, width))

    def forward(self, noisy: Tensor, condition: Tensor, time: Tensor) -> Tensor:
        """float32[B, d], float32[B, c] and float32[B], t/T in 0 … 1 → float32[B, d]."""
        octaves = torch.arange(TIME_WIDTH // 2, device=time.device)
        angles = time[:, None] * math.pi * 2.0 ** (octaves - 1)
        out: Tensor = self.layers(torch.cat([noisy, condition, angles.sin(), angles.cos()], dim=1))
        return out


@dataclass(frozen=True, eq=False)
class NoiseSchedule:
    """How much of a row is left after each step.

    Attributes:
        betas: float32[T].
        kept: ᾱ, float32[T], falling.
    """

    betas: Tensor
    kept: Tensor

    @classmethod
    def from_steps(cls, steps: int, device: torch.device) -> NoiseSchedule:
        """The schedule of T = ``steps``."""
        betas = torch.linspace(0.1 / steps, min(20 / steps, 0.999), steps, dtype=torch.float64)
        kept = torch.cumprod(1 - betas, dim=0)
        return cls(betas.float().to(device), kept.float().to(device))


class Generator:
    """Learns from rows and draws others. Rows and conditions should have mean 0 and standard deviation 1.

    Args:
        settings: T, the sampler, the network.
        values: float32[k, d], k ≥ 1.
        conditions: float32[k, c].
        randomness: gives weights, noise and the rows of each update. It is trained at once.

    Cost: ``updates`` steps of 256 rows, however many rows there are.
    """

    def __init__(self, settings: Diffusion, values: Tensor, conditions: Tensor, randomness: Randomness) -> None:
        self._settings, self._width = settings, values.shape[1]
        self._schedule = NoiseSchedule.from_steps(settings.steps, values.device)
        network = Denoiser(values.shape[1], conditions.shape[1], settings.hidden)
        initialise(network, randomness.derive("weights"))
        self._network = network.to(values.device)
        self.loss = self._train(values, conditions, randomness.derive("updates"))
        """Mean squared error over the last tenth of the updates."""

    def _train(self, values: Tensor, conditions: Tensor, randomness: Randomness) -> float:
        settings, kept, device = self._settings, self._schedule.kept, values.device
        optimiser = torch.optim.Adam(self._network.parameters(), settings.learning_rate, fused=True)
        average = [weight.detach().clone() for weight in self._network.parameters()]
        losses = []
        for update in range(settings.updates):
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * 0.5 * (1 + math.cos(math.pi * update / settings.updates))
            rows = torch.from_numpy(randomness.choices(len(values), BATCH)).to(device)
            steps = torch.from_numpy(randomness.choices(settings.steps, BATCH)).to(device)
            noise = torch.from_numpy(randomness.normal((BATCH, self._width))).to(device)
            left = kept[steps][:, None]
            noisy = left.sqrt() * values[rows] + (1 - left).sqrt() * noise
            optimiser.zero_grad()
            loss = (self._network(noisy, conditions[rows], self._time(steps)) - noise).square().mean()
            loss.backward()
            optimiser.step()
            rate = max(1 - KEPT, 1 / (update + 1))  # a plain mean at first
            with torch.no_grad():
                for slow, weight in zip(average, self._network.parameters(), strict=True):
                    slow.lerp_(weight, rate)
            if update >= settings.updates * 9 // 10:
                losses.append(loss.detach())
        with torch.no_grad():
            for slow, weight in zip(average, self._network.parameters(), strict=True):
                weight.copy_(slow)
        return float(torch.stack(losses).mean())

    @torch.no_grad()
    def draw(self, conditions: Tensor, noise: Tensor, randomness: Randomness) -> Tensor:
        """One row for each of the ``conditions``.

        Args:
            conditions: float32[n, c].
            noise: float32[n, d], standard normal: the first one. With ``ddim`` the rows depend on nothing else.
            randomness: gives the noise of each further step of ``ddpm``.

        Returns:
            float32[n, d].
        """
        taken, kept = self._settings.places, self._schedule.kept
        row, before = noise, list[tuple[Tensor, Tensor]]()
        for place, step in enumerate(taken):
            left, last = kept[step], place + 1 == len(taken)
            after = torch.ones_like(left) if last else kept[taken[place + 1]]
            clean = self._denoise(row, conditions, step)
            if self._settings.sampler == "ddim":
                estimate, logit = clean, left.logit()
                if before and not last:  # second order, from the line through the last two estimates
                    earlier, at = before[-1]
                    estimate = clean + (clean - earlier) * (after.logit() - logit) / (2 * (logit - at))
                before = [(clean, logit)]
                row = after.sqrt() * estimate + ((1 - after) / (1 - left)).sqrt() * (row - left.sqrt() * estimate)
                continue
            beta = self._schedule.betas[step]
            row = (after.sqrt() * beta * clean + (1 - beta).sqrt() * (1 - after) * row) / (1 - left)
            if not last:
                fresh = torch.from_numpy(randomness.derive(f"step/{step}").normal(tuple(row.shape))).to(row.device)
                row = row + beta.sqrt() * fresh
        return row

    def _denoise(self, row: Tensor, conditions: Tensor, step: int) -> Tensor:
        """ĥ_0 of rows at ``step``."""
        left = self._schedule.kept[step]
        given = self._network(row, conditions, self._time(torch.full((len(row),), step, device=row.device)))
        return ((row - (1 - left).sqrt() * given) / left.sqrt()).clamp(-WIDEST, WIDEST)

    def _time(self, steps: Tensor) -> Tensor:
        return steps.float() / self._settings.steps
