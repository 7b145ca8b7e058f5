"""What unbalanced private set intersection is (:mod:`vfl_node.alignment.upsi.protocol`)."""

from __future__ import annotations

from dataclasses import replace

from vfl_node.job.alignment import Align, AlignmentSpec, SeveralPassive
from vfl_node.roles import DATA_ROLES


class UnbalancedIntersection(AlignmentSpec):
    """One party asks about its few records; the other one answers, and has sent a list of its many ones once."""

    def fit_to(self, align: Align) -> AlignmentSpec:
        """As :meth:`AlignmentSpec.fit_to`: what each party computes depends on which of them answers."""
        return replace(self, plan="vfl_node.alignment.upsi.plan:ActiveServes") if align.server == "active" else self


UPSI = UnbalancedIntersection(
    name="upsi",
    shared_rows="the intersection",
    sides={role: f"vfl_node.alignment.upsi.protocol:{role}" for role in DATA_ROLES},
    several=SeveralPassive(most=1, why_not_more="one party asks, and one answers; psi aligns more"),
    plan="vfl_node.alignment.upsi.plan:PassiveServes",
    words="vfl_node.alignment.upsi.words:UnbalancedWords",
    reveals="vfl_node.alignment.upsi.reveals:declare",
    synthetic_rows_at=frozenset(),
    intersection_hidden_from=frozenset(),
    padded_roles=frozenset(DATA_ROLES),
    options=frozenset({"server"}),
    allowed_by_default=False,
    answers_questions=True,
)
"""Both parties learn which of their records are shared; the one that asks, until the other one changes its key."""
