"""Cryptography: groups with a hard Diffie–Hellman problem, Paillier's cryptosystem, and each party's own randomness."""
