"""What linkage with a coordinator is (:mod:`vfl_node.alignment.linkage.protocol`)."""

from __future__ import annotations

from vfl_node.job.alignment import Align, AlignmentSpec, SeveralPassive
from vfl_node.job.keys import check_filters

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
    shared_rows="the active party's records",
    sides={role: f"vfl_node.alignment.linkage.protocol:{role}" for role in ("active", "passive", "coordinator")},
    several=SeveralPassive(most=1, why_not_more="a row has candidates of one party"),
    plan="vfl_node.alignment.linkage.plan:SimilarityPlan",
    words="vfl_node.alignment.linkage.words:SimilarityWords",
    reveals="vfl_node.alignment.linkage.reveals:declare",
    synthetic_rows_at=frozenset(),
    intersection_hidden_from=frozenset(),
    padded_roles=frozenset(),
    options=frozenset({"keys", "encoding", "candidates", "equal_only", "noise", "comparison"}),
    allowed_by_default=False,
    by_similarity=True,
    ways=({}, {"comparison": "shares"}),
)
