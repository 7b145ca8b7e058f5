"""How many keys of this party the coordinator of a linkage can recognise by a public list: for its owner, before any is sent.

It needs nothing of the other parties, and nothing that is sent depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vfl_node.crypto.filters.values import KeyValues
from vfl_node.data.tables import KeyColumn
from vfl_node.execution.located import MOST_AXES, error_words
from vfl_node.execution.public_list import read_list
from vfl_node.job import Job
from vfl_node.job.keys import TextKey
from vfl_node.privacy.linkage.space import KeySpace
from vfl_node.settings.protection import LinkageAuditSettings


def key_cautions(job: Job, audit: LinkageAuditSettings | None, own: Mapping[str, KeyColumn], party: str) -> tuple[str, ...]:
    """What the owner should know before a linkage; nothing before another alignment or one in shares, or without a list.

    Args:
        job: the job.
        audit: the list.
        own: of this party's records, each key of the job.
        party: this party's name.

    Cost: reading the list, and some seconds, however long it is and the table (:mod:`vfl_node.privacy.linkage.listed`).

    Raises:
        DataError: as :func:`vfl_node.execution.public_list.read_list`.
    """
    keys = job.align.keys
    if audit is None or not keys or not job.align.spec.by_similarity or job.align.comparison == "shares":
        return ()
    listed = read_list(audit, keys, party)
    said = [
        _text_words(name, key, own[name], listed[name], job)
        for name, key in sorted(keys.items())
        if isinstance(key, TextKey) and name in listed
    ]
    places = {name: key for name, key in keys.items() if not isinstance(key, TextKey) and name in listed}
    if places:
        said += _place_words(KeySpace(places, job.align.encoding), own, listed)
    if not said:
        return ()
    return (
        f"{job.parties.coordinator}, the coordinator, can recognise keys of this party without the seed and without a record "
        f"that it knows, by distances and a public list. With that of audit.linkage.list it found {'; '.join(said)}. No "
        "setting of the job prevents this: choose as coordinator whom you would show these keys, or do not link.",
    )


def _text_words(name: str, key: TextKey, own: KeyColumn, listed: KeyValues, job: Job) -> str:
    from vfl_node.privacy.linkage.listed import recognise_texts  # loads scipy, which no other job needs

    found = recognise_texts([str(text) for text in own], [str(text) for text in listed], key, job.align.encoding)
    share = 100 * found.recognised / max(1, found.tried)
    return f"{share:.0f} % of {found.tried:,} different values of {name!r} that were tried ({found.listed:,} stand in the list)"


def _place_words(space: KeySpace, own: Mapping[str, KeyColumn], listed: Mapping[str, KeyValues]) -> list[str]:
    """Nothing with too many axes, or too few places."""
    from vfl_node.privacy.linkage.listed import registration_errors  # likewise

    places = space.points({name: listed[name] for name in space.keys})
    places = places[~np.isnan(places).any(axis=1)]
    if len(space.bounds) > MOST_AXES or len(places) < 2:
        return []
    errors = registration_errors(space.points({name: own[name] for name in space.keys}), places, space)
    near = {name: error for name, error in errors.items() if np.isfinite(error)}
    return [f"{error_words(space.keys, near)}, in the median"] if near else []
