"""The properties of private set intersection that other parts ask for (:mod:`vfl_node.alignment.psi.protocol`)."""

from __future__ import annotations

from vfl_node.job.alignment import AlignmentSpec, SeveralPassive
from vfl_node.roles import DATA_ROLES

PSI = AlignmentSpec(
    name="psi",
    shared_rows="the intersection",
    sides={role: f"vfl_node.alignment.psi.protocol:{role}" for role in DATA_ROLES},
    several=SeveralPassive(
        most=8,
        why_not_more="each party raises the lists of all others, and each further party doubles the number of parts of the "
        "overlap",
        sides={role: f"vfl_node.alignment.several.protocol:{role}" for role in DATA_ROLES},
    ),
    plan="vfl_node.alignment.psi.plan:IntersectionPlan",
    words="vfl_node.alignment.psi.words:IntersectionWords",
    reveals="vfl_node.alignment.psi.reveals:declare",
    synthetic_rows_at=frozenset(),
    intersection_hidden_from=frozenset(),
    padded_roles=frozenset(DATA_ROLES),
    options=frozenset(),
)
"""Both parties learn which of their records are shared, and number these in one order."""
