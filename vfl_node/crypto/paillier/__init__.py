"""Paillier's cryptosystem: sums of numbers that only the owner of the key can read.

Enc(m) = (1 + m·n)·ρ mod n² with noise ρ, an n-th power; the product of ciphertexts
encrypts the sum of their numbers. ``keys`` makes, checks and proves keys, ``encryption``
makes ciphertexts and noise, ``decryption`` decrypts. A vector of ciphertexts is one
contiguous buffer of big-endian rows, :data:`vfl_node.crypto.paillier.keys.Ciphertexts`.

No module here imports torch, because worker processes load these modules.

Source: Paillier, "Public-Key Cryptosystems Based on Composite Degree Residuosity Classes", 1999.
"""
