"""The properties of the alignment ``psi_floor``: it is PSI, but a job that finds too few shared records ends."""

from __future__ import annotations

from dataclasses import replace

from vfl_node.alignment.psi.spec import PSI

PSI_FLOOR = replace(
    PSI,
    name="psi_floor",
    sides={"active": "vfl_example.psi_floor:active", "passive": "vfl_example.psi_floor:passive"},
    words="vfl_example.psi_floor_words:FloorWords",
)
