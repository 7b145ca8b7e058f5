"""The mean of the targets."""
