"""No synthetic columns."""
