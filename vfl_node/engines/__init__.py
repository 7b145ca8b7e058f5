"""Engines compute the blocks of an operation at the same time, in threads or processes. They know nothing of numbers."""
