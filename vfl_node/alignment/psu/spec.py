"""What private set union is (:mod:`vfl_node.alignment.psu.protocol`)."""

from __future__ import annotations

from vfl_node.job.alignment import Align, AlignmentSpec, SeveralPassive
from vfl_node.roles import DATA_ROLES


class PrivateSetUnion(AlignmentSpec):
    """Both parties index all records of either; neither learns which ones are shared."""

    def check_several(self, align: Align) -> None:
        """Dummies hide the overlap of two sets, not the overlaps of more."""
        if align.dummies:
            raise ValueError(
                "align.dummies hides how many records two parties share; with several passive parties the active one sees the "
                "sizes of all their overlaps, which these dummies do not hide: leave it out"
            )


PSU = PrivateSetUnion(
    name="psu",
    shared_rows="the union",
    sides={role: f"vfl_node.alignment.psu.protocol:{role}" for role in DATA_ROLES},
    several=SeveralPassive(
        most=8,
        why_not_more="each party raises the lists of all others, and each further party doubles the number of parts of the "
        "overlap",
        sides={role: f"vfl_node.alignment.several.protocol:{role}" for role in DATA_ROLES},
    ),
    plan="vfl_node.alignment.psu.plan:UnionPlan",
    words="vfl_node.alignment.psu.words:UnionWords",
    reveals="vfl_node.alignment.psu.reveals:declare",
    synthetic_rows_at=frozenset(DATA_ROLES),
    intersection_hidden_from=frozenset(),
    padded_roles=frozenset(DATA_ROLES),
    options=frozenset({"dummies"}),
)
