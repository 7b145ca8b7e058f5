"""What asymmetric private set intersection is (:mod:`vfl_node.alignment.apsi.protocol`)."""

from __future__ import annotations

from vfl_node.job.alignment import Align, AlignmentSpec, SeveralPassive
from vfl_node.roles import DATA_ROLES


class AsymmetricIntersection(AlignmentSpec):
    """Both parties index an obfuscated set of the passive party's records; only the active one knows which are shared."""

    def check(self, align: Align) -> None:
        """As :meth:`AlignmentSpec.check`; the obfuscated set must have a size."""
        if align.obfuscation is None:
            raise ValueError(
                "apsi needs align.obfuscation, the size of the set that both parties see: {size: RECORDS}, "
                "{fraction: OF THE PASSIVE SET}, or private (the active node's settings say)"
            )


APSI = AsymmetricIntersection(
    name="apsi",
    shared_rows="the obfuscated set",
    sides={role: f"vfl_node.alignment.apsi.protocol:{role}" for role in DATA_ROLES},
    several=SeveralPassive(
        most=1,
        why_not_more="each pair would get an obfuscated set of its own, and together they would reveal more of the active "
        "party's set",
    ),
    plan="vfl_node.alignment.apsi.plan:AsymmetricPlan",
    words="vfl_node.alignment.apsi.words:AsymmetricWords",
    reveals="vfl_node.alignment.apsi.reveals:declare",
    synthetic_rows_at=frozenset({"active"}),
    intersection_hidden_from=frozenset({"passive"}),
    padded_roles=frozenset({"active"}),
    options=frozenset({"obfuscation"}),
)
