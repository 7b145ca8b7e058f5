"""What arXiv 2305.08328 (FedAds) has in Tables 3 and 4: 10 million clicks, .6 % positives, one epoch, a top of one layer."""

from __future__ import annotations

TABLE_4 = {"none": (None, 0.620), "dp": (-0.057, 0.602), "marvell": (-0.247, 0.601), "mixpro": (-0.113, 0.602)}
"""Defence → (relative change of the leak by two clusters of embeddings, AUC of the model). σ, C and s are not stated."""

LOSS = TABLE_4["none"][1] - 0.602
"""AUC that each of its defences costs, about: they are compared at equal loss."""

TABLE_3 = {
    "Local": (0.609, 0.0391),
    "VanillaVFL": (0.620, 0.0389),
    "Heuristic": (0.630, 0.0387),
    "SS-VFL": (0.636, 0.0381),
    "FedCVT": (0.639, 0.0379),
    "VFL-MPD": (0.641, 0.0373),
    "FedHSSL": (0.642, 0.0375),
    "JPL": (0.644, 0.0374),
    "Diffu-AT": (0.645, 0.0375),
    "Oracle": (0.658, 0.0367),
}
"""Method → (AUC, NLL). A constant has an NLL of .0367 to .0392, as the rate of positives is rounded."""
