"""Defences that move the bottom away from what a simulated decoder rebuilds, before its embeddings leave.

::

    spec        keys and words of basic, fbs, fbs-fixed
    minimax     Alg. 1: the decoder and the bottom learn against each other, from the bottom that the task has left
    weighting   how the privacy loss and the way from the task's bottom are weighed: fixed, or learnt
    defence     when Minimax runs: before a training step's embeddings, and once more over all rows where weights stay

Source: arXiv 2104.14383, section 4.2; forward-backward splitting of Goldstein et al. 2014.
"""
