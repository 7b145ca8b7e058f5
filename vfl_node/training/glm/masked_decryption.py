"""A party learns a sum that it computed under encryption, and nobody else learns it.

::

    ciphertexts → mask each value → pack → blind → decrypted and cut by the key's holder → remove the mask
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from vfl_node.crypto.fixed_point import MASK_BITS, slot_bits
from vfl_node.crypto.paillier import ciphertexts as homomorphic
from vfl_node.crypto.paillier import packing
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.paillier.keys import Ciphertexts
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Engine
from vfl_node.process import failpoints
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.decryption import Decryptor
from vfl_node.training.glm.masked_tensors import GRADIENT, LOSS, MaskedTensor
from vfl_node.training.glm.masks import Mask, MaskKind
from vfl_node.training.glm.scales import Scales


class MaskedDecryption:
    """One party's masked tensors in one attempt.

    Args:
        decryptor: its end of the conversation with the key's holder; has the key.
        encryptor: of this party, under the holder's key.
        train: the job's section.
        scales: widths of the job's tensors.
        randomness: this party's own for the job.
        attempt: number of the attempt. Additive masks are drawn anew in every attempt. Factors are not, because an iteration
            that is repeated after a restart has the same gradient entries, and the greatest common divisor of two products of
            one entry with different factors would reveal it.
        workers: the engine that computes on ciphertexts.
    """

    def __init__(
        self,
        decryptor: Decryptor,
        encryptor: Encryptor,
        train: GeneralisedLinear,
        scales: Scales,
        randomness: Randomness,
        attempt: int,
        workers: Engine,
    ) -> None:
        self._decryptor, self._encryptor, self._train = decryptor, encryptor, train
        self._scales, self._workers = scales, workers
        self._randomness: dict[MaskKind, Randomness] = {
            "additive": randomness.derive(f"attempt/{attempt}/masks"),
            "multiplicative": randomness.derive("factors"),
        }

    async def plan(
        self, tensors: Sequence[MaskedTensor], first_step: int, theirs: Mapping[str, Sequence[MaskedTensor]]
    ) -> None:
        """Announce ``tensors``, and what other parties' plans must be, of those that this party knows."""
        await self._decryptor.plan(tensors, first_step, theirs)

    async def gradient(self, step: int, sums: Sequence[Ciphertexts]) -> list[list[int]]:
        """Gradient entries [d][K] from ``sums``: a column of d ciphertexts for each group of outputs."""
        layout = [size for size, column in zip(self._scales.groups, sums, strict=True) for _ in range(len(column))]
        units = np.concatenate(sums)
        values = iter(await self._open(step, GRADIENT, units, layout, self._scales.gradient, self._train.mask))
        columns = len(units) // len(sums)
        entries: list[list[int]] = [[] for _ in range(columns)]
        for unit, size in enumerate(layout):
            entries[unit % columns] += [next(values) for _ in range(size)]
        return entries

    async def loss(self, step: int, sum_of_losses: Ciphertexts) -> float:
        """The mean loss, from its one ciphertext, as an integer: the caller divides it by 2^(its fractional bits)."""
        return float((await self._open(step, LOSS, sum_of_losses, [1], self._scales.loss, "additive"))[0])

    async def _open(
        self, step: int, name: str, units: Ciphertexts, layout: Sequence[int], bound: int, kind: MaskKind
    ) -> list[int]:
        """The values of each unit, unit by unit; ``layout`` says how many each has."""
        public, bits = self._decryptor.public, slot_bits(bound)
        mask = Mask.draw(kind, sum(layout), bound, self._randomness[kind].derive(f"{step}/{name}"))
        if mask.factors:
            units = homomorphic.scale(public, units, mask.factors, MASK_BITS, self._workers)
        offsets = iter(mask.offsets)
        shifted = [packing.join(islice(offsets, size), bits) for size in layout]
        packed = self._decryptor.pack(name, units)
        packed = homomorphic.add_plain(public, packed, self._decryptor.packed_units(name, shifted), self._workers)
        failpoints.reach("mask")
        await self._decryptor.ask(step, name, self._encryptor.blind(packed, f"{step}/{name}"))
        opened = await self._decryptor.receive_values(step, name)
        failpoints.reach("unmask")
        return mask.remove(opened)
