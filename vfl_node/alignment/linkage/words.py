"""What a report says of linkage with a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vfl_node.alignment.words import AlignmentWords, ReportedAlignment

TAU_MEANS = (
    "τ is the share of filters that one similarity lets the greedy attack of the paper guess exactly. It measures how long "
    "filters are, not how safe keys are. Whoever has several similarities of a record locates its key much better than τ "
    "suggests"
)
"""Goes with every τ that a person sees."""


class SimilarityWords(AlignmentWords):
    """Each record of the active party gets the K most similar ones of the passive party, which a coordinator finds."""

    title = "fuzzy linkage"

    def rows_title(self, alignment: ReportedAlignment) -> str:
        """Each row is a record of the active party."""
        return f"records of {alignment.active}"

    def rows(self, alignment: ReportedAlignment) -> str:
        """What stands beside each."""
        return f"Each row is a record of {alignment.active}, and those of {alignment.passive} whose keys are most like its own."

    def figures(self, figures: Mapping[str, Any]) -> list[str]:
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

    def leaks(self, alignment: ReportedAlignment) -> str:
        """Similarities to one, candidates to the other, distances to the coordinator."""
        coordinator = (
            "to the coordinator how many records both have"
            if alignment.in_shares
            else "to the coordinator how far encoded records of both lie from each other"
        )
        return (
            f"Alignment by similarity reveals to {alignment.active} how similar the nearest records of {alignment.passive} "
            f"are, to {alignment.passive} which of its records are nearest to each record of {alignment.active}, and "
            f"{coordinator}."
        )
