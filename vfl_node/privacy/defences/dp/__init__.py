"""Clipped gradients with normal noise: differential privacy of the rows' gradients."""
