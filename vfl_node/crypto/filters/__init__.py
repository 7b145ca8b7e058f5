"""Filters: bit strings of records whose Hamming distance tells how far apart the records' keys are.

``encoding`` makes them, ``values`` says what a key's column is and refuses what cannot be encoded, ``pivots`` and ``groups``
are the filters of numbers and of texts. How many bits each key has stands in :mod:`vfl_node.job.keys`.

Who knows the seed of the pivots and hash keys can decode filters of numbers, and try texts. So the data parties share it, and
who compares the filters must not have it. Even so, whoever holds filters of both parties sees all distances between them, and
which records have equal keys.
"""
