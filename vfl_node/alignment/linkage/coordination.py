"""The coordinator's side of a linkage: filters in, the nearest found, noise on their similarities, candidates out.

It has a conversation with each data party, on threads of their own. What it draws and measures is the same in every job of
these two parties on the same terms, because it remembers its secret, μ0 and σ0. If it lost that, the parties know of more
alignments than it does, and it refuses to go on (``E_STATE_OLDER``) until its owner accepts the loss.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from vfl_node.alignment.linkage import learnt, terms
from vfl_node.alignment.linkage.policy import no_similarities_error
from vfl_node.alignment.linkage.side import LinkageSizes
from vfl_node.alignment.linkage.similarity import NONE, DistanceScale, PairDraws, ReuseCount, least_tau, sigma_of
from vfl_node.alignment.linkage.words import TAU_MEANS
from vfl_node.alignment.lists.columns import Column, Columns
from vfl_node.alignment.lists.meeting import check_size
from vfl_node.crypto.nearest.matrices import nearest_by_products
from vfl_node.crypto.nearest.search import BLOCK_ROWS, nearest
from vfl_node.crypto.rows import Rows
from vfl_node.errors import PolicyError, ProtocolError
from vfl_node.job.keys import NO_KEYS, SimilarityNoise, filter_bits
from vfl_node.ledger import Disclosure
from vfl_node.process import failpoints
from vfl_node.process.files import read_checked, write_checked
from vfl_node.progress import Advanced, PhaseBegan
from vfl_node.session.counted import Counted, linked_sets
from vfl_node.session.memory import join_memories
from vfl_node.session.session import Session
from vfl_node.transport.channel import CHUNK_BYTES, Channel
from vfl_node.transport.generated.vfl.v1.linkage_pb2 import EncodingTerms, LinkageAccepted, Reuse, Scale

_EQUAL = DistanceScale(0.0, 1.0)
"""Where only candidates with equal filters count."""


@dataclass(frozen=True)
class Nearest:
    """The nearest of all records, and what is made of them.

    Attributes:
        nearest: rows of K candidates, int32, and K distances, int32.
        scale: μ0 and σ0.
        sigma: of the noise.
        draws: of pairs.
        active: marks of the active party's filters.
        passive: marks of the passive party's.
        reuse: how often each record of the passive party is a candidate.
        without: records of the active party that have none.
    """

    nearest: Column
    scale: DistanceScale
    sigma: float
    draws: PairDraws
    active: list[bytes]
    passive: list[bytes]
    reuse: ReuseCount
    without: int

    def answer_chunks(self, part: int) -> Iterator[Rows]:
        """Candidates (0) or similarities (1) of all records, in the order in which the parties get them: uint8[k, 4·K]."""
        start = 0
        for chunk in self.nearest.chunks():
            rows, distances = _split(chunk)
            marks = self.active[start : start + len(rows)]
            both = self.draws.perturb(marks, self.passive, rows, distances, self.scale, self.sigma, start)
            yield np.ascontiguousarray(both[part]).astype(("<i4", "<f4")[part]).view(np.uint8)
            start += len(rows)


class Linker:
    """The coordinator's part in one linkage (:class:`vfl_node.alignment.protocols.AlignmentCoordination`).

    Args:
        session: the coordinator's; columns lie in ``lists`` in its folder.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._align, parties = session, session.job.align, session.job.parties
        self._active, self._passive = parties.pair["active"], parties.pair["passive"]
        keys = self._align.keys or NO_KEYS
        self._bits = filter_bits(keys, self._align.encoding)
        self._memory = join_memories([session.memories[name] for name in parties.data])
        width, folder = self._bits // 8, session.attempt.folder / "lists"
        self._filters = Columns(folder, width=width, chunk_rows=max(1, CHUNK_BYTES // width))
        self._nearest = Columns(folder, width=8 * self._align.candidates, chunk_rows=BLOCK_ROWS)
        self._said: dict[str, EncodingTerms] = {}
        self._whole: dict[str, Column] = {}
        self._found: Nearest | None = None
        self._accepted: set[str] = set()
        self._one = threading.Lock()

    async def serve(self, channel: Channel) -> None:
        """Steps 5 to 9 with one data party.

        Raises:
            ProtocolError: filters that a party had not committed to (``E_COMMITMENT``), or seeds that differ.
            PolicyError: too small a set (``E_TOO_FEW``), a linkage too many (``E_BUDGET``), noise that cannot be as small
                as the job wants (``E_TAU``), or distances that are all alike (``E_CONSTANT``).
            StateError: other filters than in an earlier attempt (``E_REPLAY``), or memory lost (``E_STATE_OLDER``).
        """
        async with channel.phase("align"):
            await self._introduce(channel)
            await self._take_filters(channel)
            if channel.peer == self._active:
                while len(self._whole) < 2:
                    await channel.pause()
                found = self._found = self._search()
                while self._passive not in self._accepted:
                    await channel.pause()
                await channel.send(self._scale(found))
                part = 1
            else:
                while self._found is None:
                    await channel.pause()
                found = self._found
                await channel.send(self._reuse(found))
                part = 0
            await self._hear_accepted(channel)
            await self._send(channel, found, part)

    def close(self) -> None:
        """Close all files. Idempotent."""
        self._filters.close()
        self._nearest.close()

    def disclosures(self) -> Mapping[str, tuple[Disclosure, ...]]:
        """Party → what it learnt, from what the search stored, which outlives a restart."""
        path = self._session.attempt.folder / "linkage"
        known = json.loads(read_checked(path, hint="submit the job again as a new one"))
        sizes = LinkageSizes(known["active"], known["passive"], self._bits)
        return learnt.disclosures(self._session.job, sizes, known["sigma"], known["reuse"])

    async def _introduce(self, channel: Channel) -> None:
        """Step 5: hear what this party commits to, and tell it what the other one does."""
        session, peer = self._session, channel.peer
        said = await channel.receive(EncodingTerms)
        terms.check_terms(said, peer, self._bits)
        if len(said.salt) != terms.DIGEST_BYTES or len(said.seed_mark) != terms.DIGEST_BYTES:
            raise ProtocolError(f"{peer} commits to filters without a salt or a mark of their seed")
        check_size(peer, said.count, self._align, session.policy.limits)
        session.attempt.pins.check(f"linkage terms of {peer}", terms.pinned_digest(said))
        column = self._filters.column(f"filters of {peer}")
        with self._one:
            self._said[peer] = said
        while len(self._said) < 2:
            await channel.pause()
        self._check_seeds()
        for what in self._counts():
            self._memory.check(what)
        other = self._said[self._passive if peer == self._active else self._active]
        shown = {field: getattr(other, field) for field in terms.SHOWN}
        failpoints.reach("align-size")
        await channel.send(EncodingTerms(**shown, held=len(column)))

    def _check_seeds(self) -> None:
        active, passive = self._said[self._active], self._said[self._passive]
        if active.seed_mark != passive.seed_mark:
            raise ProtocolError(
                f"{self._active} and {self._passive} have encoded with different seeds",
                code="E_COMMITMENT",
                for_peer="the data parties have encoded with different seeds",
            )

    def _counts(self) -> list[Counted]:
        """The linkage over the filters of both, as it is counted."""
        active, passive = self._said[self._active], self._said[self._passive]
        linkage = terms.linkage_of(self._terms, active, passive, self._session.name)
        both, any_set = (active.commitment, passive.commitment), terms.any_set(self._align, self._terms, linkage)
        each = ((both[0], linkage), (both[1], linkage), any_set)
        return [linked_sets(records, other, self._session.policy.limits.budgets.linkages) for records, other in each]

    @property
    def _terms(self) -> bytes:
        return terms.digest_of(self._align, self._said[self._active].seed_mark)

    async def _take_filters(self, channel: Channel) -> None:
        """Step 6: the filters that this party has committed to."""
        peer, said = channel.peer, self._said[channel.peer]
        column = self._filters.column(f"filters of {peer}")
        self._filters.need_room(sum(announced.count for announced in self._said.values()))
        self._nearest.need_room(self._said[self._active].count)
        self._session.progress.emit(PhaseBegan("align", self._said[self._active].count, "searched records"))
        async for chunk in channel.receive_chunks(
            width=column.width, count=said.count, start=len(column), digest=column.digest
        ):
            column.append(chunk)
        column.sync()
        failpoints.reach("align-synced")
        if terms.commitment_to(column.digest.digest(), said.salt) != said.commitment:
            raise ProtocolError(
                f"{peer} sent other filters than it had committed to",
                code="E_COMMITMENT",
                for_peer="a data party sent other filters than it had committed to",
            )
        self._session.attempt.pins.check(f"filters of {peer}", column.digest.digest())
        failpoints.reach("align-stored")
        with self._one:
            self._whole[peer] = column

    def _search(self) -> Nearest:
        """Step 7: the nearest of all records, their scale and noise, and how often each is used."""
        session, column = self._session, self._nearest.column("nearest")
        active, passive = self._whole[self._active], self._whole[self._passive]
        session.progress.emit(Advanced(len(column)))
        search = partial(nearest, engine=session.machine.threads)
        if session.machine.accelerated:
            search = partial(nearest_by_products, device=session.machine.device)
        candidates, equal_only = self._align.candidates, self._align.equal_only
        blocks = search(active.rows, passive.rows, candidates, equal_only=equal_only, start=len(column))
        for block in blocks:
            column.append(np.concatenate([block.rows, block.distances], axis=1).astype("<i4").view(np.uint8))
            session.progress.emit(Advanced(len(block.rows)))
        column.sync()
        session.attempt.pins.check("nearest", column.digest.digest())
        scale, sigma = self._noise(column)
        draws = PairDraws(self._memory.secret, self._terms)
        own, theirs = ([mark for chunk in filters.chunks() for mark in draws.marks(chunk)] for filters in (active, passive))
        reuse, without, start = ReuseCount(len(passive)), 0, 0
        for chunk in column.chunks():
            rows, _ = _split(chunk)
            reuse.add(own[start : start + len(rows)], rows)
            without += int(np.count_nonzero(rows[:, 0] == NONE))
            start += len(rows)
        known = {"active": len(active), "passive": len(passive), "sigma": sigma, "reuse": reuse.most}
        write_checked(session.attempt.folder / "linkage", json.dumps(known).encode())
        return Nearest(column, scale, sigma, draws, own, theirs, reuse, without)

    def _noise(self, column: Column) -> tuple[DistanceScale, float]:
        """μ0 and σ0 of the first linkage on these terms, and σ of the job.

        Raises:
            PolicyError: there is no candidate, or all distances are alike (``E_CONSTANT``); no noise gets τ as low (``E_TAU``).
        """
        noise = self._align.noise
        assert noise is not None  # the job was checked
        if self._align.equal_only:
            return _EQUAL, noise.sigma or 0.0
        name = f"scale-{self._terms.hex()[:40]}"
        kept = self._memory.recall(name)
        if kept is None:
            scale = DistanceScale.from_distances(_split(chunk)[1] for chunk in column.chunks())
            if scale is None or scale.deviation == 0:
                raise no_similarities_error(scale is None)
            _sigma(noise, scale)  # refused before it is kept
            kept = self._memory.keep(name, json.dumps([scale.mean, scale.deviation]).encode())
        scale = DistanceScale(*json.loads(kept))
        return scale, _sigma(noise, scale)

    def _reuse(self, found: Nearest) -> Reuse:
        """Step 8: how much the passive party's records are used."""
        deviation = 0.0 if self._align.equal_only else found.scale.deviation
        return Reuse(max=found.reuse.most, median=found.reuse.median, deviation=deviation, sigma=found.sigma)

    def _scale(self, found: Nearest) -> Scale:
        """Step 9: what similarities are made of."""
        scale, deviation = found.scale, 0.0 if self._align.equal_only else found.scale.deviation
        return Scale(mean=scale.mean, deviation=deviation, sigma=found.sigma, without_candidate=found.without)

    async def _hear_accepted(self, channel: Channel) -> None:
        """Wait until both data parties have counted the linkage, and count it. Raises PolicyError (``E_BUDGET``)."""
        await channel.receive(LinkageAccepted)
        with self._one:
            self._accepted.add(channel.peer)
        while len(self._accepted) < 2:
            await channel.pause()
        for what in self._counts():
            self._memory.count(what)

    async def _send(self, channel: Channel, found: Nearest, part: int) -> None:
        count, held = len(found.nearest), self._said[channel.peer].held
        if held > count:
            raise ProtocolError(f"{channel.peer} claims {held} rows, of {count}", code="E_COUNT")
        failpoints.reach("align-list")
        await channel.send_rows(found.answer_chunks(part), count=count, width=4 * self._align.candidates, start=held)


def _sigma(noise: SimilarityNoise, scale: DistanceScale) -> float:
    """σ of the job. Raises PolicyError if no noise gets τ as low as the job wants (``E_TAU``)."""
    if noise.sigma is not None:
        return noise.sigma
    assert noise.tau is not None
    try:
        return sigma_of(noise.tau, scale.deviation)
    except ValueError:
        text = (
            f"align.noise.tau is {noise.tau:g}, and no noise gets it to {least_tau(scale.deviation):.6f} or below with these "
            f"distances. {TAU_MEANS}"
        )
        raise PolicyError(
            text,
            code="E_TAU",
            hint="agree on a larger tau, or on longer filters, which lower this minimum and nothing else",
            for_peer=text,
        ) from None


def _split(chunk: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Candidates and distances of a chunk of the nearest, int32[k, K] each."""
    both = chunk.view("<i4").astype(np.int32)
    half = both.shape[1] // 2
    return both[:, :half], both[:, half:]
