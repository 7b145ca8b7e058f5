"""A networked runtime for vertical federated learning.

Read the tree from the bottom up: ``crypto``, ``models`` and ``data`` know only
numbers, tensors and tables; ``transport`` carries typed messages between two
parties; ``alignment`` and ``training`` are the papers' protocols, written as
coroutines over a ``Channel``; ``node`` is the long-lived service; ``cli`` and
``web`` are what a person touches.
"""

__version__ = "0.1.0"
