"""Fuzzy linkage with a coordinator: each record of the active party gets the passive party's K records most like it.

It runs between the active party A, the passive party B, and the coordinator C, who has no data. All follow the protocol, but
study all that they receive, and C works together with neither of the others.

====  ==========  ========================================================================  ==========================
step  who         what                                                                      where
====  ==========  ========================================================================  ==========================
1     A ↔ B       marks of their sets, and what they remember of each other                 ``lists/meeting.py``
2     A ↔ B       the seed of pivots and hash keys: tossed in their first job, then kept    ``seed.py``
3     A, B alone  filters of their keys, in an order that tells nothing                     ``crypto/filters``
4     A ↔ B       how many, and a commitment to them                                        ``terms.py``
5     A, B ↔ C    the same commitment; C tells each the other's, and they compare           ``side.py``
6     A, B → C    the filters; C checks the commitments                                     n_A, n_B × bits/8 bytes
7     C alone     the K nearest of B's filters for each of A's; μ0, σ0 and noise            ``coordination.py``
8     C → B       how much its records are used; B may refuse, or counts the linkage        ``protocol.py``
9     C → A       μ0, σ0 and σ; A counts the linkage                                        ``protocol.py``
10    C → A, B    once both have: the similarities, and in the same order the candidates    m × K, 0 and −1 for none
====  ==========  ========================================================================  ==========================

A gets no place of B's records, B no similarity, C no key and no seed. The shared order is A's column of filters, m = n_A.

Leaks: to A, n_B and m·K similarities with noise, of which it can tell which belong to the same record of B. To B, n_A and
which of its records are nearest to each of A's: that *set* locates A's records, and noise does not touch it. To C, all
distances between filters, those within one party too, and which filters are equal. A and B know the seed, so
filters hide keys from C alone, and not from a C with a public list of them (``privacy/linkage``: ``graph_matching``,
``registration``). σ bounds how often the greedy attack of the paper guesses a filter from one similarity (τ); it
does not bound how exactly A locates a key of B from many.

Deviations from the paper: everything lasts from job to job (seed, noise, order, μ0 and σ0), and linkages and the use of each
record are limited, because fresh noise averages out (``similarity.py``).

Source: Wu, Li and He 2021, arXiv 2106.06312 ("A coupled design of exploiting record similarity for practical vertical
federated learning"), 4.1 to 4.3.

Cost: filters once at each party, n_A·n_B distances at C, and n_A·bits/8, n_B·bits/8 and 2·4·n_A·K bytes on the wire.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import NOT_MINE, Alignment, LinkageFacts, OwnRecords, PeerFacts
from vfl_node.alignment.linkage import learnt
from vfl_node.alignment.linkage.coordination import Linker
from vfl_node.alignment.linkage.policy import check_reuse, check_sigma
from vfl_node.alignment.linkage.shares import LinkageDealing, SharedLinkage
from vfl_node.alignment.linkage.side import GROUP, DataSide
from vfl_node.alignment.linkage.similarity import NONE, encode_similarities, least_tau, standardise, tau_of
from vfl_node.alignment.linkage.spec import LINKAGE
from vfl_node.alignment.linkage.words import TAU_MEANS
from vfl_node.crypto.groups import Group
from vfl_node.crypto.rows import Rows
from vfl_node.errors import ProtocolError
from vfl_node.session.session import Session
from vfl_node.transport.generated.vfl.v1.linkage_pb2 import Reuse, Scale


def coordinator(session: Session) -> Linker:
    """C's side: it compares filters, or deals."""
    return Linker(session) if session.job.align.comparison == "filters" else LinkageDealing(session)


async def active(session: Session, records: OwnRecords, group: Group | None) -> Alignment:
    """A's side; arguments and errors as :func:`vfl_node.alignment.protocols.align`.

    Raises:
        UsageError: the job wants more candidates than B has records (``E_CANDIDATES``).
        ProtocolError: noise that is not the job's (``E_NOISE``), or a similarity that is no number (``E_ELEMENT``).

    Leaks: n_A; to B which of its records are nearest to each of A's, to C the filters.
    """
    side = DataSide(session, records)
    try:
        await side.meet("similarities")
        if side.align.comparison == "shares":
            return await _active_in_shares(side)
        await side.send_filters()
        scale = await side.coordinator.receive(Scale)
        _check_noise(side, scale.deviation, scale.sigma)
        if not math.isfinite(scale.mean) or scale.without_candidate > side.sizes.active:
            raise ProtocolError(f"{side.coordinator.peer} sent a scale that no distances have", code="E_ELEMENT")
        await side.accept()
        received = await side.receive("similarities", lambda chunk: _check_similarities(side, chunk))
        similarities = received.view("<f4").astype(np.float32)
        facts = _facts(side, scale.deviation, scale.sigma, int(scale.without_candidate), None)
        return _alignment(side, side.order, facts, similarities=similarities)
    finally:
        side.close()


