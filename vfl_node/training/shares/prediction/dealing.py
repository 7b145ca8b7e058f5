"""The coordinator's part in predictions: it deals randomness for one batch after the other, and receives sizes alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import Dealer
from vfl_node.errors import ProtocolError
from vfl_node.job import Job
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, PhaseBegan
from vfl_node.session.session import Session
from vfl_node.session.share_wire import DealingSink
from vfl_node.training.predictor import Predicted, ServiceCount, ServiceTally
from vfl_node.training.shares import agreement
from vfl_node.training.shares.dealing import seed_of
from vfl_node.training.shares.kept import AnswerForm
from vfl_node.training.shares.prediction.answers import answer, check_memory, masks_of
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1.shares_pb2 import AnswerTerms, DealerSeed


class AnswerDealing:
    """All data parties' conversations in one job of predictions, each on a thread of its own.

    None of them waits for another: what a party is dealt depends on what it says itself, which its masks depend on, too.

    Args:
        session: the coordinator's.
        trained: the job that trained the model.
        form_of: makes the model's form of that job and the widths of all parties.
        tally: stores what is dealt for known records.
    """

    def __init__(
        self, session: Session, trained: Job, form_of: Callable[[Job, Sequence[int]], AnswerForm], tally: ServiceTally
    ) -> None:
        assert trained.serve is not None
        self._session, self._trained, self._form_of, self._most = session, trained, form_of, trained.serve.batch_size
        self._tally, self._new_rows = tally, 0
        self._served = tally.read() or ServiceCount(self._most)
        session.progress.emit(PhaseBegan("deal", 0, "batches"))

    async def serve(self, channel: Channel) -> None:
        """Deal to one data party until it needs no more.

        Raises:
            ProtocolError: shapes that these predictions cannot have (``E_COUNT``).
            StateError: there is no memory for these (``E_MEMORY``).
        """
        session, parties = self._session, self._session.job.parties
        seeds = [seed_of(session.randomness, name) for name in parties.data]
        place = parties.data.index(channel.peer)
        async with channel.phase("deal"):
            await channel.send(DealerSeed(seed=seeds[place]))
            while (said := await channel.receive(AnswerTerms)).rows:
                form = self._check(said, channel.peer)
                if place == 0:
                    self._count(said.rows)
                nothing = [np.zeros(shape, np.uint64) for shape in form.shapes]
                sink = DealingSink(channel)
                dealer = Dealer(place, [Randomness(seed) for seed in seeds], sink, masks_of(said))
                await answer(dealer, form, nothing, said.rows, None, None, 0)
                await sink.finish()
                session.progress.emit(Advanced(1))
                failpoints.reach("dealt")

    def exchanged(self) -> ServiceCount | Predicted:
        """As :meth:`vfl_node.training.predictor.Answering.exchanged`."""
        if self._session.job.is_service:
            return self._served
        nothing = np.empty(0, dtype=np.int64)
        return Predicted(nothing, nothing.astype(np.float64), shared=self._new_rows)

    def _count(self, rows: int) -> None:
        """A batch of the active party, which has a part in all of them."""
        self._new_rows += rows
        if self._session.job.is_service:
            self._served.batches += 1
            self._tally.write(self._served)

    def _check(self, said: AnswerTerms, peer: str) -> AnswerForm:
        widths = list(said.widths)
        fits = (
            said.rows <= self._most
            and len(widths) == len(self._session.job.parties.data)
            and all(0 < width <= agreement.MOST_COLUMNS for width in widths)
            and len(said.context) == agreement.DIGEST_BYTES
        )
        if not fits:
            raise ProtocolError(
                f"{peer} wants randomness for predictions that this model does not make: {said.rows} rows of "
                f"{' and '.join(map(str, widths[:9])) or 'no'} columns",
                code="E_COUNT",
                hint=f"ask the owner of {peer} whether it runs another version, and ask again",
            )
        form = self._form_of(self._trained, widths)
        check_memory(self._session, form, said.rows)
        return form
