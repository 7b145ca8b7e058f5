"""The data parties' check of what the dealer deals, in a training (:mod:`vfl_node.crypto.shares.audit`).

The blocks are steps: each batch of an epoch is trained on, or checked with the job's probability. A batch that is checked is
not trained on in this epoch, because what is dealt for a step depends on its rows: a spare block, dealt for no rows or for
other ones than those of a step, would show the dealer that it is spare.
"""

from __future__ import annotations

from dataclasses import replace

from vfl_node.crypto.shares.audit import Coins, SectionAudit
from vfl_node.errors import ProtocolError
from vfl_node.session.openings import OpeningLog
from vfl_node.session.session import Session
from vfl_node.session.share_wire import PairWire, StarWire
from vfl_node.session.toss import toss
from vfl_node.training.hidden.brought import HiddenPlan
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.held import block, candidates, purpose


async def toss_coins(session: Session) -> Coins | None:
    """The coins of a job, the same in every attempt; None without an audit. Raises as :func:`toss`."""
    share = Hidden.section_of(session.job).dealer_audit
    if not share:
        return None
    apart = replace(session, attempt=session.attempt.part("audit"))
    return Coins(await toss(apart, session.randomness.derive("toss of the audit")), share, candidates(audits=True))


def make_audit(place: int, coins: Coins, wire: PairWire | StarWire, log: OpeningLog, dealer: str) -> SectionAudit:
    """A party's part; ``dealer`` is the coordinator's name."""
    assert isinstance(wire, PairWire)  # the job was checked

    def refusal(section: str) -> ProtocolError:
        return ProtocolError(
            f"numbers that {dealer} dealt for training are wrong: those for {purpose(section)} do not fit its masks",
            code="E_DEALER",
            hint="do not use what was trained with them; submit a new job with another coordinator",
            for_peer=f"numbers that {dealer} dealt for training are wrong: submit a new job with another coordinator",
        )

    return SectionAudit(place, coins.shows, wire.swap_seeds, log.hold, refusal)


def count(plan: HiddenPlan, coins: Coins) -> int:
    """How many batches of all epochs are checked."""
    numbers = range(len(plan.batches(0)))
    return sum(coins.shows(block(epoch, number)) for epoch in range(plan.epochs) for number in numbers)
