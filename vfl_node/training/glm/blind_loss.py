"""The loss in the coordinator flow: one ciphertext, which the active party sums up and has decrypted, masked.

d = c·z − s(y) is the residual of a polynomial loss ℓ(z) = k(y) − s(y)·z + ½c·z² (:class:`~.plain.Polynomial`), u_a the active
party's score, and u_j that of passive party j, of which the active one has Enc(u_j).

Squares, with one passive party: z² = u_a² + 2·u_a·u + u², for which it sends Enc(u²) of each row.

Products, with several: z² has terms u_j·u_l of two passive parties, which neither they nor the active party could form from
ciphertexts of single scores. But ½c·z² = ½(d + s)·z, and the sum of d·z over the rows is that of θ·G over all parties: each
knows its own gradient G_j in clear::

    Σ_I ℓ_i/|I| = Σ_I (k_i − ½s_i·z_i)/|I| + ½ Σ_j θ_j·G_j        of Enc(u_j,i) and of one Enc(½θ_j·G_j) from each passive party

Either takes the same work of dummies as of genuine rows, in a column that is discarded.

Leaks: to the active party ciphertexts, and in the end the loss alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.fixed_point import encode
from vfl_node.crypto.paillier import ciphertexts as homomorphic
from vfl_node.crypto.paillier import matrix
from vfl_node.crypto.paillier.keys import Ciphertexts
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.flow import IterationContext
from vfl_node.training.glm.plain import Polynomial
from vfl_node.training.glm.scales import SCORE, WEIGHT
from vfl_node.training.glm.side import Floats

SQUARES, PRODUCTS = "squares", "products"


def loss_tensor(train: GeneralisedLinear, passive_parties: int) -> str | None:
    """What passive parties send so that the active one can compute the loss; None where it is not computed."""
    if train.tolerance == 0:
        return None
    return SQUARES if passive_parties == 1 else PRODUCTS


class GenuineRows:
    """The rows of one iteration that count, of two classes or a number.

    Args:
        context: the active party's.
        polynomial: the loss.
        scores: the active party's own, float64[B].
        targets: float64[B].
        genuine: bool[B], which rows count.
    """

    def __init__(
        self, context: IterationContext, polynomial: Polynomial, scores: Floats, targets: Floats, genuine: NDArray[np.bool_]
    ) -> None:
        self._context, self._polynomial = context, polynomial
        self._scores, self._targets, self._genuine = scores, targets, genuine
        self._count = int(np.count_nonzero(genuine))

    def loss_from_squares(self, theirs: Ciphertexts, squares: Ciphertexts) -> Ciphertexts:
        """Enc(mean loss), at SCORE + WEIGHT fractional bits, from Enc(u) and Enc(u²)."""
        polynomial, ours, targets = self._polynomial, self._scores, self._targets
        linear = encode(polynomial.derivative(ours, targets) / self._count, WEIGHT)
        quadratic = [round(polynomial.curvature / 2 / self._count * 2**WEIGHT)] * len(linear)
        return self._sum([*linear, *quadratic], [theirs, squares], polynomial.value(ours, targets))

    def loss_from_products(self, theirs: Ciphertexts, products: Sequence[Ciphertexts], own: float) -> Ciphertexts:
        """The same from Enc(Σ_j u_j), each Enc(½θ_j·G_j), and ``own``, the active party's θ·G."""
        slope = self._polynomial.slope(self._targets)
        rest = self._polynomial.constant(self._targets) - slope * self._scores / 2
        summed = self._sum(encode(-slope / 2 / self._count, WEIGHT), [theirs], rest)
        public, (half,) = self._context.public, encode(np.array([own / 2]), SCORE + WEIGHT)
        everything = homomorphic.total(public, np.concatenate([summed, *products]))
        return homomorphic.add_plain(public, everything, [half], self._context.workers)

    def _sum(self, factors: list[int], columns: Sequence[Ciphertexts], known: Floats) -> Ciphertexts:
        """The genuine rows' part of Σ factor · ciphertext, plus the mean over them of what is ``known`` of each row."""
        public, workers = self._context.public, self._context.workers
        coefficients = np.array(factors, dtype=np.int64)
        real = np.concatenate([self._genuine] * len(columns))
        both = np.stack([coefficients * real, coefficients * ~real], axis=1)  # genuine, decoy
        sums = matrix.multiply(public, both, np.concatenate(columns), workers)
        constant = sum(encode(known * self._genuine / self._count, SCORE + WEIGHT))
        return homomorphic.add_plain(public, sums[:1], [constant], workers)
