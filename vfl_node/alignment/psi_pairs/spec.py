"""What private set intersection in pairs is (:mod:`vfl_node.alignment.psi_pairs.protocol`)."""

from __future__ import annotations

from vfl_node.job.alignment import AlignmentSpec, SeveralPassive
from vfl_node.roles import DATA_ROLES

_SIDES = {role: f"vfl_node.alignment.psi_pairs.protocol:{role}" for role in DATA_ROLES}

PSI_PAIRS = AlignmentSpec(
    name="psi-pairs",
    shared_rows="the intersection",
    sides=_SIDES,
    several=SeveralPassive(most=8, why_not_more="the active party computes with each pair in turn", sides=_SIDES),
    plan="vfl_node.alignment.psi_pairs.plan:PairwisePlan",
    words="vfl_node.alignment.psi_pairs.words:PairwiseWords",
    reveals="vfl_node.alignment.psi_pairs.reveals:declare",
    synthetic_rows_at=frozenset(),
    intersection_hidden_from=frozenset(),
    padded_roles=frozenset(DATA_ROLES),
    options=frozenset(),
    allowed_by_default=False,
)
"""The active party learns which records it shares with each passive party; all index those that everybody has."""
