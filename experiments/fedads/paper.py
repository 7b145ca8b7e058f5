"""What arXiv 2305.08328 (FedAds) has in Table 4: 10 million clicks, .6 % positives, one epoch, a top of one layer."""

from __future__ import annotations

TABLE_4 = {"none": (None, 0.620), "dp": (-0.057, 0.602), "marvell": (-0.247, 0.601), "mixpro": (-0.113, 0.602)}
"""Defence → (relative change of the leak by two clusters of embeddings, AUC of the model). σ, C and s are not stated."""

LOSS = TABLE_4["none"][1] - 0.602
"""AUC that each of its defences costs, about: they are compared at equal loss."""
