"""The model in shares: forward, backward and the step, as one computation for parties and dealer.

::

    z₁ = Σ_j X_j·W_j        h = 2σ(z) − 1        z = h·W + b        e = σ(z) − y        δ = e·w        G = Σ X·δ + noise

X_j is known to party j alone, w is the secret bit of a row that all parties own, and everything else is shared. w multiplies
the residual, so a row outside of the intersection moves nothing: the model is that of the shared records. Nothing of a row is
opened but under a mask of its own.

Rounds of a step with no hidden layer: 6 (``exact``), 5 (``taylor`` and numbers). A hidden layer adds 7.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.kits import DEALT, Curved, Kit
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value, product, sum_sines, truncate
from vfl_node.crypto.shares.ring import FRACTION
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.crypto.shares.values import Opened, Shared
from vfl_node.training.hidden.config import Loss
from vfl_node.training.hidden.memory import ROWS_AT_ONCE
from vfl_node.training.hidden.rates import Rates

OUTPUT_TERMS, HIDDEN_TERMS = 9, 5
"""How many sines the series of the last sigmoid has, and those of hidden layers."""


MANTISSA_BITS = {"exact": FRACTION, "robust": FRACTION, "taylor": 12, "squares": 12}
"""Fractional bits of a rate's mantissa: what a residual has to spare before it is cut."""


@dataclass(frozen=True)
class Form:
    """What everybody knows of a model.

    Attributes:
        widths: columns of each party, the active one's intercept included.
        hidden: widths of hidden layers.
        outputs: K.
        loss: of the job.
    """

    widths: tuple[int, ...]
    hidden: tuple[int, ...]
    outputs: int
    loss: Loss

    @property
    def numbers(self) -> bool:
        """Whether it predicts numbers, and not classes."""
        return self.loss in ("squares", "robust")

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shapes of all weights: each party's part of the first layer, then weight and bias of each other layer."""
        after = [*self.hidden, self.outputs]
        first = [(width, after[0]) for width in self.widths]
        return first + [shape for a, b in pairwise(after) for shape in ((a, b), (1, b))]


@dataclass(frozen=True)
class SharedModel:
    """Weights and their velocity, in shares with :data:`WEIGHT_FRACTION` fractional bits, in the order of the form's shapes.

    Attributes:
        form: of the model.
        weights: as they are now.
        velocity: of each.
        origin: what weights began with, and decay to.
    """

    form: Form
    weights: tuple[Shared, ...]
    velocity: tuple[Shared, ...]
    origin: tuple[Shared, ...]

    @property
    def first(self) -> tuple[Shared, ...]:
        """The first layer, party by party."""
        return self.weights[: len(self.form.widths)]

    @property
    def layers(self) -> list[tuple[Shared, Shared]]:
        """Weight and bias of each other layer."""
        rest = self.weights[len(self.form.widths) :]
        return list(zip(rest[::2], rest[1::2], strict=True))


@dataclass(frozen=True)
class _Hidden:
    """A hidden layer of one pass: its values and slopes, and the weight behind it, all open under masks."""

    values: Opened
    slopes: Opened
    weight: Opened


async def scores(machine: ShareMachine, model: SharedModel, columns: Sequence[Any], kit: Kit = DEALT) -> Shared:
    """z of rows, with the fractional bits of a column and a weight: [B, K]; args as :func:`step`."""
    return (await _forward(machine, model, columns, kit))[0]


async def step(
    machine: ShareMachine,
    model: SharedModel,
    columns: Sequence[Any],
    targets: Shared,
    owned: Any,
    rows: NDArray[np.int64],
    rates: Rates,
    deviation: float | None = None,
    at_once: int = ROWS_AT_ONCE,
    kit: Kit = DEALT,
) -> SharedModel:
    """The model after a step.

    Args:
        machine: of whoever runs it.
        model: before.
        columns: of all rows, party by party, [m, d_j], as the kit has matrices that one party knows.
        targets: y, [m, K], with 2·:data:`FRACTION` fractional bits: the active party's share is y.
        owned: which rows all parties own, as the kit has it. With a dealer w, [m, 1], under a mask of an earlier section, or in
            shares, which get one of this section: 8 bytes a row.
        rows: over which the step is.
        rates: of the step.
        deviation: of the noise of each number of a gradient (:mod:`vfl_node.training.hidden.bound`); None: there is none.
        at_once: rows of which gradients are made at a time.
        kit: whose randomness it is.
    """
    total: list[Shared] = []
    for some in (rows[first : first + at_once] for first in range(0, len(rows), at_once)):
        more = await _gradients(machine, kit, model, [matrix[some] for matrix in columns], targets[some], owned[some], rates)
        total = [one + other for one, other in zip(total, more, strict=True)] if total else more
    if deviation is not None:
        width = deviation * rates.mantissa / 2**rates.bits  # residuals have been multiplied by that
        drawn = await machine.run(*(kit.draw_noise(gradient.shape, width, gradient.fraction) for gradient in total))
        total = [gradient + noise for gradient, noise in zip(total, drawn, strict=True)]
    return await _move(machine, kit, model, total, rates)


