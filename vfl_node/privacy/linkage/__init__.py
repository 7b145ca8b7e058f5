"""What is read from a fuzzy linkage by attacks that a node or a trial runs: arrays in, guesses out.

===================  ===========  ==========================================  ============================================
file                 who          finds                                       against it
===================  ===========  ==========================================  ============================================
``multilateration``  active       a passive record's keys, from many          few similarities of a record (``max_reuse``)
``cells``            passive      an active record's keys, from candidates    nothing (``reveal: [candidates]`` refuses all)
``graph_matching``   coordinator  texts, from distances and a public list     comparison in shares
``registration``     coordinator  places, from distances and a public list    comparison in shares
===================  ===========  ==========================================  ============================================

``space`` makes points of keys, and ``fitting`` finds the points that distances fit best. The other attacks are in
experiments/linkage. Figures: docs/explanations/privacy/linkage.md.
"""
