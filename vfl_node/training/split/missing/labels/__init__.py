"""Synthetic labels: what the active party takes for the label of a row it does not own.

It always generates a label and lets the gradient follow; gradients made up directly are told
apart (FLORIST, section 4.1). A strategy is built once a repeat from what is :class:`~.contract.Known` and
asked in every :class:`~.contract.Step` for the targets of all rows of the batch, whoever owns them, so
that the time it takes does not depend on that. No gradient flows into a target.

============ ======================================== ==================================================
name         label                                    anew
============ ======================================== ==================================================
majority     the most frequent class                  never
minority     the least frequent class                 never
random-pos   a class as frequent as it is             never: one draw a shared position
random-pred  as the model predicts                    in every step
neighbors    vote of the 3 nearest rows of the batch, as the embeddings and batches change
             or mean of their targets
sampling     a target drawn from the distribution     never: one draw a shared position
             of the real ones (regression)
mean         the mean target (regression)             never
none         (no row may lack one)
============ ======================================== ==================================================

What is drawn anew differs between two epochs where a real label does not, and the passive
party meets each position once an epoch: it tells synthetic labels by that, the surer the
more epochs there are. ``random-pos`` is therefore fixed, which the paper leaves open.
``random-pred`` cannot be: its gradient cancels because the draw follows the model of the
step. docs/explanations/privacy/index.md has the numbers.

Source: Song et al. 2021, section 4.1 and Appendix H.
"""
