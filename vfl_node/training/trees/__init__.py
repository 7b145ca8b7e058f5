"""Boosted trees in shares over an alignment that hides who is shared: docs/explanations/training/trees.md."""
