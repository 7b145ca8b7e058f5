"""What arXiv 2104.14383 has in its tables, on data that are not at hand (Purchase100) or larger than ours (Adult)."""

from __future__ import annotations

BATCHES = (32, 128, 256)

TABLE_2 = {
    "Purchase100, recall": {"static": (0.9861, 0.9883, 0.9918), "adaptive": (0.9907, 0.9973, 0.9984)},
    "Adult, error": {"static": (0.0130, 0.0131, 0.0110), "adaptive": (0.0193, 0.0185, 0.0160)},
}
"""Data and metric → attack → value for each of :data:`BATCHES`."""

TABLE_5 = {
    "baseline": (0.9100, (0.0654, 0.9320), (0.0511, 0.8925)),
    "basic": (0.8790, (0.3183, 0.6760), (0.3045, 0.5820)),
    "fbs": (0.8879, (0.3067, 0.6876), (0.3118, 0.5767)),
}
"""Purchase100 over three parties, α = .01: defence → accuracy, then error and recall of each victim."""

FIGURE_3_FBS = {"Purchase100": 0.0045, "COCO-QA": 0.0338, "Adult": 0.0021, "Credit": 0.0069}
"""Data → mean loss of accuracy of fbs over its settings."""

TABLE_3 = {
    "Purchase100, first 100": {100: 0.785, 200: 0.7946, 300: 0.8015},
    "COCO-QA, first 30": {30: 0.489, 60: 0.4822, 90: 0.4959},
}
"""Attacked attributes → number of protected ones → recall."""

TABLE_4 = {
    "Purchase100, recall": {10: (0.9134, 0.7983), 20: (0.9091, 0.7672), 30: (0.9085, 0.7312)},
    "Adult, error": {5: (0.8394, 0.2097), 10: (0.8432, 0.248), 20: (0.8411, 0.2519)},
}
"""Data and metric → N2 → accuracy, and the metric."""
