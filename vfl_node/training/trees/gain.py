"""The best split of each node of a level, in shares: nobody sees a gain, nor which candidate wins, nor whose it is.

With G and H the sums of gradients and hessians on one side, v = H + λ, and t = G/v, the gain is ::

    G_L·t_L + G_R·t_R − G·t

Gains are differences of large numbers, so each node is centred first by what is known of its value from the level above: with
A = G − base·v and t = A/v the gain is A_L·t_L + A_R·t_R − A·t − λ·base², whatever ``base`` is.

A gain and the candidate's number are one word, so the largest word is the winner with its number. The last candidate is a
*dummy*, which has the least gain of a split. Where it wins, all rows go right, and nobody sees that.

Source: ours; gains are those of Chen and Guestrin 2016 (XGBoost), section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vfl_node.crypto.shares.functions import (
    GUESS_FRACTION,
    INVERSE_FRACTION,
    REST_FRACTION,
    multiply_inverse,
    multiply_three,
)
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value, product, truncate
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.steps import deal_steps, find_at_most, larger, largest, lift
from vfl_node.crypto.shares.values import Opened, Shared, join_columns, stack_opened, stack_rows
from vfl_node.training.trees.plan import VALUE_FRACTION, TreesPlan

_PULLED_FRACTION = 16  # of A times σ
_L2_FRACTION = 8

_LOOKED_UP = 1 << 21
"""Numbers that are looked up at a time, of the nodes of a level: so memory is bounded."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of gradients and hessians of the nodes of a level.

    Attributes:
        gradients, hessians: [K, W + 1]: where candidates go left, and of the whole node.
    """

    gradients: Shared
    hessians: Shared

    def __getitem__(self, nodes: slice) -> Sums:
        return Sums(self.gradients[nodes], self.hessians[nodes])


@dataclass(frozen=True, eq=False)
class Splits:
    """What wins.

    Attributes:
        words: [K], gain and number of the winner.
        values: t of each side of each candidate and of the node, [K, 2·W + 1], less the base; open under masks.
        every: [K, W + 1], the words of all candidates.
    """

    words: Shared
    values: Opened
    every: Shared


async def choose_splits(machine: ShareMachine, plan: TreesPlan, sums: Sums, base: Shared) -> Splits:
    """The winner of each node; some nodes at a time where there are many candidates.

    Args:
        machine: of whoever runs it.
        plan: the same for everybody.
        sums: of the level's nodes.
        base: [K, 1], the nodes' values as far as they are known.
    """
    nodes, at_once = len(base.part), max(1, _LOOKED_UP // ((2 * plan.width + 1) * (1 + len(plan.guess.thresholds))))
    parts = [
        await _choose_some(machine, plan, sums[first : first + at_once], base[first : first + at_once])
        for first in range(0, nodes, at_once)
    ]
    return Splits(
        stack_rows([part.words for part in parts]),
        stack_opened([part.values for part in parts]),
        stack_rows([part.every for part in parts]),
    )


async def _choose_some(machine: ShareMachine, plan: TreesPlan, sums: Sums, base: Shared) -> Splits:
    """The winner of each of some nodes."""
    place, width = machine.place, plan.width
    gradients, sides = _list_sides(sums.gradients, width), _add_public(_list_sides(sums.hessians, width), plan.l2, place)
    v, opened_base = await machine.run(mask_value(sides), mask_value(base))
    table, pulled, square = await machine.run(
        deal_steps(v), product(v, opened_base, "numbers"), product(opened_base, opened_base, "numbers")
    )
    gain_fraction = plan.gradient_fraction + VALUE_FRACTION
    looked, (pulled, square) = await find_at_most(
        machine,
        table,
        plan.guess.looks(v),
        truncate(pulled, pulled.fraction - plan.gradient_fraction),
        truncate(square, square.fraction - (gain_fraction - _L2_FRACTION)),
    )
    square = square.times(round(plan.l2 * 2**_L2_FRACTION), _L2_FRACTION)
    guess, enough = plan.guess.guess(v, await lift(machine, looked), place)
    a, sigma, reached = await machine.run(mask_value(gradients - pulled), mask_value(guess), mask_value(enough))
    (both,) = await machine.run(product(reached[:, :width], reached[:, width : 2 * width], "numbers"))
    (valid,) = await machine.run(mask_value(join_columns([both, both, _ones(len(both.part), place)])))
    (values,) = await machine.run(mask_value(await _divide(machine, plan, a, v, sigma, valid)))
    (each,) = await machine.run(product(a, values, "numbers"))
    gain = each[:, :width] + each[:, width : 2 * width] - each[:, 2 * width :] - square
    (gain,) = await machine.run(truncate(gain, gain_fraction - plan.gain_fraction))
    every = _number(plan, gain, place)
    return Splits(await _find_largest(machine, every), values, every)


async def find_values(machine: ShareMachine, plan: TreesPlan, gradients: Shared, hessians: Shared) -> Shared:
    """G/(H + λ) of nodes, [1, K]; 0 where H + λ is below the first threshold."""
    (v,) = await machine.run(mask_value(_add_public(hessians, plan.l2, machine.place)))
    (table,) = await machine.run(deal_steps(v))
    looked, _ = await find_at_most(machine, table, plan.guess.looks(v))
    guess, enough = plan.guess.guess(v, await lift(machine, looked), machine.place)
    a, sigma, valid = await machine.run(mask_value(gradients), mask_value(guess), mask_value(enough))
    return await _divide(machine, plan, a, v, sigma, valid)


async def _divide(machine: ShareMachine, plan: TreesPlan, a: Opened, v: Opened, sigma: Opened, valid: Opened) -> Shared:
    """a/v, of a guess σ of 1/v; 0 where ``valid`` is."""
    near, factor = await machine.run(product(v, sigma, "numbers"), multiply_three(a, sigma, valid))
    near, factor = await machine.run(
        truncate(near, plan.hessian_fraction + GUESS_FRACTION - REST_FRACTION),
        truncate(factor, plan.gradient_fraction + GUESS_FRACTION - _PULLED_FRACTION),
    )
    rest, factor = await machine.run(mask_value(_add_public(near, -1.0, machine.place)), mask_value(factor))
    (square_rest,) = await machine.run(product(rest, rest, "numbers"))
    (square_rest,) = await machine.run(truncate(square_rest, REST_FRACTION))
    (opened_square,) = await machine.run(mask_value(square_rest))
    (value,) = await machine.run(multiply_inverse(factor, rest, opened_square))
    (value,) = await machine.run(truncate(value, _PULLED_FRACTION + INVERSE_FRACTION - VALUE_FRACTION))
    return value


def _list_sides(value: Shared, width: int) -> Shared:
    """Left, right and the node, [K, 2·W + 1]."""
    left, node = value[:, :width], value[:, width:]
    return join_columns([left, node - left, node])


def _add_public(value: Shared, number: float, place: int) -> Shared:
    added = round(number * 2**value.fraction) % (1 << 64)
    return Shared(value.part + np.uint64(added), value.fraction) if place == 0 else value


def _ones(rows: int, place: int) -> Shared:
    return Shared(np.full((rows, 1), int(place == 0), np.uint64), 0)


def _number(plan: TreesPlan, gain: Shared, place: int) -> Shared:
    """Gain and number of each candidate as one word, and the dummy, [K, W + 1]."""
    part: Ring = gain.part << np.uint64(plan.index_bits)
    dummy: Ring = np.zeros((len(part), 1), np.uint64)
    if place == 0:
        part += np.arange(plan.width, dtype=np.uint64)
        least = max(1, round(plan.min_gain * 2**plan.gain_fraction))
        dummy += np.uint64((least << plan.index_bits) + plan.width)
    return Shared(np.concatenate([part, dummy], axis=1), 0)


async def _find_largest(machine: ShareMachine, words: Shared) -> Shared:
    """The largest of each row, [K]: four at a time, 3 rounds each."""
    while (count := words.shape[1]) > 1:
        if count >= 4:
            used = count // 4 * 4
            quads = Shared(words.part[:, :used].reshape(len(words.part), -1, 4), words.fraction)
            best = await largest(machine, quads)
        else:
            used = 2
            best = await larger(machine, words[:, :1], words[:, 1:2])
        words = join_columns([best, words[:, used:]])
    return words[:, 0]
