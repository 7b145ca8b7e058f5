"""A party's own attacks on what it sends to each of several peers, and on what they see if they share it.

Each peer's attacks are those of a single one (:mod:`vfl_node.privacy.audit`). Peers that work together have the rows of all of
them side by side, which is more than any one has: gradients of different embeddings are different views of the same error,
and each has noise of its own where a defence adds some. So all together are one more attacker.

What is reported of an attack is the worst of these attackers. All of them look at the same sample, so that chance does not give
the largest of several figures more than it gives each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from vfl_node.models.storage import in_parts, parted
from vfl_node.privacy.attacks.attack import Positions
from vfl_node.privacy.audit import Audit
from vfl_node.privacy.equal_weights import Judged
from vfl_node.privacy.outgoing import Sent

TOGETHER = "all_together"
"""The attacker that all peers are together. No party has an underscore in its name."""


class AuditOfPeers:
    """As :class:`~vfl_node.privacy.audit.Audit`, of gradients that go to one peer or to several.

    Args:
        peers: their names.
        audit: makes one attacker's attacks, the same for each.

    Attributes:
        judged: attack → number of rows behind its newest figure.
        held_out: None: gradients of held-out rows are not sent.

    Cost: an :class:`~vfl_node.privacy.audit.Audit` of each peer, and of several one more, whose rows are as wide as all theirs.
    """

    def __init__(self, peers: Sequence[str], audit: Callable[[], Audit]) -> None:
        attackers = [*peers, TOGETHER] if len(peers) > 1 else peers
        self._audits = {attacker: audit() for attacker in attackers}
        self.held_out: Judged | None = None
        self.judged: dict[str, int] = {}

    def of_peer(self, peer: str) -> Audit:
        """What sees all that leaves for ``peer``."""
        return self._audits[peer]

    def see_together(self, positions: Positions, gradients: Sequence[Tensor]) -> None:
        """Look at one step of training as all peers together see it: float32[B, d] that was sent to each."""
        if TOGETHER in self._audits:
            rows = torch.cat(list(gradients), dim=1)
            self._audits[TOGETHER].see(Sent(positions, rows, rows))

    def epoch_done(self) -> dict[str, float | None]:
        """As :meth:`Audit.epoch_done`: of each attack the AUC of the attacker that tells most by it.

        Raises:
            PolicyError: of one of the attackers.
        """
        values = {attacker: audit.epoch_done() for attacker, audit in self._audits.items()}
        worst = _worst(values)
        counts = {name: self._audits[attacker].judged.get(name) for name, attacker in worst.items()}
        self.judged |= {name: rows for name, rows in counts.items() if rows is not None}
        return {name: values[attacker][name] for name, attacker in worst.items()}

    @property
    def averages(self) -> dict[str, float | None]:
        """As :attr:`Audit.averages`, of the worst attacker by each."""
        values = {attacker: audit.averages for attacker, audit in self._audits.items()}
        return {name: values[attacker][name] for name, attacker in _worst(values).items()}

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Audit.tensors`, of each attacker."""
        return in_parts({attacker: audit.tensors() for attacker, audit in self._audits.items()})

    def so_far(self) -> dict[str, Tensor]:
        """As :meth:`Audit.so_far`, of each attacker."""
        return in_parts({attacker: audit.so_far() for attacker, audit in self._audits.items()})

    def follow_on(self, earlier: Mapping[str, Tensor]) -> None:
        """As :meth:`Audit.follow_on`."""
        for attacker, seen in parted(earlier, self._audits).items():
            self._audits[attacker].follow_on(seen)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As :meth:`Audit.restore`."""
        for attacker, of_attacker in parted(tensors, self._audits).items():
            self._audits[attacker].restore(of_attacker)


def _worst(values: Mapping[str, Mapping[str, float | None]]) -> dict[str, str]:
    """Attack → the attacker whose AUC, folded, is the largest; the first of all where it is not defined for any."""

    def told(attacker: str, name: str) -> float:
        value = values[attacker].get(name)
        return -1.0 if value is None else abs(value - 0.5)

    names = next(iter(values.values()))
    return {name: max(values, key=lambda attacker: told(attacker, name)) for name in names}
