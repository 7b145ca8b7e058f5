"""The parts of every flow: the state that an iteration needs at one party, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.paillier import matrix
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.paillier.keys import Ciphertexts, PublicKey
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Engine
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.decryption import DecryptionService
from vfl_node.training.glm.masked_decryption import MaskedDecryption
from vfl_node.training.glm.scales import Scales
from vfl_node.training.glm.side import Floats, Positions, Side
from vfl_node.transport.channel import Channel


@dataclass(frozen=True)
class Outcome:
    """One iteration as a party sees it.

    Attributes:
        last: whether it was the last.
        loss: mean over the genuine rows before the step; None where it is not known.
        scores: float64[B, K] of all parties together, before the step; None where they are not known.
    """

    last: bool
    loss: float | None = None
    scores: Floats | None = None


@dataclass
class IterationContext:
    """What a party has at hand in one attempt.

    Attributes:
        channels: the conversations with other data parties: the passive party's with the active one, the active one's with
            each passive party, in the order of the job.
        passive_parties: how many there are.
        side: its linear model.
        train: the job's section.
        scales: widths of the job's tensors.
        public: the key everything is encrypted under.
        encryptor: this party's, under that key.
        workers: the engine that computes on ciphertexts.
        opening: has its masked sums decrypted; None at a party that needs none.
        service: decrypts for the other party; None at a party without the key.
        targets: float64[m, K] of 0 and 1, zeros where a row is not its own; None at a party without labels.
        lasting: this party's own randomness for the job, the same in every attempt.
        positions: the shared rows of an iteration.
        losses: of the iterations so far.
        row_weights: float64[m], how much each row counts by its class, 0 where it is not this party's own; None: all alike.
        prepared: the last iteration for which encryption noise is being prepared.
    """

    channels: tuple[Channel, ...]
    passive_parties: int
    side: Side
    train: GeneralisedLinear
    scales: Scales
    public: PublicKey
    encryptor: Encryptor
    workers: Engine
    opening: MaskedDecryption | None
    service: DecryptionService | None
    targets: Floats | None
    lasting: Randomness
    positions: Callable[[int], Positions]
    losses: list[float | None]
    row_weights: Floats | None = None
    prepared: int = -1

    @property
    def channel(self) -> Channel:
        """The only conversation: of a passive party, or of the active one in a flow for two."""
        (channel,) = self.channels
        return channel

    def prepare(self, step: int, labels: Callable[[int], Iterable[str]]) -> None:
        """Start to compute the noise of iterations ``step`` and ``step`` + 1, while this party waits for the other."""
        for ahead in range(max(step, self.prepared + 1), min(step + 2, self.train.iterations)):
            for label in labels(ahead):
                self.encryptor.prepare(label, len(self.positions(ahead)))
            self.prepared = ahead

    def genuine(self, positions: Positions) -> tuple[NDArray[np.bool_], int]:
        """Which of ``positions`` are this party's own, bool[B], and how many; at least one is, see agreement.py."""
        own = self.side.owned[positions]
        return own, int(np.count_nonzero(own))

    def shares(self, positions: Positions) -> Floats:
        """How much each of ``positions`` counts in the mean over own rows, float64[B]: 0 for the others, 1 in all."""
        if self.row_weights is None:
            own, count = self.genuine(positions)
            return np.asarray(own / count)
        weights = self.row_weights[positions]
        return np.asarray(weights / weights.sum())

    async def own_gradient(self, step: int, positions: Positions, residuals: list[Ciphertexts], fraction: int) -> Floats:
        """Σ residual · x of this party's columns, float64[d, K], from encrypted residuals (a column for each group).

        Cost: B·d products under encryption, see :func:`vfl_node.crypto.paillier.matrix.multiply`.

        Leaks: to the key's holder masked values.
        """
        if self.opening is None:
            raise RuntimeError("this party has nothing to open")
        integers = self.side.take(positions)
        sums = [matrix.multiply(self.public, integers, column, self.workers) for column in residuals]
        return self.side.decode_sums(await self.opening.gradient(step, sums), fraction)

    def has_converged(self, loss: float | None) -> bool:
        """Whether ``loss`` differs from the one before by no more than the job's tolerance."""
        before = self.losses[-1] if self.losses else None
        if self.train.tolerance == 0 or loss is None or before is None:
            return False
        return abs(loss - before) <= self.train.tolerance * max(1.0, abs(before))


class Flow(Protocol):
    """One party's part in an iteration."""

    async def iterate(self, step: int) -> Outcome:
        """Take iteration ``step`` together with the other parties."""
