"""What the keywords of docs/reference/ledger.md tell, written here once more beside vfl_node/plans/meaning.py."""

from __future__ import annotations

TELL_SHARED = {
    *("intersection", "membership", "similarities", "candidate rows", "encodings", "distances", "foreign hashed ids"),
    *("matched pairs", "projections", "undeclared"),
}
"""By which a party learns of single records whether they are shared."""

TELL_LABELS = {"gradients", "linked gradients", "randomised labels", "noised gradients", "predictions", "undeclared"}
"""By which a party without labels learns something of the label of a row."""