async def _gradients(
    machine: ShareMachine,
    kit: Kit,
    model: SharedModel,
    columns: Sequence[Any],
    targets: Shared,
    owned: Any,
    rates: Rates,
) -> list[Shared]:
    """Gradients of all weights, times the mantissa of the rates, with 2·:data:`FRACTION` fractional bits, over some rows."""
    z, hidden = await _forward(machine, model, columns, kit)
    deltas = await _residual(machine, kit, model.form, z, targets, owned, rates)
    gradients: list[Shared] = []
    for layer in reversed(hidden):
        delta = deltas[0]
        (opened,) = await machine.run(mask_value(delta))
        weight, back = await machine.run(product(layer.values.transposed, opened), product(opened, layer.weight.transposed))
        bias = Shared(delta.part.sum(axis=0, keepdims=True, dtype=np.uint64), FRACTION).times(1 << FRACTION, FRACTION)
        gradients[:0] = [weight, bias]
        (cut,) = await machine.run(truncate(back, back.fraction - FRACTION))
        (opened,) = await machine.run(mask_value(cut))
        (slanted,) = await machine.run(product(opened, layer.slopes, "numbers"))
        deltas = await machine.run(truncate(slanted, FRACTION)) * len(columns)
    each = zip(columns, deltas, strict=True)
    first = await machine.run(*(kit.known_product(matrix.transposed, delta) for matrix, delta in each))
    return [*first, *gradients]


async def _forward(machine: ShareMachine, model: SharedModel, columns: Sequence[Any], kit: Kit) -> tuple[Shared, list[_Hidden]]:
    each = zip(columns, model.first, strict=True)
    parts = await machine.run(*(kit.known_product(matrix, weight) for matrix, weight in each))
    z, hidden = sum(parts[1:], parts[0]), []
    for weight, bias in model.layers:
        (curve,) = await machine.run(sum_sines(z, SIGMOID[HIDDEN_TERMS], 2, slope=True))
        values, slopes = await machine.run(truncate(curve.value, FRACTION), truncate(curve.slope, FRACTION))
        layer = _Hidden(*await machine.run(mask_value(values), mask_value(slopes), mask_value(weight)))
        (behind,) = await machine.run(product(layer.values, layer.weight))
        z = behind + Shared(np.broadcast_to(bias.part, behind.shape), bias.fraction).times(1 << FRACTION, FRACTION)
        hidden.append(layer)
    return z, hidden


async def _residual(
    machine: ShareMachine, kit: Kit, form: Form, z: Shared, targets: Shared, owned: Any, rates: Rates
) -> Sequence[Shared]:
    """mantissa · e · w, with :data:`FRACTION` fractional bits; for the product with each party's columns, in their order."""
    scale = rates.mantissa, rates.bits
    if form.loss == "exact":
        offset = add_public(machine, Shared(np.zeros_like(targets.part), targets.fraction), 1 << (2 * FRACTION - 1)) - targets
        cut = await kit.bend(machine, z, SIGMOID[OUTPUT_TERMS], Curved(1, offset.part, *scale))
    elif form.loss == "taylor":  # ¼z + ½ − y
        raw = add_public(machine, replace(z, fraction=z.fraction + 2), 1 << (z.fraction + 1))
        cut = await _scale(
            machine, kit, raw - targets.times(1 << (raw.fraction - targets.fraction), raw.fraction - targets.fraction), rates
        )
    else:
        raw = z - targets.times(1 << (z.fraction - targets.fraction), z.fraction - targets.fraction)
        if form.loss == "robust":  # 2σ(2r) − 1
            doubled = replace(raw, fraction=raw.fraction - 1)
            cut = await kit.bend(machine, doubled, SIGMOID[OUTPUT_TERMS], Curved(2, np.zeros_like(targets.part), *scale))
        else:
            cut = await _scale(machine, kit, raw, rates)
    return await kit.gate(machine, cut, owned)


async def _scale(machine: ShareMachine, kit: Kit, raw: Shared, rates: Rates) -> Shared:
    """mantissa · raw, with :data:`FRACTION` fractional bits."""
    scaled = raw.times(rates.mantissa, rates.bits)
    (cut,) = await machine.run(kit.truncate(scaled, scaled.fraction - FRACTION))
    return cut


async def _move(machine: ShareMachine, kit: Kit, model: SharedModel, gradients: Sequence[Shared], rates: Rates) -> SharedModel:
    """The model after gradients with 2·:data:`FRACTION` fractional bits, whose velocity and gradient are cut in one round."""
    moves = []
    for weight, first, velocity, gradient in zip(model.weights, model.origin, model.velocity, gradients, strict=True):
        pulled = velocity.times(rates.momentum, rates.velocity_bits) + (weight - first).times(rates.decay, rates.velocity_bits)
        slope = replace(gradient, fraction=gradient.fraction + rates.exponent)
        spare = pulled.fraction - slope.fraction
        moves.append(pulled + slope.times(1 << spare, spare))
    moved: list[Shared] = await machine.run(*(kit.truncate(move, rates.velocity_bits) for move in moves))
    weights = tuple(weight - move for weight, move in zip(model.weights, moved, strict=True))
    return SharedModel(model.form, weights, tuple(moved), model.origin)


def add_public(machine: ShareMachine, value: Shared, public: int) -> Shared:
    """A shared value plus a public integer: the active party's share changes."""
    return replace(value, part=value.part + np.uint64(public)) if machine.place == 0 else value
