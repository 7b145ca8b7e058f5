"""Models whose parties each have the weights of their own columns, of which the first layer adds up all parts.

A regression, or a network trained in shares and opened to its owners: what a party contributes to a prediction is its *partial
scores* X·W of a row. Here the halves are put together, in one place or between nodes (:mod:`vfl_node.training.prediction`).
"""
