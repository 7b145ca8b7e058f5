"""Which rows of a model the peer is told about: they are counted before anything of them is sent.

Where the owner limits how well attacks may do, they run before, too. Where not, they run beside the requests, and once more at
the end on everything that was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.errors import PolicyError
from vfl_node.privacy.equal_weights import Judged
from vfl_node.privacy.labels.evidence import record_names
from vfl_node.session.session import Session
from vfl_node.settings.protection import Protection
from vfl_node.training.prediction.audit import SERVED, PredictionAudit, PredictionLabelAudit
from vfl_node.training.prediction.names import find_known, join, missing
from vfl_node.training.prediction.side_work import SideWork
from vfl_node.training.prediction.sides import EmbeddingSide, Positions, ScoringSide, ServiceSide
from vfl_node.training.predictor import Names, ShownRows

ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class OutgoingBatch:
    """One batch that is about to be sent.

    Attributes:
        names: int64[B], of its rows.
        sent: float[B, …], what is sent of them.
        synthetic: bool[B], which rows are synthetic at this party.
        rows: int64[B], of this party's table; negative where it has none, or does not know which.
    """

    names: Names
    sent: Tensor
    synthetic: NDArray[np.bool_]
    rows: NDArray[np.int64]


class DisclosureGuard:
    """Counts and attacks everything that a party is about to send about rows of a model, and refuses too much.

    Args:
        side: this party's half.
        shown: the rows that the peer was told about before.
        protection: which attacks the owner lets run on what is sent, and how successful they may be.
        labels: judges predictions that another party asks for; None: they are not.
        on_judged: called when there are new figures of what the owner does not limit, on the thread that found them.
    """

    def __init__(
        self,
        side: ServiceSide,
        shown: ShownRows,
        protection: Protection,
        labels: PredictionLabelAudit | None = None,
        on_judged: Callable[[], None] = lambda: None,
    ) -> None:
        self._labels, self.on_judged = labels, on_judged
        audit, limit = side.draws.derive("audit of predictions"), protection.max_attack_auc
        active = protection.membership and side.makes_rows_up
        self._limited, self._beside = limit is not None, SideWork(self._catch_up)
        self._judges_beside = labels is not None or (active and not self._limited)
        self._shown, self._audit = shown, PredictionAudit(audit, limit=limit, active=active)
        audited = isinstance(side, EmbeddingSide) and side.alignment.missing and active
        self._embedder = side if audited and isinstance(side, EmbeddingSide) else None
        self._known = np.empty(0, dtype=np.int64)
        self._add_others()
        self._expected: PredictionAudit | None = None
        if self._embedder and limit is not None:
            self._expected = PredictionAudit(audit, limit=limit)
            _embed(self._expected, self._embedder, self._embedder.draw_positions(shown.most))
            self._expected.attack()

    @property
    def rows_told(self) -> int:
        """How many different rows of the model the peer was told about so far."""
        return len(self._known)

    @property
    def judged(self) -> Judged:
        """The attacks on all that this party has sent of the model, as far as it can be computed anew after a restart."""
        return self._audit.judged

    @property
    def labels_read(self) -> dict[str, float | None]:
        """How well labels can be read from the predictions that others got; empty where that is not judged."""
        return {SERVED: self._labels.figure} if self._labels and self._labels.figure is not None else {}

    def check(self, positions: Positions) -> None:
        """Check that the number of rows stays allowed with those at ``positions``. Raises PolicyError (``E_BUDGET``)."""
        if not find_known(positions, self._known).all():
            self._shown.check(positions)

    def admit(self, batches: Sequence[OutgoingBatch]) -> None:
        """Count and attack what is about to be sent.

        Raises:
            PolicyError: more rows than the owner allows (``E_BUDGET``), or the attacks are too successful (``E_LEAK``).
        """
        self._add_others()
        if not batches:
            return
        names = np.concatenate([batch.names for batch in batches])
        if find_known(names, self._known).all():
            return
        names, first = np.unique(names, return_index=True)
        new = ~find_known(names, self._known)
        names, first = names[new], first[new]
        self._shown.check(names)
        synthetic = np.concatenate([batch.synthetic for batch in batches])[first]
        sent = torch.cat([batch.sent.reshape(len(batch.sent), -1) for batch in batches])[torch.from_numpy(first)]
        self._audit.see(sent, synthetic)
        if self._limited:
            self._audit.attack()
            self._audit.check(self._expected)
        if self._labels:
            self._labels.admit(np.concatenate([batch.rows for batch in batches])[first], sent)
        self._shown.add(names)
        self._known = join(self._known, names)
        self._judge_beside()

    def begin(self) -> None:
        """Judge what was told before; :meth:`finish` must be called in the end."""
        self._judge_beside()

    def finish(self) -> None:
        """Judge everything that was sent, once nothing more is."""
        self._beside.finish()
        self._audit.catch_up()

    def _judge_beside(self) -> None:
        if self._judges_beside:
            self._beside.ask()

    def _catch_up(self) -> None:
        """Bring those figures up to date that the owner does not limit: nothing waits for them."""
        if not self._limited:
            self._audit.catch_up()
        if self._labels:
            self._labels.catch_up()
        self.on_judged()

    def _add_others(self) -> None:
        """Add what others have shown: earlier services and attempts, and another service that runs at the same time."""
        rows = self._shown.rows()
        if len(rows) == len(self._known):  # those that this guard knows, and no others
            return
        others = missing(rows, self._known)
        if self._embedder:
            _embed(self._audit, self._embedder, others[others >= 0])
            if self._limited:
                self._audit.attack()
        self._known = join(self._known, others)


def label_audit(session: Session, side: ServiceSide) -> PredictionLabelAudit | None:
    """What judges predictions that another party asks for; None at a party without labels, or whose owner wants it not."""
    job, asker, labels = session.job, session.job.asker, side.labels
    if job.predict is None or asker in (None, session.name) or labels is None or not session.policy.protection.labels:
        return None
    if not isinstance(side, ScoringSide) or str(asker) not in session.memories:
        return None
    memory, everywhere = session.memories[str(asker)], np.arange(len(labels))
    return PredictionLabelAudit(
        memory,
        side.table_name,
        job.predict.model,
        names=record_names(memory.secret, side.table_ids, everywhere, everywhere),
        labels=labels.astype(np.float64),
        column=side.label_column,
        classes=side.terms.classes if side.terms.task == "classification" else 0,
        limit=session.policy.protection.max_label_auc,
    )


def check_judged(session: Session, *, named: bool) -> None:
    """Refuse another party's request for rows of which this one does not know the labels, where its owner limits these.

    Labels of new records are not read, and rows may be those of the training; rows that are not ``named`` nobody here knows.

    Raises:
        PolicyError: ``attacks.labels`` could not be kept (``E_LEAK``; the peer is told ``E_STOPPED``).
    """
    asked_by_another = session.role == "active" and session.job.asker not in (None, session.name)
    if named or not asked_by_another or session.policy.protection.max_label_auc is None:
        return
    raise PolicyError(
        "another party asks for predictions of rows whose labels this node cannot look up, and attacks.labels is set",
        code="E_LEAK",
        hint="let it ask for known records by their ids, or remove the limit",
        for_peer="its owner's policy does not allow predictions of these rows",
        peer_code="E_STOPPED",
    )


def names_of_new(side: ServiceSide, positions: Positions, received: Tensor | None) -> Names:
    """Names for new rows at shared ``positions``, int64[B]; this party owns each of them.

    A name covers all that an answer depends on: this party's own columns, what it received, and the record. So another party
    cannot make two records one row, whatever it sends; and a record with other values is told about anew.

    Args:
        received: float[B, …], of the rows, from other parties; None if what is sent depends on own columns alone.
    """
    own, ids = side.own(positions), side.ids(positions)
    others = [b""] * len(ids) if received is None else _bytes_of(received)
    parts = zip(own, others, ids, strict=True)  # all own ones are equally long, and all others: one id can give one text only
    return _names(side, "names of new rows", (b"".join(part) for part in parts))


def names_of_unnamed(side: ServiceSide, embedding: Tensor) -> Names:
    """Names for rows without ids, from their embeddings float[B, d].

    The active party has no columns then: what it says is a function of the embedding. And an embedding that comes again tells
    it no other values, and not whose they are.
    """
    return _names(side, "names of rows without ids", _bytes_of(embedding))


def _names(side: ServiceSide, kind: str, rows: Iterable[bytes]) -> Names:
    """63 bits of a keyed digest of each of ``rows``, below 0; the same in all jobs over the model. 2 µs a row."""
    key = side.draws.derive(kind).bytes(32)
    digests = b"".join(blake2b(row, digest_size=8, key=key).digest() for row in rows)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64) | np.int64(-(2**63))


def _bytes_of(rows: Tensor) -> list[bytes]:
    return [row.tobytes() for row in rows.detach().cpu().contiguous().numpy()]


def _embed(audit: PredictionAudit, side: EmbeddingSide, positions: Positions) -> None:
    """Show ``audit`` the rows at ``positions``, as the peer receives them."""
    synthetic = ~side.alignment.owned
    for start in range(0, len(positions), ROWS_AT_ONCE):
        part = positions[start : start + ROWS_AT_ONCE]
        audit.see(side.embed_shared(part), synthetic[part])
