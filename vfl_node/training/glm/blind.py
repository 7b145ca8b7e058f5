"""Scores under encryption: the coordinator flow, with a polynomial loss, here the Taylor one.

::

    passive (strong)                                     active (weak, labels)
    Enc(u_i), all i ∈ Ĩ           ── ────────────────►   Enc(d_i) = Enc(u_i)^{¼/|I|} · Enc((¼u_w,i − ½y_i)/|I|), i ∈ I
                                                         Enc(0) for dummies, by the same work
                                  ◄── Enc(d_i) ───────
    Enc(G_s + ρ), packed ──► coordinator                 Enc(G_w + ρ), packed ──► coordinator
    G_s = opened − ρ_s                                   G_w = opened − ρ_w
                                                         if the loss is needed (tolerance > 0), likewise
                                                         Σ_I log2 − ½y z + ⅛z², z = u_s + u_w (blind_loss.py)
                                  ◄── over? ──────────

With several passive parties the active one multiplies their Enc(u_i), which gives Enc(Σ_j u_j,i), and sends all of them the
same Enc(d_i), as each of them knows from the job. Of scores of a passive party nobody else sees more than ciphertexts.

y ∈ {−1, 1}. The sigmoid cannot be evaluated under encryption, hence the second-order
polynomial at 0: ℓ ≈ log2 − ½y·z + ⅛z², ∂ℓ/∂z ≈ ¼z − ½y. The squares of linear regression are
a polynomial of the same degree and take the same way, ℓ = ½y² − y·z + ½z² and ∂ℓ/∂z = z − y
(:class:`~vfl_node.training.glm.plain.Polynomial`).

Source: arXiv 2004.07427 section 4.1, worked out after Hardy et al. 2017 and Yang et al. 2019.
Deviations: u² is sent row by row, because a total would contain those of dummies; everything that the
coordinator decrypts is masked.

Leaks: to the active party ciphertexts, and its own gradient and the loss; to a passive
party ciphertexts and its own gradient; to the coordinator masked values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.fixed_point import encode
from vfl_node.crypto.paillier import ciphertexts as homomorphic
from vfl_node.crypto.paillier.keys import Ciphertexts
from vfl_node.crypto.randomness import Randomness
from vfl_node.training.glm.blind_loss import PRODUCTS, SQUARES, GenuineRows, loss_tensor
from vfl_node.training.glm.exchange import receive_encrypted, receive_end, send_encrypted, send_end
from vfl_node.training.glm.flow import IterationContext, Outcome
from vfl_node.training.glm.plain import LOSSES, Polynomial
from vfl_node.training.glm.scales import SCORE, WEIGHT, loss_fraction, pack_rows
from vfl_node.training.glm.side import Floats, check_range

SCORES, RESIDUALS = "scores", "residuals"

DITHER = 40
"""Bits of noise in a residual that is formed under encryption, out of 80 fractional ones."""


class ActiveBlind:
    """The label holder's part."""

    def __init__(self, context: IterationContext) -> None:
        self._context = context
        self._polynomial = polynomial_of(context)
        self._for_loss = loss_tensor(context.train, context.passive_parties)
        one = np.frombuffer((1).to_bytes(context.public.width, "big"), np.uint8)
        self._zero = context.encryptor.blind(one[None, :], "nothing")  # an Enc(0) as large as any ciphertext

    async def iterate(self, step: int) -> Outcome:
        """As :meth:`Flow.iterate`."""
        context, positions = self._context, self._context.positions(step)
        genuine, count = context.genuine(positions)
        assert context.targets is not None
        ours, targets = check_range(context.side.scores(positions)), context.targets[positions]
        groups = len(context.scales.groups)
        context.prepare(step, lambda ahead: _labels(context, ahead, RESIDUALS))
        theirs = np.split(await self._receive_scores(step, groups * len(positions)), groups)  # a column for each group
        squares = []
        if self._for_loss == SQUARES:
            squares.append(await receive_encrypted(context.channel, step, SQUARES, len(positions), context.public))
        residuals = self._residuals(step, theirs, self._polynomial.derivative(ours, targets) / count, genuine, count)
        for channel in context.channels:
            await send_encrypted(channel, step, RESIDUALS, np.concatenate(residuals))
        gradient = await context.own_gradient(step, positions, residuals, context.scales.fraction)
        loss = None
        if self._for_loss:
            rows = GenuineRows(context, self._polynomial, ours[:, 0], targets[:, 0], genuine)
            loss = await self._open_loss(step, rows, theirs[0], squares, gradient)
        context.side.update(gradient)
        last = step + 1 == context.train.iterations or context.has_converged(loss)
        for channel in context.channels:
            await send_end(channel, step, last=last)
        return Outcome(last, loss)

    async def _receive_scores(self, step: int, count: int) -> Ciphertexts:
        """Enc(Σ_j u_j) over all passive parties; however many they are, no more than three columns are in memory at once."""
        summed = None
        for channel in self._context.channels:
            theirs = await receive_encrypted(channel, step, SCORES, count, self._context.public)
            summed = theirs if summed is None else self._add(summed, theirs)
        assert summed is not None  # a job has a passive party
        return summed

    def _add(self, first: Ciphertexts, second: Ciphertexts) -> Ciphertexts:
        return homomorphic.add(self._context.public, first, second, self._context.workers)

    def _residuals(
        self, step: int, theirs: list[Ciphertexts], own: Floats, genuine: NDArray[np.bool_], count: int
    ) -> list[Ciphertexts]:
        """Enc(d) of every row, [group][B]; the u of a dummy is multiplied, too, and the product discarded."""
        context = self._context
        factor = round(self._polynomial.curvature / count * 2**WEIGHT)
        noise = context.lasting.derive(f"dither/{step}")  # the same when the iteration is repeated
        columns = [dither(encode(column, SCORE + WEIGHT), genuine, noise) for column in own.T]
        values = pack_rows(list(zip(*columns, strict=True)), context.scales.groups, context.scales.slot)
        residuals = []
        labels = _labels(context, step, RESIDUALS)
        for group, column in enumerate(theirs):
            product = homomorphic.scale(context.public, column, [factor] * len(column), WEIGHT + 1, context.workers)
            product[~genuine] = self._zero
            fresh = context.encryptor.encrypt(values[group], labels[group])
            residuals.append(self._add(product, fresh))
        return residuals

    async def _open_loss(
        self, step: int, rows: GenuineRows, theirs: Ciphertexts, squares: list[Ciphertexts], gradient: Floats
    ) -> float:
        """The mean loss over the genuine rows, before the update."""
        context = self._context
        assert context.opening is not None
        if squares:
            encrypted = rows.loss_from_squares(theirs, *squares)
        else:
            products = [await receive_encrypted(channel, step, PRODUCTS, 1, context.public) for channel in context.channels]
            encrypted = rows.loss_from_products(theirs, products, context.side.product(gradient))
        opened = await context.opening.loss(step, encrypted)
        return self._polynomial.reported * opened / 2.0 ** loss_fraction(context.train)


