"""Training of a split network over an alignment; see docs/training.md."""
