"""FLORIST: split training over a union, each party with synthetic rows for those that it does not own."""
