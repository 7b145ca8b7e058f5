"""Cryptography: groups with a hard Diffie–Hellman problem, Paillier's cryptosystem, oblivious transfers, shares, and each party's own randomness."""
