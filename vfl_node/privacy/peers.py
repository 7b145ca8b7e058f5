"""A party's own attacks on what it sends to each of several peers, and on what they see if they share it.

Each peer's attacks are those of a single one (:mod:`vfl_node.privacy.audit`). Peers that work together have the rows of all of
them side by side, which is more than any one has: gradients of different embeddings are different views of the same error,
and each has noise of its own where a defence adds some. So all together are one more attacker.

What is reported of an attack is the worst of these attackers, and the owner's limit holds for each of them. The largest of
several figures is larger by chance, too: of independent random rows, 600 for each peer, the strongest attack showed .56 with
one peer, .59 with two and .61 with eight (means of 20 draws). All attackers look at the same sample, so that gradients that
are alike give figures that are alike, and the largest is then hardly larger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from vfl_node.errors import PolicyError
from vfl_node.models.storage import join_parts, split_parts
from vfl_node.privacy.attachment import Attachment, TrainingStep
from vfl_node.privacy.audit import Audit
from vfl_node.privacy.outgoing import Sent

TOGETHER = "all_together"
"""The attacker that all peers are together. No party has an underscore in its name."""


class AuditOfPeers(Attachment):
    """As :class:`~vfl_node.privacy.audit.Audit`, of gradients that go to one peer or to several.

    Args:
        peers: their names.
        audit: makes one attacker's attacks, the same for each.

    Attributes:
        judged: attack → number of rows behind its newest figure.

    Cost: an :class:`~vfl_node.privacy.audit.Audit` of each peer, and of several one more, whose rows are as wide as all theirs.
    """

    name, carries = Audit.name, Audit.carries

    def __init__(self, peers: Sequence[str], audit: Callable[[], Audit]) -> None:
        attackers = [*peers, TOGETHER] if len(peers) > 1 else peers
        self._audits = {attacker: audit() for attacker in attackers}
        self.judged: dict[str, int] = {}

    def peer_audit(self, peer: str) -> Audit:
        """What sees all that leaves for ``peer``."""
        return self._audits[peer]

    def step_done(self, step: TrainingStep) -> None:
        """Look at one step of training as all peers together see it; each by itself sees it where it leaves."""
        if TOGETHER in self._audits:
            rows = torch.cat(list(step.gradients), dim=1)
            self._audits[TOGETHER].see(Sent(step.positions, rows, rows))

    @override
    def epoch_ends(self) -> Mapping[str, Any]:
        return {"attacks": self.epoch_done(), "judged": dict(self.judged)}

    def findings(self, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """As :meth:`Attachment.findings`; gradients of rows held out are not sent."""
        return {"audit": self.averages}

    def epoch_done(self) -> dict[str, float | None]:
        """As :meth:`Audit.epoch_done`: of each attack the AUC of the attacker that tells most by it.

        Raises:
            PolicyError: of one of the attackers, which the message names if there are several.
        """
        values = {attacker: self._epoch_done(attacker) for attacker in self._audits}
        worst = _worst(values)
        counts = {name: self._audits[attacker].judged.get(name) for name, attacker in worst.items()}
        self.judged |= {name: rows for name, rows in counts.items() if rows is not None}
        return {name: values[attacker][name] for name, attacker in worst.items()}

    def _epoch_done(self, attacker: str) -> dict[str, float | None]:
        try:
            return self._audits[attacker].epoch_done()
        except PolicyError as error:
            if len(self._audits) > 1:
                what = "what all peers together receive" if attacker == TOGETHER else f"what {attacker} receives"
                error.message += f". These are attacks on {what}"
            raise

    @property
    def averages(self) -> dict[str, float | None]:
        """As :attr:`Audit.averages`, of the worst attacker by each."""
        values = {attacker: audit.averages for attacker, audit in self._audits.items()}
        return {name: values[attacker][name] for name, attacker in _worst(values).items()}

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Audit.tensors`, of each attacker."""
        return join_parts({attacker: audit.tensors() for attacker, audit in self._audits.items()})

    def carry_over(self) -> dict[str, Tensor]:
        """As :meth:`Audit.carry_over`, of each attacker."""
        return join_parts({attacker: audit.carry_over() for attacker, audit in self._audits.items()})

    @override
    def follow_on(self, earlier: Mapping[str, Tensor]) -> None:
        for attacker, seen in split_parts(earlier, self._audits).items():
            self._audits[attacker].follow_on(seen)

    @override
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for attacker, of_attacker in split_parts(tensors, self._audits).items():
            self._audits[attacker].restore(of_attacker)


def _worst(values: Mapping[str, Mapping[str, float | None]]) -> dict[str, str]:
    """Attack → the attacker whose AUC, folded, is the largest; the first one where no AUC is defined."""

    def distance_from_chance(attacker: str, name: str) -> float:
        value = values[attacker].get(name)
        return -1.0 if value is None else abs(value - 0.5)

    names = next(iter(values.values()))
    return {name: max(values, key=lambda attacker: distance_from_chance(attacker, name)) for name in names}
