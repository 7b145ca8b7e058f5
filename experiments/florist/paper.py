"""The published numbers (Song et al. 2021, arXiv 2106.05508), to be held beside ours.

Criteo (4.1 million rows, about a tenth of it for testing) and Avazu (40 million), batches of 8,192.
"""

from __future__ import annotations

DATA = ("Criteo", "Avazu")

LABELS = {  # Tables 1 and 6, β = .5: attack AUC
    "majority": (0.5761, 0.5583),
    "majority-tr": (0.5768, 0.5583),
    "majority-te": (0.5764, 0.5574),
    "minority": (0.6511, 0.5846),
    "random-pos": (0.5342, 0.4426),
    "random-pred": (0.5074, 0.5006),
    "neighbors": (0.5445, 0.5369),
}

FEATURES = {  # Tables 2 and 7, α = .5: attack AUC
    "gaussian": (0.9766, 0.8961),
    "random": (0.982, 0.8975),
    "sampling": (0.5059, 0.5402),
    "sampling-tr": (0.5067, 0.5342),
    "sampling-te": (0.5064, 0.5570),
}

CHANGE = {  # Tables 3 and 8, α = β: change of the AUC against baseline-partial, per cent
    0.05: (-0.076, -0.066),
    0.1: (-0.165, -0.17),
    0.25: (-0.408, -0.41),
    0.5: (-1.259, -1.14),
    0.6: (-1.707, -1.75),
    0.75: (-3.081, -3.78),
    0.8: (-3.566, -4.71),
    0.9: (-4.924, -11.55),
    0.95: (-5.119, -11.71),
}

DRAWS = {  # Table 5, Avazu, β = .5: draws → AUC and attack AUC of random-pred
    1: (0.7465, 0.5001),
    2: (0.7482, 0.5227),
    3: (0.7482, 0.5812),
    4: (0.7486, 0.6249),
    5: (0.7490, 0.6512),
    6: (0.7491, 0.6753),
    7: (0.7489, 0.7041),
    8: (0.7492, 0.7175),
    9: (0.7492, 0.7299),
    10: (0.7493, 0.7438),
}
