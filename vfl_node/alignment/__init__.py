"""Alignment protocols: which rows of two tables belong together, and what each party learns of it."""
