"""What arXiv 2106.06312 (FedSim) has in Tables 2 and 3: mean RMSE and R², or accuracy in %, of five runs."""

from __future__ import annotations

TABLE_2_HDB = {
    "Solo": (29.89, 0.9631),
    "feature": (37.34, 0.9424),
    "mean": (53.09, 0.9162),
    "top1": (31.25, 0.9597),
    "fedsim": (27.28, 0.9693),
}
"""Method → (RMSE, R²). The row of ``mean`` contradicts itself: R² .9162 means an RMSE of 45.0, and 53.09 an R² of .884."""

TABLE_3_GAME = {"Solo": 81.67, "exact": 92.71, "feature": 90.97, "mean": 90.68, "top1": 92.57, "fedsim": 92.93}
