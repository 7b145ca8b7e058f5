"""The mean embedding of the aligned rows of the same group."""
