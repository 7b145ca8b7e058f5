"""What stands in for a shared row that a party does not own, and how it is corrected for.

Three registries, each a dict from the name in the job: a new strategy is one entry.
"""

from __future__ import annotations

from vfl_node.training.missing.calibration import CALIBRATIONS, Calibration, Composition
from vfl_node.training.missing.features import FEATURES, source_rows
from vfl_node.training.missing.labels import LABELS, shared_labels

__all__ = ["CALIBRATIONS", "FEATURES", "LABELS", "Calibration", "Composition", "shared_labels", "source_rows"]
