"""A random embedding, as long as the longest real one of the batch."""
