"""Noise that costs least for how alike the gradients of both classes become."""
