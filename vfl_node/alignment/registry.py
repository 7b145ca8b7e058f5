"""The alignment protocols by the names that a job file uses.

A package adds one by an entry point of the group ``vfl_node.alignments`` that names an
:class:`~vfl_node.alignment.spec.AlignmentSpec`. docs/explanations/alignment/index.md ("Another protocol") says what belongs to
it.
"""

from __future__ import annotations

from vfl_node.alignment.spec import AlignmentSpec
from vfl_node.configuration.registry import Registry, instance_of

ALIGNMENTS: Registry[AlignmentSpec] = Registry(
    "vfl_node.alignments",
    {
        "psu": "vfl_node.alignment.psu.spec:PSU",
        "psi": "vfl_node.alignment.psi.spec:PSI",
        "apsi": "vfl_node.alignment.apsi.spec:APSI",
        "psi-star": "vfl_node.alignment.psi_star.spec:PSI_STAR",
        "linkage": "vfl_node.alignment.linkage.spec:LINKAGE",
    },
    check=instance_of(AlignmentSpec),
)
"""``align.protocol`` → what the protocol is; its implementation is loaded when it first runs."""
