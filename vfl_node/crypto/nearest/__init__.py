"""Nearest rows by Hamming distance: the exact search of linkage.

``search`` goes through blocks of queries, and ``best`` keeps the nearest rows found so far. The distances are numkong's
(Apache-2.0), which chooses the processor's fastest instructions when it is loaded. docs/reference/benchmarks/index.md has it
beside others. ``matrices`` is the same search on a CUDA device.
"""
