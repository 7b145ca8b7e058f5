"""What an honest-but-curious party reads from a fuzzy linkage: arrays in, guesses out, one file an attack. No node runs them.

===================  ===========  ==========================================  ============================================
file                 who          finds                                       against it
===================  ===========  ==========================================  ============================================
``greedy``           active       a distance, exactly, from one similarity    noise: below τ, which is all that τ says
``membership``       active       the same, from whose candidate it is        few uses (``max_reuse``), not noise
``counts``           active       the same, from how many are within reach    a reach at which there are always K
``repeated``         active       distances without noise, from several jobs  noise of the pair and the terms, kept scale
``partition``        active       which similarities are of the same record   nothing
``anchors``          coordinator  keys, from distances to a few known ones    comparison in shares
``frequency``        coordinator  keys, from how many filters are equal       comparison in shares
===================  ===========  ==========================================  ============================================

The others, which nodes and trials run, are in vfl_node/privacy/linkage.
"""
