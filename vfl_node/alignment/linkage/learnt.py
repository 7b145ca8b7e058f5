"""What each party learns from a linkage, with a job's numbers, in words."""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.alignment.linkage.side import LinkageSizes
from vfl_node.job import Job
from vfl_node.ledger import Disclosure


def disclosures(job: Job, sizes: LinkageSizes, sigma: float, reuse: int | None) -> Mapping[str, tuple[Disclosure, ...]]:
    """Party → what it learnt.

    Args:
        job: the job.
        sizes: of the linkage.
        sigma: of the noise.
        reuse: how many different records of the active party have one record as a candidate; None if that is not known.
    """
    active, passive, coordinator = job.parties.pair["active"], job.parties.pair["passive"], str(job.parties.coordinator)
    candidates = job.align.candidates
    noise = (
        f"with noise of {sigma:g} standard deviations, the same in every job on these terms"
        if sigma
        else "exactly, without noise"
    )
    if in_shares := job.align.comparison == "shares":
        noise = noise.replace("on these terms", "over the same sets on these terms")
    equal = "" if in_shares and sigma else ", and equal similarities show equal keys"
    most = "one for each of its records that has it as a candidate" if reuse is None else f"up to {reuse}"
    return {
        active: (
            Disclosure("set size", sizes.passive, f"the number of {passive}'s records: {sizes.passive}"),
            Disclosure(
                "similarities",
                sizes.active * candidates,
                f"for each of its {sizes.active} records how similar {candidates} of {passive}'s are, {noise}. Where fewer are "
                f"within reach it sees how many, which no noise hides{equal}. It does not get "
                f"their numbers, but a training shows which similarities are of the same record, {most}. It knows the keys of "
                "the records that have it as a candidate, which locate it without any similarity, and how keys are encoded: "
                "with many similarities it locates it much better",
            ),
        ),
        passive: (
            Disclosure("set size", sizes.active, f"the number of {active}'s records: {sizes.active}"),
            Disclosure(
                "candidate rows",
                sizes.active * candidates,
                f"where {active}'s records are: which {candidates} of its own records are nearest to each of them. This set "
                "alone locates the keys of each of these records, and noise does not change it",
            ),
        ),
        coordinator: _dealer_disclosures(job, sizes)
        if in_shares
        else (
            Disclosure(
                "encodings",
                sizes.active + sizes.passive,
                f"the encoded keys of {sizes.active} records of {active} and {sizes.passive} of {passive}, {sizes.bits} bits "
                "each, and so which of them have equal keys",
            ),
            Disclosure(
                "distances",
                sizes.active * sizes.passive,
                "how far any two of these records lie apart, also two of the same party: a map of all of them. A public list, "
                "of names or addresses for example, puts it in its place and names the records, without a record that it knows",
            ),
        ),
    }


def _dealer_disclosures(job: Job, sizes: LinkageSizes) -> tuple[Disclosure, ...]:
    """What the coordinator of a linkage in shares learns."""
    active, passive = job.parties.pair["active"], job.parties.pair["passive"]
    return (
        Disclosure(
            "set sizes",
            sizes.active + sizes.passive,
            f"how many records there are, {sizes.active} of {active} and {sizes.passive} of {passive}, and whether they or "
            "their keys have changed since an earlier job. It gets no encoded key and no distance",
        ),
    )
