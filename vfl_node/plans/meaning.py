"""What the words of the ledger mean for the answers: which secret each tells, and of how many things.

Declarations say who learns what by a job (:func:`vfl_node.trust.manifest.declare`), by keywords (docs/reference/ledger.md). A
keyword that has no row here, such as one of another package, is taken to tell everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from vfl_node.ledger import Declaration

Secret = Literal["shared", "labels", "columns"]
"""Which records are shared; the label of a row; values of a row's columns."""

SECRETS: Mapping[Secret, str] = {
    "shared": "which records are shared",
    "labels": "the label of a row",
    "columns": "something of the columns of a row",
}
"""Secret → what it is, in words."""

Counted = Literal["", "records", "union", "shared", "rows", "others", "lacking"]
"""What an entry has a number of: another party's records, those of the union, shared ones, rows of the shared order, those of
these that are not shared, and own records that the other party lacks."""


@dataclass(frozen=True)
class Meaning:
    """What a keyword tells.

    Attributes:
        secret: which one it tells, in part at least; None: sizes, sums, times, or what is hidden by keys and masks.
        counted: of what its number is.
    """

    secret: Secret | None = None
    counted: Counted = ""


MEANINGS: Mapping[str, Meaning] = {
    "set size": Meaning(counted="records"),
    "set sizes": Meaning(),
    "union size": Meaning(counted="union"),
    "overlap sizes": Meaning(),
    "smallest overlap": Meaning(),
    "intersection size": Meaning(counted="shared"),
    "intersection": Meaning("shared", "shared"),
    "tag list": Meaning("shared", "shared"),
    "added tags": Meaning("shared", "shared"),
    "obfuscated set": Meaning(counted="rows"),
    "foreign hashed ids": Meaning("shared", "others"),
    "similarities": Meaning("shared", "rows"),
    "candidate rows": Meaning("shared", "rows"),
    "encodings": Meaning("shared"),
    "distances": Meaning("shared"),
    "membership": Meaning("shared", "lacking"),
    "matched rows": Meaning(),
    "encrypted membership": Meaning(),
    "held-out rows": Meaning(),
    "gradients": Meaning("labels", "rows"),
    "linked gradients": Meaning("labels", "rows"),
    "randomised labels": Meaning("labels"),
    "noised gradients": Meaning("labels"),
    "embeddings": Meaning("columns", "rows"),
    "linked embeddings": Meaning("columns"),
    "projections": Meaning("columns"),
    "matched pairs": Meaning("columns"),
    "scores": Meaning("columns", "rows"),
    "held-out scores": Meaning("columns"),
    "other passive parties": Meaning(),
    "features": Meaning(),
    "rounds": Meaning(),
    "encrypted scores": Meaning(),
    "residuals": Meaning(),
    "encrypted weights": Meaning(),
    "gradient": Meaning(),
    "masked gradient": Meaning(),
    "masked loss": Meaning(),
    "masked values": Meaning(counted="rows"),
    "weights": Meaning(),
    "splits": Meaning(),
    "leaf values": Meaning(),
    "metrics": Meaning(),
    "privacy": Meaning(),
    "ciphertexts": Meaning(),
    "deviation": Meaning(),
    "shapes": Meaning(),
    "loss": Meaning(),
    "half": Meaning("columns"),
    "label model": Meaning("labels"),
    "figures": Meaning(),
    "early stopping": Meaning(),
    "sweep": Meaning(),
    "pace": Meaning(),
}
"""Keyword of the ledger → what it tells."""


def tells(declaration: Declaration) -> tuple[Secret, ...]:
    """The secrets that an entry tells, in part at least; all of them where its keyword is not known."""
    meaning = MEANINGS.get(declaration.what)
    if meaning is None:
        return tuple(SECRETS)
    return (meaning.secret,) if meaning.secret else ()


def list_told(declarations: Iterable[Declaration], secret: Secret) -> dict[str, str]:
    """Party that learns something of ``secret`` → the keyword by which it does, the first one that is said."""
    told: dict[str, str] = {}
    for each in declarations:
        if secret in tells(each):
            told.setdefault(each.to, each.what)
    return told
