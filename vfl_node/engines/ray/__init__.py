"""The engine whose workers are on other machines of this party, by Ray. The node's own process never imports Ray.

::

    node  ⇄ pipe ⇄  driver child (imports Ray)  ⇄  actors, one for each core of the cluster
    cluster, link                driver                    worker

Blocks, keys, results and errors are sealed between node and actors (sealing).
"""
