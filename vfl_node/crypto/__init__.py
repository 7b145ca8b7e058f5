"""Numbers: groups with a hard Diffie–Hellman problem, and each party's own randomness."""
