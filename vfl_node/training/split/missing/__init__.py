"""What stands in for a shared row that a party does not own, and how it is corrected for.

Three registries, each a dict from the name in the job: a new strategy is one entry.
"""

from __future__ import annotations

from vfl_node.training.split.missing.calibration import CALIBRATIONS, Calibration, Composition, Rate, calibration
from vfl_node.training.split.missing.features import EMBEDDINGS, Substitute, stand_in
from vfl_node.training.split.missing.labels import LABELS, Known, Labels, Step

__all__ = [
    "CALIBRATIONS",
    "EMBEDDINGS",
    "LABELS",
    "Calibration",
    "Composition",
    "Known",
    "Labels",
    "Rate",
    "Step",
    "Substitute",
    "calibration",
    "stand_in",
]
