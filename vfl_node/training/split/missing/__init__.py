"""How rows are filled in that a party does not own (``train.missing``), and how probabilities are corrected for it.

:mod:`~vfl_node.training.split.missing.strategies` names the strategies; ``labels/`` and ``features/``
have their words, keys and code.
"""
