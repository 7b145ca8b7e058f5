"""The attacks on labels in words, for reports; loads no torch."""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, tuple[str, str]] = {
    "norm": ("length", "how long the gradient of a row is"),
    "direction": ("direction", "how far it reaches along the leading direction of its batch"),
    "residual": ("residual", "how far it reaches across that direction"),
    "cosine": ("known positives", "how like it is to the gradients of a few rows known to be positive"),
    "mean_norm": ("length, all epochs", "the same of the mean of a row's gradients over all epochs, from which noise vanishes"),
    "side_norm": ("length within a side", "the same among the rows that reach to the same side of the leading direction"),
    "side_direction": ("direction within a side", "how far it reaches among these"),
    "mean_direction": ("direction, all epochs", "likewise"),
    "steady": ("direction, step by step", "the sum of how far each of its gradients reaches, in units of its step"),
    "mean_residual": ("residual, all epochs", "likewise"),
    "mean_cosine": ("known positives, all epochs", "likewise"),
    "clusters": ("clusters", "which of two clusters of these means it is in"),
    "clusters_soft": ("clusters, by distance", "how much nearer it is to one centre than to the other"),
    "embeddings": (
        "clusters of embeddings",
        "in which of two clusters of embeddings a row is, as training has shaped them",
    ),
    "embeddings_soft": ("clusters of embeddings, by distance", "how much nearer it is to one centre than to the other"),
    "leading_embeddings": ("direction of embeddings", "how far its embedding reaches along their leading direction"),
    "joined": ("gradients and embeddings", "direction over all epochs and embeddings, added"),
    "pseudo_labels": ("learnt from guesses", "what is learnt from the rows that these two together find likeliest"),
    "known_rows": ("learnt from known rows", "what is learnt from a few rows whose labels are known"),
    "known_joined": ("learnt from known rows, and both", "that, and gradients and embeddings together"),
    "class_directions": ("clusters of directions", "to which of the classes' directions its gradient is nearest"),
    "class_mean_directions": ("clusters of directions, all epochs", "the same of the mean over all epochs"),
    "class_embeddings": ("clusters of embeddings", "to which of the classes' centres its embedding is nearest"),
    "class_joined": ("gradients and embeddings", "clusters of both side by side"),
    "class_known_rows": ("learnt from known rows", "what is learnt from a few rows of each class whose labels are known"),
    "served": ("predictions", "the predictions that the other party got, with what trainings said of the same rows"),
    "added_up": ("all trainings together", "the sum of what all repeats and jobs with this partner said of it"),
}
"""Attack → its name for people, and what it goes by."""

INFORMED: Mapping[str, str] = {
    "cosine": "up to 16 positive rows",
    "mean_cosine": "up to 16 positive rows",
    "known_rows": "up to 16 rows of each kind",
    "known_joined": "up to 16 rows of each kind",
    "class_known_rows": "up to 16 rows of each class",
    "added_up": "a few labels",
    "served": "a few labels",
}
"""Attack by a peer that knows the labels of a few rows → of which; the others know none."""


def describe_known(attack: str) -> str:
    """What the peer is assumed to know already."""
    return INFORMED.get(attack, "nothing")
