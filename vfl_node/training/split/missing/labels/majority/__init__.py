"""The most frequent class."""
