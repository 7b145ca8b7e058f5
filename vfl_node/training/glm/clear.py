"""Scores in clear: the two-party flow, and the coordinator as decryptor of the same one.

::

    passive (strong)                                  active (weak, labels)
    u_i = θ_s·x_i, all i ∈ Ĩ    ── u ──────────────►   h_i = σ(u_i + θ_w·x_i + b), of a number the score itself
                                                       d_i = (h_i − y_i)/|I| for i ∈ I, 0 for dummies
                                ◄── Enc(d_i) ───────   every one freshly randomised, the same work for 0
    Enc(G_j) = Π Enc(d_i)^x_ij                         g_w = Σ_I d_i x_i, in clear
    Enc(G_j + ρ_j), packed      ──►  key's holder: the active party, or the coordinator
    G_j = opened − ρ_j          ◄──
    θ_s ← θ_s − η(G + λθ_s)                            θ_w ← θ_w − η(g_w + λθ_w)
                                ◄── over? ──────────   whether the loss still changes

With several passive parties h_i = σ(Σ_j u_j,i + θ_w·x_i + b), and all of them get the same Enc(d_i): each knows from the job
that the others have the residuals of the same rows.

The division by |I| comes before encryption, so the passive party never needs |I|. With class weights w_i (``class_weight``)
d_i = w_i·(h_i − y_i) / Σ_I w: the magnitudes still sum to at most 1, which fixed point relies on. The sigmoid
is evaluated in clear by the label holder, so no polynomial is needed (a job may still use the Taylor loss, to compare).

Source: arXiv 2004.07427, Algorithm 2 (genuine with dummy), from Yang et al. 2019
(arXiv 1911.09824). Deviations: additive masks by default, pre-scaled residuals, private start.

Leaks: to the active party u of every shared row in every iteration, of each passive party (a linear image of
its columns); to a passive party ciphertexts and its own gradient in clear; to the key's holder masked values.
"""

from __future__ import annotations

import numpy as np

from vfl_node.crypto.fixed_point import encode
from vfl_node.training.glm.exchange import (
    receive_encrypted,
    receive_end,
    receive_scores,
    send_encrypted,
    send_end,
    send_scores,
)
from vfl_node.training.glm.flow import IterationContext, Outcome
from vfl_node.training.glm.plain import LOSSES, mean_loss
from vfl_node.training.glm.scales import pack_rows
from vfl_node.training.glm.side import Floats, check_range, divergence_error

RESIDUALS = "residuals"


class ActiveClear:
    """The label holder's part."""

    def __init__(self, context: IterationContext) -> None:
        self._context = context
        self._loss = LOSSES[context.train.objective]

    async def iterate(self, step: int) -> Outcome:
        """As :meth:`Flow.iterate`."""
        context, positions = self._context, self._context.positions(step)
        genuine, _ = context.genuine(positions)
        assert context.targets is not None
        context.prepare(step, self._labels)
        theirs = [await receive_scores(channel, step, len(positions), context.train.outputs) for channel in context.channels]
        if self._loss.polynomial:  # check every row: a check of the genuine ones alone would reveal which they are
            for scores in theirs:
                check_range(scores)
        scores, targets = np.sum(theirs, axis=0) + context.side.scores(positions), context.targets[positions]
        shares = context.shares(positions)
        residuals = self._loss.residual(scores, targets) * shares[:, None]  # a dummy's is 0
        await self._send(step, residuals)
        gradient = context.side.gradient(positions, residuals)
        if context.row_weights is None:
            loss = self._loss.loss(scores[genuine], targets[genuine])
        else:
            loss = mean_loss(self._loss, scores, targets, shares)
        if context.service:
            await context.service.answer()
        context.side.update(gradient)
        last = step + 1 == context.train.iterations or context.has_converged(loss)
        for channel in context.channels:
            await send_end(channel, step, last=last)
        return Outcome(last, loss, scores)

    async def _send(self, step: int, residuals: Floats) -> None:
        """Encrypt the residuals, those of a few outputs in one ciphertext, and send them."""
        context = self._context
        largest = 2.0 ** (context.scales.residual - context.scales.fraction) * (1 + 1e-9)  # an allowance for rounding
        if not (np.abs(residuals).sum(axis=0) <= largest).all():  # a loss whose residuals have no bound of their own
            raise divergence_error()
        rows = [encode(row, context.scales.fraction) for row in residuals]
        values = pack_rows(rows, context.scales.groups, context.scales.slot)
        columns = [context.encryptor.encrypt(group, label) for group, label in zip(values, self._labels(step), strict=True)]
        for channel in context.channels:
            await send_encrypted(channel, step, RESIDUALS, np.concatenate(columns))

    def _labels(self, step: int) -> list[str]:
        return [f"{step}/{RESIDUALS}/{group}" for group in range(len(self._context.scales.groups))]


class PassiveClear:
    """The part of the party without labels."""

    def __init__(self, context: IterationContext) -> None:
        self._context = context

    async def iterate(self, step: int) -> Outcome:
        """As :meth:`Flow.iterate`."""
        context, positions = self._context, self._context.positions(step)
        await send_scores(context.channel, step, context.side.scores(positions))
        groups = len(context.scales.groups)
        received = await receive_encrypted(context.channel, step, RESIDUALS, groups * len(positions), context.public)
        gradient = await context.own_gradient(step, positions, np.split(received, groups), context.scales.fraction)
        context.side.update(gradient)
        return Outcome(await receive_end(context.channel, step))
