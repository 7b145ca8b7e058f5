"""Unbalanced private set intersection: one party asks a few identifiers of a list that the other one has sent once."""
