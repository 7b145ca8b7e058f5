"""The attacks on labels in words, for reports; loads no torch."""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, tuple[str, str]] = {
    "norm": ("length", "how long the gradient of a row is"),
    "direction": ("direction", "how far it reaches along the leading direction of its batch"),
    "residual": ("residual", "how far it reaches across that direction"),
    "cosine": ("known positives", "how like it is to the gradients of a few rows known to be positive"),
    "mean_norm": ("length, all epochs", "the same of the mean of a row's gradients over all epochs, from which noise vanishes"),
    "mean_direction": ("direction, all epochs", "likewise"),
    "mean_residual": ("residual, all epochs", "likewise"),
    "mean_cosine": ("known positives, all epochs", "likewise"),
    "clusters": ("clusters", "which of two clusters of these means it is in"),
    "clusters_soft": ("clusters, by distance", "how much nearer it is to one centre than to the other"),
    "embeddings": (
        "clusters of embeddings",
        "in which of two clusters of embeddings a row is, as training has shaped them",
    ),
    "embeddings_soft": ("clusters of embeddings, by distance", "how much nearer it is to one centre than to the other"),
}
"""Attack → its name for people, and what it goes by."""
