"""PSI in pairs: the active party intersects its own records with those of each passive party, and then the intersections.

It runs between the active party A and the passive parties P_1 … P_k, 1 to 8 of them. All follow the protocol, but study all
that they receive. Passive parties do not talk to each other, and no list of one ever comes to another one.

====  ==========  =================================================================  ====================================
step  who         what                                                               order
====  ==========  =================================================================  ====================================
1     A and P_j   S_j = I_a ∩ I_j by PSI (:mod:`vfl_node.alignment.psi.protocol`),   that of the pair
                  for one j after the other
2     A, alone    C = S_1 ∩ … ∩ S_k, the shared order                                secret, A's
3     A to P_j    the position in S_j of each record in C, 4 bytes each              that of step 2
4     P_j, alone  its records at these positions
====  ==========  =================================================================  ====================================

Both parties of a pair draw their keys for this pair alone. The order of step 2 does not depend on
any list, so positions tell P_j which of the records in S_j are in C, and nothing besides.

Leaks: to A, for each j, n_j (less exactly with the job's ``padding``) and *which* of its own records P_j holds. So it knows
of each of its own records which of the parties hold it. To P_j n_a, which of its own records A holds, and which of those *all*
parties hold; not how many records other passive parties have, but how long their turns take.

Cost: that of PSI with each P_j, at A one after the other, and 4·|C| bytes to each.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment, OwnRecords, PeerFacts
from vfl_node.alignment.lists import promises
from vfl_node.alignment.psi import protocol as psi
from vfl_node.alignment.psi_pairs.plan import POSITION_BYTES
from vfl_node.alignment.psi_pairs.spec import PSI_PAIRS
from vfl_node.crypto.groups import Group
from vfl_node.crypto.rows import Rows
from vfl_node.errors import ProtocolError
from vfl_node.job import Parties
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.ledger import Disclosure
from vfl_node.process import failpoints
from vfl_node.session.session import Session

LASTING_NAME = ALIGNMENTS.lasting(PSI_PAIRS.name)
"""Draws and pins have it, so that a job that began under the earlier name goes on with the same bytes."""

_POSITION = np.dtype(f"<u{POSITION_BYTES}")


async def active(session: Session, records: OwnRecords, group: Group | None) -> Alignment:
    """A's side; arguments and errors as :func:`vfl_node.alignment.protocols.align`.

    Leaks: n_a; to each P_j which of its own records A holds, and which of these all parties hold.
    """
    _check_promises(session, records)
    pairs = {name: await psi.active(_pair(session, name), records, group) for name in session.data_peers}
    rows = _common_rows(session, records, [pair.rows for pair in pairs.values()])
    for name, pair in pairs.items():
        position = np.zeros(len(records), dtype=_POSITION)
        position[pair.rows] = np.arange(len(pair))
        positions = position[rows].view(np.uint8).reshape(-1, _POSITION.itemsize)
        failpoints.reach("align-list")
        await session.peers[name].send_rows(positions, count=len(rows), width=_POSITION.itemsize)
    return _alignment(session, pairs, rows)


async def passive(session: Session, records: OwnRecords, group: Group | None) -> Alignment:
    """P_j's side; arguments and errors as :func:`vfl_node.alignment.protocols.align`.

    Raises:
        PolicyError: an earlier job hid what this one would reveal (``E_PROMISE``).
        ProtocolError: a position that is none in the pair's order (``E_ELEMENT``), or comes twice (``E_DUPLICATE``).
        StateError: other positions than in an earlier attempt (``E_REPLAY``).

    Leaks: n_j, and to A which of its own records P_j holds.
    """
    _check_promises(session, records)
    peer = session.job.parties.active
    pair = await psi.passive(_pair(session, peer), records, group)
    received = await session.peers[peer].receive_rows(width=_POSITION.itemsize, max_count=len(pair))
    positions = _check_positions(received, len(pair), peer)
    session.attempt.pins.check(f"{LASTING_NAME} positions", hashlib.sha256(received.tobytes()).digest())
    return _alignment(session, {peer: pair}, pair.rows[positions])


def _check_promises(session: Session, records: OwnRecords) -> None:
    """Refuse before the first pair what an earlier job hid from any party, also from one that this party does not talk to.

    Raises:
        PolicyError: this job would reveal it (``E_PROMISE``): C tells P_j which of its records other passive parties hold.
    """
    identity = records.identity or records.ids.digest()
    promises.hold(session.memory, identity, session.job.align, session.role, binding=False)


def _pair(session: Session, peer: str) -> Session:
    """The session of this party and ``peer`` alone: their lists and pins are apart from those of other pairs."""
    active = session.job.parties.active
    (passive,) = {session.name, peer} - {active}
    return dataclasses.replace(
        session,
        job=session.job.model_copy(update={"parties": Parties(active=active, passive=(passive,))}),
        peers={peer: session.peers[peer]},
        attempt=dataclasses.replace(session.attempt.part(f"with {peer}"), folder=session.attempt.folder / peer),
    )


def _common_rows(session: Session, records: OwnRecords, shared: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The rows that are in each of ``shared``, int64[|C|]; the order is the same in every attempt, whatever the table's is."""
    pairs = np.zeros(len(records), dtype=np.uint8)
    for rows in shared:
        pairs[rows] += 1
    canonical = records.ids.canonical_order
    common = canonical[pairs[canonical] == len(shared)]
    return common[session.randomness.derive(LASTING_NAME).derive("order").permutation(len(common))]


def _check_positions(received: Rows, count: int, peer: str) -> NDArray[np.int64]:
    """The positions, int64[|C|], all of them below ``count`` and no two equal."""
    positions = received.view(_POSITION).reshape(-1).astype(np.int64)
    if (positions >= count).any():
        raise ProtocolError(f"{PSI_PAIRS.name} positions from {peer}: one is beyond the {count} records", code="E_ELEMENT")
    if len(np.unique(positions)) < len(positions):
        raise ProtocolError(f"{PSI_PAIRS.name} positions from {peer}: one occurs twice", code="E_DUPLICATE")
    return positions


def _alignment(session: Session, pairs: Mapping[str, Alignment], rows: NDArray[np.int64]) -> Alignment:
    """The alignment of all parties, as one sees it that has aligned in ``pairs``; of other parties it knows nothing else."""
    common = len(rows)
    several = len(session.job.parties.passive) > 1
    in_all = (Disclosure("intersection", common, f"which {common} of its own records all parties hold"),) * several
    known = {
        name: dataclasses.replace(pair.peers[name], missing=0, learnt=pair.peers[name].learnt + in_all)
        for name, pair in pairs.items()
    }
    unknown = PeerFacts(records=None, missing=0, learnt=in_all)
    first, *_ = pairs.values()
    return dataclasses.replace(
        first,
        spec=PSI_PAIRS,
        rows=rows,
        peers={name: known.get(name, unknown) for name in session.others},
        union=None if several else first.union,
        common=common,
        learnt=tuple(entry for pair in pairs.values() for entry in pair.learnt) + in_all,
    )
