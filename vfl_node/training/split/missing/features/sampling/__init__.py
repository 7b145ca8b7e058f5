"""The columns of a random own row."""
