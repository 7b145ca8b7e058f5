"""A passive party's own attacks on its columns, with what it sends and the truth, while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.privacy.features.targets import Targets
from vfl_node.privacy.outgoing import Sent
from vfl_node.progress import Rebuilt


class FeatureAudit:
    """How well fresh decoders rebuild this party's columns from what it has sent, if a share of its rows is known.

    Args:
        targets: the columns; None: none, and nothing is done.
    """

    def __init__(self, targets: Targets | None = None) -> None:
        self.targets = targets

    def see(self, sent: Sent) -> None:
        """Look at one step of training."""

    def epoch_done(self) -> Rebuilt:
        """The success of each attack after this epoch; empty where nothing is audited.

        Raises:
            PolicyError: a column is rebuilt better than the owner allows (``E_LEAK``; the peer is told ``E_STOPPED``).
        """
        return {}

    def judge(self, positions: NDArray[np.int64], rows: Tensor) -> None:
        """Attack the held-out rows at ``positions``, int64[n], float32[n, d], which have not been sent yet.

        Raises:
            PolicyError: as :meth:`epoch_done`.
        """

    def result(self) -> Mapping[str, Mapping[str, Any]]:
        """Column → figures of the report, over the whole repeat."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint at the end of an epoch must hold."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave; the audit must be made with the same arguments."""
