"""Synthetic features: what a party uses where it does not own the shared row.

::

    sampling                       a whole own row
    smoothed, naive                a row made up from own rows             encoded columns
    gaussian, random               an embedding; sampling below it         the cut layer
    none                           nothing: every shared row is owned

Each shared position has *one* draw for the whole job, in every epoch, repeat and evaluation:
the peer meets the position again and again, and a row that is drawn anew jumps where a real
one drifts (redrawn rows are told apart at AUC .86 after two epochs and 1.00 after ten; fixed
ones stay at .50 under the same attack). Each repeat scales the columns by the rows it trains
on; rows are therefore made up in the scaling of the party's whole table, which no repeat
changes, and then encoded as the repeat encodes real ones. Embeddings are drawn anew in each
step: one that stayed where the model moves would be told as well.

Source: Song et al. 2021, sections 3.2 and 4.2; the fixed draw and ``smoothed``
are ours.
"""
