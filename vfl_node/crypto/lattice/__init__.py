"""Encryption by RLWE: products of one party's matrix with the other's numbers, in shares, with nobody else's help.

==============  ======================================================================================================
file            what
==============  ======================================================================================================
``parameters``  three parameter sets, and the algebra that all files share
``flooding``    how much of its numbers an evaluator gives away in noise, over a whole job
``sizes``       tiles of a matrix, and bytes of every message from shapes alone; imports nothing large
``ring``        polynomials, by the compiled code in ``native/``
``keys``        secret and public keys, and ciphertexts as bytes
``tiles``       matrices and vectors as polynomials
``products``    X·b and Xᵀ·b
``slots``       inner products of private numbers, row by row
``monomials``   tallies of sums of two private places
==============  ======================================================================================================
"""
