"""How many bits of security the parameter sets of ``vfl_node.crypto.lattice`` have.

It prints what tables of others allow, an own estimate, and what the lattice estimator says of exactly these sets (Albrecht,
Player and Scott 2015, github.com/malb/lattice-estimator). The estimator is left out where it cannot be imported: it needs
SageMath, or passagemath-standard-no-symbolics and passagemath-symbolics from PyPI, and its folder on PYTHONPATH. The own
estimate shares no code with it.

The own estimate is of two attacks:

* primal attack (uSVP): Kannan's embedding of (e, ω·s), ω = σ_e / σ_s, in dimension d = m + n + 1 and volume q^m·ω^n. BKZ with
  blocks of β finds it where √β·σ_e ≤ δ^(2β − d − 1)·volume^(1/d) (Alkim and others 2016).
* dual attack: vectors of length ℓ = δ^d·(q/ω)^(n/d) tell samples from uniform ones with advantage exp(−2π²(ℓ·σ_e/q)²); a sieve
  gives 2^(.2075β) of them at the price of one (the same). Refinements with a transform (MATZOV 2022) may save some bits more.

δ is that of blocks of β, and m is chosen best. "Core" counts one call of a sieve, 2^(.292β) on a classical and 2^(.265β) on a
quantum computer. "Calls" adds 16.4 bits for a sieve's polynomial part, and 8·d calls, as the tables of the standard of 2018 do.

Run: ``python -m experiments.lattice_security``
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass

from vfl_node.crypto.lattice.parameters import ERROR_VARIANCE, LINEAR, SLOTS, N

TABLES = {  # largest log2 q for N = 8192, a ternary key and 128 bits
    "Homomorphic Encryption Standard 2018, classical": 218,
    "Security Guidelines 2024, classical": 214,
    "Security Guidelines 2024, quantum": 161,
}
ATTACKS = ("primal_usvp", "primal_bdd", "dual", "dual_hybrid")
MODELS = ("MATZOV", "BDGL16", "ADPS16", "LaaMosPol14", "ChaLoy21")
"""Attacks of the lattice estimator, and ways in which it counts the work of one; its default is the first."""
TERNARY_DEVIATION = math.sqrt(2 / 3)


@dataclass(frozen=True)
class Problem:
    """Learning with errors: n, q, and the deviations of key and errors."""

    n: int
    log2_q: float
    key_deviation: float
    error_deviation: float


@dataclass(frozen=True)
class Cost:
    """An attack's block size, dimension, and bits beyond one call of a sieve."""

    block: int
    dimension: int
    more: float = 0.0

    def bits(self, *, quantum: bool = False, calls: bool = False) -> float:
        """log2 of its time."""
        exponent = (0.265 if quantum else 0.292) * self.block + self.more
        return exponent + (16.4 + math.log2(8 * self.dimension) if calls else 0.0)


def log2_delta(block: int) -> float:
    """log2 of the root Hermite factor of BKZ with such blocks (Chen 2013)."""
    inner = math.log2(math.pi * block) / block + math.log2(block / (2 * math.pi * math.e))
    return inner / (2 * (block - 1))


def primal(problem: Problem) -> Cost:
    """The cheapest primal attack: the smallest block with which it succeeds in some dimension."""
    low, high = 60, problem.n  # blocks are smaller than the dimension
    while low < high:
        block = (low + high) // 2
        if _dimension(problem, block):
            high = block
        else:
            low = block + 1
    return Cost(low, _dimension(problem, low))


def _dimension(problem: Problem, block: int) -> int:
    """A dimension in which blocks of this size succeed, the most favourable one; 0: none."""
    ratio, delta = math.log2(problem.error_deviation / problem.key_deviation), log2_delta(block)
    best, found = 0.0, 0
    for samples in range(problem.n // 16, 2 * problem.n + 1, max(1, problem.n // 256)):
        d = samples + problem.n + 1
        right = delta * (2 * block - d - 1) + (samples * problem.log2_q + problem.n * ratio) / d
        if d > block and right - 0.5 * math.log2(block) - math.log2(problem.error_deviation) > best:
            best, found = right - 0.5 * math.log2(block) - math.log2(problem.error_deviation), d
    return found


def dual(problem: Problem, *, quantum: bool = False) -> Cost:
    """The cheapest dual attack."""
    ratio = math.log2(problem.error_deviation / problem.key_deviation)
    costs = []
    for block in range(60, 2000):
        delta = log2_delta(block)
        d = min(
            range(problem.n + problem.n // 16, 3 * problem.n + 1, problem.n // 256),
            key=lambda d: _length(problem, ratio, delta, d),
        )
        tau = 2 ** (_length(problem, ratio, delta, d) + math.log2(problem.error_deviation) - problem.log2_q)
        repeats = 4 * math.pi**2 * min(tau, 1e6) ** 2 / math.log(2)  # log2 of 1 / advantage²
        costs.append(Cost(block, d, max(0.0, repeats - 0.2075 * block)))
    return min(costs, key=lambda cost: cost.bits(quantum=quantum))


def _length(problem: Problem, ratio: float, delta: float, d: int) -> float:
    """log2 of the length of a short vector of the dual lattice, of dimension d."""
    return delta * d + problem.n * (problem.log2_q - ratio) / d


def main() -> None:
    """Prints all of it."""
    for name, largest in TABLES.items():
        verdicts = ", ".join(f"{chosen.name}: {_verdict(math.log2(chosen.q), largest)}" for chosen in (LINEAR, SLOTS))
        print(f"{name}: log2 q <= {largest}; {verdicts}")
    for chosen in (LINEAR, SLOTS):
        problem = Problem(N, math.log2(chosen.q), TERNARY_DEVIATION, math.sqrt(ERROR_VARIANCE))
        title = f"N {N}, log2 q {problem.log2_q:.0f}, ternary key, binomial errors of deviation {problem.error_deviation:.2f}"
        print(f"\n{title} ({chosen.name}{'' if chosen is LINEAR else ', monomials'}); own estimate, not the estimator's:")
        for attack, classical, quantum in (
            ("primal", primal(problem), primal(problem)),
            ("dual", dual(problem), dual(problem, quantum=True)),
        ):
            print(
                f"{attack}: block {classical.block}, dimension {classical.dimension}; classical: core "
                f"{classical.bits():.1f}, calls {classical.bits(calls=True):.1f}; quantum: core "
                f"{quantum.bits(quantum=True):.1f}, calls {quantum.bits(quantum=True, calls=True):.1f}"
            )
        _run_estimator(chosen.q)


def _verdict(log2_q: float, largest: int) -> str:
    return f"{log2_q:.0f}, met" if log2_q <= largest else f"{log2_q:.0f}, not met"


def _run_estimator(q: int) -> None:
    try:
        estimator = importlib.import_module("estimator")
    except ImportError:
        print("the lattice estimator is not installed here")
        return
    chosen = estimator.LWE.Parameters(n=N, q=q, Xs=estimator.ND.Uniform(-1, 1), Xe=estimator.ND.CenteredBinomial(21))
    for model in MODELS:
        costs = {name: getattr(estimator.LWE, name)(chosen, red_cost_model=getattr(estimator.RC, model)) for name in ATTACKS}
        bits = {name: math.log2(cost["rop"]) for name, cost in costs.items()}
        print(f"lattice estimator, {model}: {', '.join(f'{name} {value:.1f}' for name, value in bits.items())}")


if __name__ == "__main__":
    main()
