"""A linkage as a coordinator makes it, in one process: real filters, search, noise and order of candidates.

The coordinator's protocol is a frame around these functions (:mod:`vfl_node.alignment.linkage.coordination`); what crosses its
wire does not change them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.fedsim.data import ACTIVE, PASSIVE, Case
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.alignment.linkage.similarity import DistanceScale, PairDraws, ReuseCount, least_tau, tau_of
from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.nearest.search import nearest
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.data.tables import Table
from vfl_node.engines.contract import Inline
from vfl_node.job import Align
from vfl_node.job.alignment import ALIGNMENTS

Settings = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Linkage:
    """What both data parties have after an alignment, and what was measured on the way.

    Attributes:
        views: party → its alignment.
        facts: ``bits`` of a filter; ``sigma``; ``deviation`` (σ0), ``tau`` and ``tau_min``, None where all candidates are
            equal; ``reuse``; and ``without``, rows without any candidate.
    """

    views: Mapping[str, Alignment]
    facts: Mapping[str, float | None]


def align_section(case: Case, *, candidates: int, sigma: float, equal_only: bool = False) -> Settings:
    """The job's ``align``."""
    said = {"protocol": "linkage", "keys": case.keys, "encoding": case.encoding, "noise": {"sigma": sigma}}
    return {**said, "candidates": candidates, **({"equal_only": True} if equal_only else {})}


def link(case: Case, align: Align, seed: int) -> Linkage:
    """The nearest of the passive party's records for each of the active party's; pivots and noise are of the ``seed``."""
    secret = Randomness(hashlib.sha256(f"fedsim linkage {seed}".encode()).digest())
    own, theirs = (filters(table, align, secret) for table in (case.active, case.passive))
    blocks = list(nearest(own, theirs, align.candidates, Inline(), equal_only=align.equal_only))
    assert align.noise is not None
    sigma = align.noise.sigma or 0.0
    scale = None if align.equal_only else DistanceScale.from_distances(block.distances for block in blocks)
    terms = hashlib.sha256(json.dumps(align.model_dump(mode="json"), sort_keys=True).encode()).digest()
    draws = PairDraws(secret.derive("coordinator"), terms)
    marks = [draws.marks(ids) for ids in (own, theirs)]
    reuse, parts, start = ReuseCount(len(theirs)), [], 0
    for block in blocks:
        mine = marks[0][start : start + len(block.rows)]
        reuse.add(mine, block.rows)
        scaled_by = scale or DistanceScale(0.0, 1.0)
        parts.append(draws.perturb(mine, marks[1], block.rows, block.distances, scaled_by, sigma, start))
        start += len(block.rows)
    rows, similarities = (np.concatenate(part) for part in zip(*parts, strict=True))
    peers = {PASSIVE: PeerFacts(len(theirs))}
    active = Alignment(ALIGNMENTS["linkage"], "", np.arange(len(own)), len(own), peers, similarities=similarities)
    passive = Alignment(ALIGNMENTS["linkage"], "", rows.astype(np.int64), len(theirs), {ACTIVE: PeerFacts(len(own))})
    facts = {
        "bits": 8 * own.shape[1],
        "sigma": sigma,
        "deviation": scale and scale.deviation,
        "tau": scale and tau_of(sigma, scale.deviation),
        "tau_min": scale and least_tau(scale.deviation),
        "reuse": reuse.most,
        "without": int((rows[:, 0] < 0).sum()),
    }
    return Linkage({ACTIVE: active, PASSIVE: passive}, facts)


def filters(table: Table, align: Align, secret: Randomness) -> Rows:
    """Those of all records of a table, uint8[n, bits/8]."""
    return np.concatenate(list(encode(align.keys or {}, align.encoding, table.keys, secret.derive("pivots"))))
