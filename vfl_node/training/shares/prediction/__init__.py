"""Predictions by a model whose weights stay in shares."""
