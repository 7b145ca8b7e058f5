"""A target drawn from the distribution of the real ones."""
