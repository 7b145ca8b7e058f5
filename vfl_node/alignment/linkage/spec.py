"""What linkage with a coordinator is, costs and reveals (:mod:`vfl_node.alignment.linkage.protocol`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vfl_node.alignment.costs import ListCost
from vfl_node.alignment.spec import AlignmentSpec, ReportedAlignment
from vfl_node.job.keys import check_filters

if TYPE_CHECKING:
    from vfl_node.job import Align
    from vfl_node.roles import Role
    from vfl_node.settings.node import Obfuscation


TAU_MEANS = (
    "τ is the share of filters that one similarity lets the greedy attack of the paper guess exactly. It measures how long "
    "filters are, not how safe keys are. Whoever has several similarities of a record locates its key much better than τ "
    "suggests"
)
"""Goes with every τ that a person sees."""


MOST_SIGMA = 1000
"""In shares, so that noise does not wrap around."""


class FuzzyLinkage(AlignmentSpec):
    """Each record of the active party gets the K most similar ones of the passive party, which a coordinator finds."""

    def check(self, align: Align) -> None:
        """As :meth:`AlignmentSpec.check`: keys and noise must be there, and filters not too large."""
        if align.keys is None:
            raise ValueError("align.protocol: linkage compares records by align.keys, which are missing")
        if align.padding:
            raise ValueError(
                "align.padding: linkage sends a filter for each record, so it shows how many there are: leave it out"
            )
        if align.group != type(align).model_fields["group"].default:
            raise ValueError("align.group: linkage compares filters, and blinds no ids in a group: leave it out")
        if align.expect.at_least > 1:
            raise ValueError("align.expect counts shared records, of which linkage knows none: leave it out")
        if align.equal_only and align.noise and align.noise.tau is not None:
            raise ValueError(
                "align.noise.tau: with align.equal_only all distances are 0, and tau has no meaning: say sigma, 0 for none"
            )
        if align.noise is None:
            raise ValueError(
                "align.protocol: linkage needs align.noise: say {sigma: 0.4}, for example, or {sigma: 0} for similarities as "
                "they are"
            )
        if align.comparison == "shares":
            _check_shares(align)
        check_filters(align.keys, align.encoding)

    def lists(self, n_a: int, n_p: int, m: int) -> list[ListCost]:
        """As :meth:`AlignmentSpec.lists`: none, as no element of a group is sent."""
        return []

    def costliest_length(self, n_a: int, n_p: int) -> int:
        """That of the active party's set."""
        return n_a

    def longest(self, sizes: Sequence[int]) -> int:
        """All of the active party's set."""
        return sizes[0]

    def lengths(self, align: Align, sizes: Sequence[int], shared: int, obfuscation: Obfuscation) -> Iterator[int]:
        """As many rows as the active party has records."""
        yield sizes[0]

    def lengths_of_one(self, own: int, both: int | None) -> None:
        """Nothing, as only one of the parties has as many records as there are rows."""

    def shows_shared_records_to(self, role: Role) -> bool:
        """Nobody: no record is shared, some are alike."""
        return False

    def rows_title(self, of: ReportedAlignment) -> str:
        """Each row is a record of the active party."""
        return f"records of {of.active}"

    def rows_text(self, of: ReportedAlignment) -> str:
        """What stands beside each."""
        return f"Each row is a record of {of.active}, and those of {of.passive} whose keys are most like its own."

    def figures_text(self, figures: Mapping[str, Any]) -> list[str]:
        """Candidates, noise, and what τ is and is not."""
        without = figures["without_candidate"]
        lines = [
            f"{figures['candidates']:,} candidates for each record, by filters of {figures['bits']:,} bits"
            + (", compared in shares" if figures.get("comparison") == "shares" else "")
            + (f"; {without:,} records without any" if without else "")
        ]
        noise = f"noise of {figures['sigma']:g} standard deviations" if figures["sigma"] else "no noise (sigma: 0)"
        if figures["tau"] is None:
            lines.append(f"{noise}; candidates are records with equal filters")
        else:
            lines.append(
                f"{noise}: τ = {100 * figures['tau']:.3g} %, with these filters at least {100 * figures['tau_min']:.3g} %; so "
                f"{figures['expected_disclosed']:.3g} filters would be guessed. {TAU_MEANS}"
            )
        if figures["reuse"] is not None:
            lines.append(f"one of this party's records is a candidate of up to {figures['reuse']:,} different ones")
        return lines

    def leak_text(self, of: ReportedAlignment) -> str:
        """Similarities to one, candidates to the other, distances to the coordinator."""
        coordinator = (
            "to the coordinator how many records both have"
            if of.in_shares
            else "to the coordinator how far encoded records of both lie from each other"
        )
        return (
            f"Alignment by similarity reveals to {of.active} how similar the nearest records of {of.passive} are, to "
            f"{of.passive} which of its records are nearest to each record of {of.active}, and {coordinator}."
        )


def _check_shares(align: Align) -> None:
    """Refuse what a linkage in shares does not do. Raises ValueError."""
    if align.equal_only:
        raise ValueError(
            "align.equal_only: with align.comparison: shares candidates are the nearest; for keys that are equal take psi"
        )
    assert align.noise is not None
    if align.noise.sigma is None:
        raise ValueError(
            "align.noise.tau: with align.comparison: shares the coordinator draws the noise and does not know how distances "
            "spread: say sigma"
        )
    if align.noise.sigma > MOST_SIGMA:
        raise ValueError(f"align.noise.sigma: with align.comparison: shares it is {MOST_SIGMA:,} at most")


LINKAGE = FuzzyLinkage(
    name="linkage",
    title="fuzzy linkage",
    shared_rows="the active party's records",
    sides={role: f"vfl_node.alignment.linkage.protocol:{role}" for role in ("active", "passive", "coordinator")},
    synthetic_rows_at=frozenset(),
    intersection_hidden_from=frozenset(),
    padded_roles=frozenset(),
    options=frozenset({"keys", "encoding", "candidates", "equal_only", "noise", "comparison"}),
    max_passive_parties=1,
    why_not_more="a row has candidates of one party",
    compared_with="psi",
    allowed_by_default=False,
    by_similarity=True,
)
