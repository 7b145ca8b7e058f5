"""Embeddings drawn by a conditional diffusion model, given the label and the own embedding."""
