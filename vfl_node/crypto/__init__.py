"""Cryptography: groups with a hard Diffie–Hellman problem, Paillier's cryptosystem, transfers, and each party's randomness."""
