"""Labels at the passive (strong) party: an extension of the coordinator flow beyond the paper.

The passive party knows u_i and y_i, so the active one cannot set a residual to 0. Instead it sends
encrypted weights, which decide whether a row counts::

    active (weak)                                        passive (strong, labels)
    b_i = 1/|I| for i ∈ I, 0 for dummies
    Enc(b_i), Enc(b_i·u_w,i)       ── ───────────────►   Enc(4·b_i·d_i) = Enc(b_i)^(u_s,i − 2y_i) · Enc(b_i·u_w,i)
                                   ◄── Enc(4·b_i·d_i) ─  freshly randomised
    Enc(G_w + ρ), packed ──► coordinator                 Enc(G_s + ρ), packed ──► coordinator
    G_w = (opened − ρ_w)/4                               G_s = (opened − ρ_s)/4
                                                         if the loss is needed, also Enc(b_i·u²_w,i), and likewise
                                                         Σ b_i·(log2 − ½y z + ⅛z²), z = u_s + u_w
                                   ◄── over? ──────────

Only the coordinator may hold the key: the active party could decrypt residuals, which show
labels. y ∈ {−1, 1}; the Taylor loss, as in :mod:`vfl_node.training.glm.blind`. By the squares of linear
regression the residual is z − y: Enc(b_i·d_i) = Enc(b_i)^(u_s,i − y_i) · Enc(b_i·u_w,i), without the 4.

Source: this product's, after arXiv 2004.07427 section 4.1; products of two ciphertexts are
never needed.

Leaks: to the passive party ciphertexts, its own gradient and the loss; to the active party
ciphertexts and its own gradient; to the coordinator masked values.
"""

from __future__ import annotations

import numpy as np

from vfl_node.crypto.fixed_point import encode
from vfl_node.crypto.paillier import ciphertexts as homomorphic
from vfl_node.crypto.paillier import matrix
from vfl_node.crypto.paillier.keys import Ciphertexts
from vfl_node.training.glm.blind import dither, polynomial_of
from vfl_node.training.glm.exchange import receive_encrypted, receive_end, send_encrypted, send_end
from vfl_node.training.glm.flow import IterationContext, Outcome
from vfl_node.training.glm.scales import SCORE, SCORE_RANGE, WEIGHT, bits_of, loss_fraction, widest_score
from vfl_node.training.glm.side import Floats, check_range

WEIGHTS, SCORES, SQUARES, RESIDUALS = "weights", "weighted scores", "weighted squares", "residuals"


class ActiveWithoutLabels:
    """The part of the party whose identifiers are hidden."""

    def __init__(self, context: IterationContext) -> None:
        self._context = context

    async def iterate(self, step: int) -> Outcome:
        """As :meth:`Flow.iterate`."""
        context, positions = self._context, self._context.positions(step)
        genuine, count = context.genuine(positions)
        weight = round(2**WEIGHT / count)
        scores = check_range(context.side.scores(positions))[:, 0]
        context.prepare(step, self._labels)
        noise = context.lasting.derive(f"dither/{step}")  # the same when the iteration is repeated
        await self._send(step, WEIGHTS, [weight * int(own) for own in genuine])
        await self._send(step, SCORES, dither(encode(scores / count, SCORE + WEIGHT), genuine, noise))
        if context.train.tolerance > 0:
            await self._send(step, SQUARES, dither(encode(scores**2 / count, SCORE + WEIGHT), genuine, noise))
        residuals = await receive_encrypted(context.channel, step, RESIDUALS, len(positions), context.public)
        larger = polynomial_of(context).shift  # by so many bits than a residual
        gradient = await context.own_gradient(step, positions, [residuals], context.scales.fraction + larger)
        context.side.update(gradient)
        return Outcome(await receive_end(context.channel, step))

    def _labels(self, step: int) -> list[str]:
        squares = [SQUARES] if self._context.train.tolerance > 0 else []
        return [f"{step}/{tensor}" for tensor in (WEIGHTS, SCORES, *squares)]

    async def _send(self, step: int, tensor: str, values: list[int]) -> None:
        await send_encrypted(self._context.channel, step, tensor, self._context.encryptor.encrypt(values, f"{step}/{tensor}"))


class PassiveWithLabels:
    """The part of the party with labels."""

    def __init__(self, context: IterationContext) -> None:
        self._context = context

    async def iterate(self, step: int) -> Outcome:
        """As :meth:`Flow.iterate`."""
        context, positions = self._context, self._context.positions(step)
        assert context.targets is not None
        rows, public = len(positions), context.public
        polynomial = polynomial_of(context)
        ours, targets = check_range(context.side.scores(positions))[:, 0], context.targets[positions][:, 0]
        weights = await receive_encrypted(context.channel, step, WEIGHTS, rows, public)
        theirs = await receive_encrypted(context.channel, step, SCORES, rows, public)
        squares = await receive_encrypted(context.channel, step, SQUARES, rows, public) if context.train.tolerance > 0 else None
        factors = encode(ours - polynomial.slope(targets) / polynomial.curvature, SCORE)
        product = homomorphic.scale(public, weights, factors, SCORE + SCORE_RANGE + 2, context.workers)
        residuals = homomorphic.add(public, product, theirs, context.workers)
        fresh = context.encryptor.rerandomise(residuals, f"{step}/{RESIDUALS}")
        await send_encrypted(context.channel, step, RESIDUALS, fresh)
        gradient = await context.own_gradient(step, positions, [residuals], context.scales.fraction + polynomial.shift)
        loss = None if squares is None else await self._open_loss(step, weights, theirs, squares, ours, targets)
        context.side.update(gradient)
        last = step + 1 == context.train.iterations or context.has_converged(loss)
        await send_end(context.channel, step, last=last)
        return Outcome(last, loss)

    async def _open_loss(
        self, step: int, weights: Ciphertexts, theirs: Ciphertexts, squares: Ciphertexts, ours: Floats, targets: Floats
    ) -> float:
        """The mean loss over the rows that count, which this party cannot tell from the others."""
        context = self._context
        assert context.opening is not None
        # at SCORE more fractional bits than a residual: b has WEIGHT of them, b·u_w and b·u²_w SCORE more
        polynomial = polynomial_of(context)
        constant = encode(polynomial.value(ours, targets), 2 * SCORE)
        linear = encode(polynomial.derivative(ours, targets), SCORE)
        quadratic = [1 << (SCORE - polynomial.shift - 1)] * len(ours)
        bits = 2 * SCORE + bits_of(polynomial.value_most(widest_score(1)))  # of a constant: wider than 64
        alone = homomorphic.scale(context.public, weights, constant, bits, context.workers)
        products = np.array([*linear, *quadratic], dtype=np.int64)[:, None]
        paired = matrix.multiply(context.public, products, np.concatenate([theirs, squares]), context.workers)
        total = homomorphic.total(context.public, np.concatenate([alone, paired]))
        return polynomial.reported * await context.opening.loss(step, total) / 2.0 ** loss_fraction(context.train)
