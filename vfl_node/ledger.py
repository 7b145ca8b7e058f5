"""The leakage ledger: what a party learnt by running a protocol, entry by entry.

A protocol's file says in its docstring what it reveals; its result carries the same as
entries, with this job's numbers. The report shows those of both parties.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Disclosure:
    """One thing that a party learnt.

    Attributes:
        what: a stable keyword for programs, such as ``set size``, ``intersection``, ``embeddings``; docs/reference/ledger.md
            has all.
        count: how many, or how large; None where that is hidden from the party whose report shows it.
        text: the whole of it in plain words, the peer by its name; never an identifier, label or cell value.
    """

    what: str
    count: int | None
    text: str


UNDECLARED = "undeclared"
"""Keyword of a protocol, trainer or service that does not say what it reveals; only one of another package can be like that."""


@dataclass(frozen=True)
class Declaration:
    """One thing that a party may learn at most, as it is said before a job runs.

    Attributes:
        to: name of the party that learns it.
        what: the keyword that :attr:`Disclosure.what` has after the job.
        bound: how much of it at most, in plain words, the others by their names; a clause without a full stop.
    """

    to: str
    what: str
    bound: str