class PassiveBlind:
    """The part of the party without labels."""

    def __init__(self, context: IterationContext) -> None:
        self._context = context
        self._for_loss = loss_tensor(context.train, context.passive_parties)

    async def iterate(self, step: int) -> Outcome:
        """As :meth:`Flow.iterate`."""
        context, positions = self._context, self._context.positions(step)
        scores = check_range(context.side.scores(positions))
        groups = len(context.scales.groups)
        context.prepare(step, self._labels)
        values = pack_rows([encode(row, SCORE) for row in scores], context.scales.groups, context.scales.slot)
        labels = _labels(context, step, SCORES)
        columns = [context.encryptor.encrypt(group, label) for group, label in zip(values, labels, strict=True)]
        await send_encrypted(context.channel, step, SCORES, np.concatenate(columns))
        if self._for_loss == SQUARES:
            squares = encode(scores[:, 0] ** 2, SCORE)
            await send_encrypted(context.channel, step, SQUARES, context.encryptor.encrypt(squares, f"{step}/{SQUARES}"))
        received = await receive_encrypted(context.channel, step, RESIDUALS, groups * len(positions), context.public)
        gradient = await context.own_gradient(step, positions, np.split(received, groups), context.scales.fraction)
        if self._for_loss == PRODUCTS:
            await self._send_product(step, context.side.product(gradient))
        context.side.update(gradient)
        return Outcome(await receive_end(context.channel, step))

    async def _send_product(self, step: int, product: float) -> None:
        context = self._context
        noise = context.lasting.derive(f"dither/{step}")  # the same when the iteration is repeated
        values = dither(encode(np.array([product / 2]), SCORE + WEIGHT), np.array([True]), noise)
        await send_encrypted(context.channel, step, PRODUCTS, context.encryptor.encrypt(values, f"{step}/{PRODUCTS}"))

    def _labels(self, step: int) -> list[str]:
        squares = [f"{step}/{SQUARES}"] if self._for_loss == SQUARES else []
        return _labels(self._context, step, SCORES) + squares


def polynomial_of(context: IterationContext) -> Polynomial:
    """The loss as it is computed under encryption."""
    polynomial = LOSSES[context.train.objective].polynomial
    assert polynomial is not None  # the job was checked
    return polynomial


def dither(values: list[int], genuine: NDArray[np.bool_], randomness: Randomness) -> list[int]:
    """``values`` with uniform noise of :data:`DITHER` bits where ``genuine``, bool[B], and 0 elsewhere.

    A float has 53 bits, so a number at 80 fractional bits that comes from a float ends in zeros, and a multiple of 1/|I|
    stays one. Without noise, sums of such numbers showed I, or |I|, in their last bits.
    """
    noise = (randomness.uint64(len(values)) >> np.uint64(64 - DITHER)).astype(np.int64) - (1 << (DITHER - 1))
    return [(value + int(bits)) * int(own) for value, bits, own in zip(values, noise, genuine, strict=True)]


def _labels(context: IterationContext, step: int, tensor: str) -> list[str]:
    return [f"{step}/{tensor}/{group}" for group in range(len(context.scales.groups))]
