"""What the passive party's owner allows in a linkage, before anything of its records leaves."""

from __future__ import annotations

from vfl_node.alignment.linkage.plan import LinkagePlan
from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.settings.limits import Limits
from vfl_node.settings.refusals import tell_why

MOST_PAIRS, MOST_PASSIVE, MOST_CANDIDATES = 100_000_000, 150_000, 10_000_000
"""In shares. n_A·n_B: some minutes, and 6 GB on the busiest wire; n_B: 64 times as many pairs are in memory; n_A·K: a minute to
draw the noise."""


def check_sigma(sigma: float, limits: Limits) -> None:
    """Refuse less noise than the owner wants. Raises PolicyError."""
    least = limits.linkage.min_sigma
    if sigma < least:
        raise PolicyError(
            f"the noise on similarities would be {sigma:.3g} standard deviations, and this node wants {least:g} or more "
            "(linkage.min_sigma)",
            hint="agree on a larger align.noise.sigma, or on a smaller align.noise.tau; or lower linkage.min_sigma",
            for_peer=tell_why("kind"),
        )


def check_reuse(most: int, median: float, peer: str, limits: Limits) -> None:
    """Refuse that a record of this node is used too often. Raises PolicyError (``E_REUSE``)."""
    if limits.linkage.max_reuse is not None and most > limits.linkage.max_reuse:
        raise PolicyError(
            f"a record of this node would be a candidate of {most} different records of {peer} (the median record of "
            f"{median:g}), and this node allows {limits.linkage.max_reuse} (linkage.max_reuse)",
            code="E_REUSE",
            hint="agree on fewer candidates (align.candidates), or raise linkage.max_reuse in the policy: from many "
            "similarities of a record the other party locates its keys",
            for_peer="its policy does not allow that its records are used as often",
        )


def check_pairs(plan: LinkagePlan) -> None:
    """Refuse a linkage in shares that is too large. Raises UsageError (``E_PAIRS``)."""
    (active, passive), wanted = plan.rows, plan.candidates
    if is_too_large(plan):
        text = (
            f"{active:,} records of the active party and {passive:,} of the passive party make {active * passive:,} pairs and "
            f"{active * wanted:,} candidates; align.comparison: shares compares up to {MOST_PAIRS:,} pairs, for "
            f"{MOST_CANDIDATES:,} candidates, with up to {MOST_PASSIVE:,} records of the passive party"
        )
        raise UsageError(
            text,
            code="E_PAIRS",
            hint="agree on fewer records (align.at_most), or leave align.comparison out, so that the coordinator compares keys",
            for_peer=text,
        )


def is_too_large(plan: LinkagePlan) -> bool:
    """Whether a linkage in shares is refused."""
    active, passive = plan.rows
    return active * passive > MOST_PAIRS or passive > MOST_PASSIVE or active * plan.candidates > MOST_CANDIDATES


def check_room(needed: int, free: float) -> None:
    """Refuse a linkage in shares for which there is no memory, before any is taken. Raises StateError (``E_MEMORY``)."""
    if needed > free:
        raise StateError(
            f"to compare records in shares needs {needed >> 20} MiB of memory; {int(free) >> 20} MiB are free",
            code="E_MEMORY",
            hint="free memory, raise resources.memory_mib, or compare fewer records (align.at_most)",
            for_peer="it has too little memory free for this job",
        )


def no_similarities_error(none: bool) -> PolicyError:
    """The error of a linkage without any candidate, or (``none`` is False) with equal distances alone."""
    what = "no record has a candidate within reach" if none else "all candidates are equally far"
    return PolicyError(
        f"{what}, so there are no similarities",
        code="E_CONSTANT",
        hint="agree on a larger reach, or on more candidates, or check that both parties' columns mean the same",
        for_peer=what,
    )
