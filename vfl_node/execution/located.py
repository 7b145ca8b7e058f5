"""How exactly the other party of a linkage can locate this party's records: for its owner, in its report.

The sentences need nothing of the other party, and nothing that is sent depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vfl_node.alignment.alignment import Alignment, LinkageFacts
from vfl_node.data.tables import Table
from vfl_node.job import Job
from vfl_node.job.keys import DateKey, Keys, PlaceKey, TextKey
from vfl_node.privacy.linkage.simulated import active_errors, passive_errors
from vfl_node.privacy.linkage.space import KeySpace

MOST_AXES = 3
"""With more, a grid of points is too coarse to say anything."""


def location_cautions(job: Job, alignment: Alignment, table: Table) -> tuple[str, ...]:
    """What the owner should know after an alignment by similarity; nothing after another one.

    Nothing either where a key is a text, as texts lie nowhere, where only equal keys count, or with too many keys.

    Args:
        job: the job.
        alignment: this party's.
        table: the records of this party that took part.

    Cost: as :mod:`vfl_node.privacy.linkage.simulated` has it: about a second, by the numbers of records alone.
    """
    align, facts = job.align, alignment.linkage
    if facts is None or align.equal_only or not align.keys or any(isinstance(key, TextKey) for key in align.keys.values()):
        return ()
    space = KeySpace(align.keys, align.encoding)
    if len(space.bounds) > MOST_AXES:
        return ()
    own, (peer,) = space.points(table.keys), alignment.peers
    simulated = f"In a simulation with made-up records in place of {peer}'s"
    if alignment.similarities is not None:
        errors = active_errors(own, alignment.peers[peer].records or len(own), align.candidates, space)
        return (
            f"{peer} can locate this party's records by their candidates, whatever the noise is. {simulated} it found "
            f"{error_words(align.keys, errors)}, in the median. If that is too close, do not link (reveal in the policy).",
        )
    uses = _median_uses(alignment, facts)
    if not uses:
        return ()
    errors = passive_errors(own, uses, align.candidates, facts.sigma, space)
    found = f"{error_words(align.keys, errors)}, in the median"
    training = "a training shows which similarities are of one record" if job.train is None else "the training shows this"
    return (
        f"{peer} can locate this party's records, from about {uses:,} similarities of each, or from which of its own records "
        f"have one as a candidate; {training}. {simulated} it found {found}. More noise "
        "(align.noise) makes that larger only as far as the second way allows. Fewer candidates hardly do: they are closer.",
    )


def _median_uses(alignment: Alignment, facts: LinkageFacts) -> int:
    """How many records of the peer a record of this party is a candidate of, in the median of those that are one."""
    counts = np.bincount(alignment.rows[alignment.rows >= 0])
    counts = counts[counts > 0]
    return min(int(np.median(counts)), facts.reuse or 0) if len(counts) else 0


def error_words(keys: Keys, errors: Mapping[str, float]) -> str:
    """Each key, and how closely it was found, to two digits."""
    said = []
    for name, error in errors.items():
        unit = " m" if isinstance(keys[name], PlaceKey) else " days" if isinstance(keys[name], DateKey) else ""
        said.append(f"{name!r} to {float(f'{error:.2g}'):,.10g}{unit}")
    return " and ".join(said)
