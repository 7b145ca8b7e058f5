"""How well a peer rebuilds columns of this party from its embeddings: attribute inference attacks (arXiv 2104.14383).

::

    targets   what a decoder of columns is to give, and its loss            shared by attacks and defences
    decoder   the network from an embedding to columns                      likewise
    attacks   static, adaptive, stacked: an embedding and known rows → guesses of the others
    audit     this party's own attacks on what it sends, while it trains
"""
