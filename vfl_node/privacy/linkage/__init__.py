"""What a coordinator reads from a fuzzy linkage with a public list; the owner runs it before a job. Arrays in, guesses out.

``graph_matching`` finds texts by distances, ``registration`` places; neither needs a record that is known. ``space`` makes
points of keys. The attacks of the other parties are in experiments/linkage. Figures: docs/explanations/privacy/linkage.md.
"""
