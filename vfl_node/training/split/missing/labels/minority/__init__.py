"""The least frequent class."""
