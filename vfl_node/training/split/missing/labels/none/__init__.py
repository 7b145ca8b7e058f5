"""No synthetic labels."""