async def passive(session: Session, records: OwnRecords, group: Group | None) -> Alignment:
    """B's side; arguments and errors as :func:`vfl_node.alignment.protocols.align`.

    Raises:
        UsageError: as :func:`active`.
        PolicyError: a record would be used too often (``E_REUSE``), or noise would be too weak; A has no similarity then.
        ProtocolError: noise that is not the job's (``E_NOISE``), or a place that is none (``E_ELEMENT``).

    Leaks: n_B; to A similarities of its records with noise, to C the filters.
    """
    side = DataSide(session, records)
    try:
        await side.meet("candidates")
        if side.align.comparison == "shares":
            return await _passive_in_shares(side)
        await side.send_filters()
        reuse = await side.coordinator.receive(Reuse)
        _check_noise(side, reuse.deviation, reuse.sigma)
        check_sigma(reuse.sigma, session.policy.limits)
        check_reuse(reuse.max, reuse.median, session.peer.peer, session.policy.limits)
        await side.accept()
        received = await side.receive("candidates", lambda chunk: _check_candidates(side, chunk))
        places = received.view("<i4").astype(np.int64)
        rows, without = _rows(side, places)
        return _alignment(side, rows, _facts(side, reuse.deviation, reuse.sigma, without, int(reuse.max)))
    finally:
        side.close()


async def _active_in_shares(side: DataSide) -> Alignment:
    linkage = SharedLinkage(side)
    found = await linkage.run()
    assert found.scale is not None  # it would not have gone on
    similarities = encode_similarities(standardise(found.distances, found.scale), found.found, found.scale)
    without = int(np.count_nonzero(~found.found.any(axis=1)))
    facts = _facts(side, found.scale.deviation, linkage.sigma, without, None)
    return _alignment(side, side.order, facts, similarities=similarities)


async def _passive_in_shares(side: DataSide) -> Alignment:
    linkage = SharedLinkage(side)
    found = await linkage.run()
    assert found.scale is not None
    assert found.places is not None
    rows, without = _rows(side, found.places.astype(np.int64))
    return _alignment(side, rows, _facts(side, found.scale.deviation, linkage.sigma, without, linkage.reuse))


def _rows(side: DataSide, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """B's records at its places int64[m, K], and how many rows have none."""
    rows = np.where(places == NONE, NOT_MINE, side.order[places])
    return rows, int(np.count_nonzero((rows == NOT_MINE).all(axis=1)))


def _check_noise(side: DataSide, deviation: float, sigma: float) -> None:
    """Refuse other noise than the job's. Raises ProtocolError (``E_NOISE``)."""
    noise, equal = side.align.noise, side.align.equal_only
    assert noise is not None  # the job was checked
    possible = math.isfinite(deviation) and math.isfinite(sigma) and sigma >= 0 and (deviation == 0 if equal else deviation > 0)
    if possible and noise.sigma is not None:
        possible = sigma == noise.sigma
    elif possible and noise.tau is not None:
        possible = sigma > 0 and tau_of(sigma, deviation) <= noise.tau * (1 + 1e-6)
    if not possible:
        raise ProtocolError(f"{side.coordinator.peer} has drawn other noise than the job says", code="E_NOISE")


def _check_similarities(side: DataSide, chunk: Rows) -> None:
    if not np.isfinite(chunk.view("<f4")).all():
        raise ProtocolError(f"{side.coordinator.peer} sent a similarity that is no number", code="E_ELEMENT")


def _check_candidates(side: DataSide, chunk: Rows) -> None:
    places = chunk.view("<i4")
    if ((places < NONE) | (places >= side.sizes.passive)).any():
        raise ProtocolError(f"{side.coordinator.peer} sent a place that no record has", code="E_ELEMENT")


def _facts(side: DataSide, deviation: float, sigma: float, without: int, reuse: int | None) -> LinkageFacts:
    everybody = learnt.disclosures(side.session.job, side.sizes, sigma, reuse)
    tau = tau_of(sigma, deviation) if deviation else None
    return LinkageFacts(
        bits=side.bits,
        comparison=side.align.comparison,
        sigma=sigma,
        without_candidate=without,
        tau=tau,
        tau_min=least_tau(deviation) if deviation else None,
        expected_disclosed=None if tau is None else tau * side.sizes.passive,
        tau_means=None if tau is None else TAU_MEANS,
        reuse=reuse,
        coordinator_learnt=everybody[side.coordinator.peer],
    )


def _alignment(side: DataSide, rows: np.ndarray, facts: LinkageFacts, *, similarities: np.ndarray | None = None) -> Alignment:
    session = side.session
    peer, is_active = session.peer.peer, session.role == "active"
    everybody = learnt.disclosures(session.job, side.sizes, facts.sigma, facts.reuse)
    return Alignment(
        spec=LINKAGE,
        group=GROUP,
        rows=rows,
        ours=len(side.records),
        peers={
            peer: PeerFacts(
                records=side.sizes.passive if is_active else side.sizes.active,
                missing=facts.without_candidate if is_active else 0,
                learnt=everybody[peer],
            )
        },
        similarities=similarities,
        learnt=everybody[session.name],
        linkage=facts,
    )
