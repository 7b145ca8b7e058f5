"""An alignment as text and arrays, to be stored and read again by this and by later versions.

Version 2 has facts for each peer, and candidates. Version 1, which did not say its number, had one peer without a name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment, LinkageFacts, PeerFacts
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.ledger import Disclosure

VERSION = 2

_ARRAYS = ("rows", "similarities")


def parts(alignment: Alignment) -> tuple[dict[str, NDArray[Any]], str]:
    """The arrays of an alignment by name, and JSON of all else."""
    arrays = {name: array for name in _ARRAYS if (array := getattr(alignment, name)) is not None}
    apart = {*_ARRAYS, "spec"}
    said = {field.name: getattr(alignment, field.name) for field in fields(Alignment) if field.name not in apart}
    head = {"protocol": alignment.protocol, **said}
    head["learnt"] = [asdict(item) for item in alignment.learnt]
    if len(alignment.peers) == 1:
        del head["common"]  # it is the intersection with the only peer; an earlier version did not know it
    if alignment.linkage is None:
        del head["linkage"]  # an earlier version did not know it
    else:
        head["linkage"] = asdict(alignment.linkage)
    head["peers"] = {name: asdict(facts) for name, facts in alignment.peers.items()}
    return arrays, json.dumps({"version": VERSION, **head})


def join_parts(arrays: Mapping[str, NDArray[Any]], head: str, peers: Sequence[str]) -> Alignment:
    """The alignment that :func:`parts` took apart.

    Args:
        arrays: by name.
        head: JSON of all else.
        peers: names of the other data parties, of which version 1 had one and did not say its name.

    Raises:
        KeyError, TypeError, ValueError: another version wrote it.
    """
    known = json.loads(head)
    version = known.pop("version", 1)
    if version == 1:
        (peer,) = peers
        known = _from_version_1(known, arrays["rows"], peer)
    elif version != VERSION:
        raise ValueError(f"version {version} of a stored alignment is not known")
    known["spec"] = ALIGNMENTS[known.pop("protocol")]
    known["learnt"] = _disclosures(known["learnt"])
    known["peers"] = {
        name: PeerFacts(**facts | {"learnt": _disclosures(facts["learnt"])}) for name, facts in known["peers"].items()
    }
    if linkage := known.get("linkage"):
        known["linkage"] = LinkageFacts(**linkage | {"coordinator_learnt": _disclosures(linkage["coordinator_learnt"])})
    return Alignment(**known | {name: arrays.get(name) for name in _ARRAYS})


def _from_version_1(known: dict[str, Any], rows: NDArray[np.int64], peer: str) -> dict[str, Any]:
    """The fields of version 2; what follows from others was not stored then."""
    theirs, padded, shared = known.pop("theirs"), known.pop("padded"), known.pop("intersection")
    spec = ALIGNMENTS[known["protocol"]]
    neither = padded and not spec.every_row_is_shared and not spec.is_within_one_set  # there may be rows of neither party
    owned = int(np.count_nonzero(rows >= 0))
    facts = {
        "records": theirs,
        "intersection": shared,
        "missing": None if shared is None or neither else owned - shared,
        "padded": padded,
        "learnt": known.pop("peer_learnt"),
    }
    union = None if shared is None or padded else known["ours"] + theirs - shared
    return {**known, "peers": {peer: facts}, "union": union}


def _disclosures(items: list[dict[str, Any]]) -> tuple[Disclosure, ...]:
    return tuple(Disclosure(**item) for item in items)
