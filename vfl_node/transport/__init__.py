"""Carries typed messages between two parties; protocol code sees only :class:`Channel`."""
