"""Predictions by the halves of a trained model, which stay where they are.

A passive party's half makes an *embedding* of its columns of a row: what the active party needs of them. The active party's
half makes a prediction of all embeddings of a row and of its own columns. How they do it depends on the trainer
(:mod:`~vfl_node.training.prediction.sides`); who asks whom, and for what, is here.

Known rows (:func:`~vfl_node.training.prediction.known_records.predict_known`, which may run for months) are hidden in batches
that all parties have agreed on. The asker names whole batches and picks its rows from the answer::

    to: active      asker                     answers
                    Ask b₁ < b₂ < … ───────►  of each batch all B rows
                    p = f(X_a, H)     ◄─ H ─  H = embedding(X_p)   [B, d]
    to: passive     Ask b₁ < b₂ < …, H ────►  p = f(X_a, H)
                    picks its rows  ◄─── p ─

Of several passive parties each one answers the same Ask, H is all their embeddings, and the active party passes on what one of
them asks (:mod:`~vfl_node.training.prediction.exchange`).

All predictions are computed with the same weights. Therefore everything that is sent is counted, and attacked where rows may be
made up, before it leaves (:mod:`~vfl_node.training.prediction.shown`).

New rows (:func:`~vfl_node.training.prediction.new_records.predict_new`) are all rows of a new intersection, in its order.

Source: Song et al. 2021 (FLORIST), Appendix D. Deviations: batches are cut by the training's
jointly tossed seed, each filled up to the same size; rows that are not named hide as well.

What each party learns: :func:`~vfl_node.training.prediction.disclosures.learnt`.
"""
