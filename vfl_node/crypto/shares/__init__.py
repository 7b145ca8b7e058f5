"""Computing on secret shares between parties that have data, with randomness from a dealer who has none.

A value is an integer modulo 2⁶⁴ that stands for a real number with some fractional bits, and each party has a share of it: a
uniform integer, of which all together sum to the value. Sums of values cost nothing. Everything else needs correlated
randomness, which a dealer makes and hands out without hearing anything.

===============  =====================================================================================================
file             what
===============  =====================================================================================================
``ring``         real numbers as integers modulo 2⁶⁴, and products of these
``sines``        sines as integers, the same on every machine
``values``       a share, and what is open under a mask
``operation``    what an operation is: what is drawn and dealt for it, what is opened, what comes out
``operations``   each of them
``bits``         bits in shares, and numbers as bits: comparisons
``masked``       masks of 16 bits of a matrix of bits, and products with such matrices
``cells``        a matrix of bits that one party knows: sums over its rows, and columns that are chosen in secret
``steps``        comparisons by look-ups, in few rounds
``functions``    quotients, two numbers in one, and vectors with a single 1
``logarithm``    logarithms and inverses
``rounding``     numbers that are rounded before they are opened
``rounds``       several computations in the same rounds
``nearest``      the K nearest of two parties' filters
``sizes``        how large all this is, for those who only count
``machine``      a computation as its parties run it: each of them, the dealer, or somebody who counts what it costs
``audit``        two parties check what the dealer deals
===============  =====================================================================================================

A computation is written once, as a coroutine over a machine. The dealer runs the same coroutine without values, so what it
sends depends on shapes alone.

Source: ours, from known parts: Beaver 1991 (triples); Escudero, Ghosh, Keller, Rachuri and Scholl 2020, "Improved primitives
for MPC over mixed arithmetic-binary circuits" (truncation pairs with a top bit); the sine series is ours.
"""
