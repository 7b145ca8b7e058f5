"""Predictions between nodes by a model whose weights are open to their owners, asked by :mod:`vfl_node.training.service`."""
