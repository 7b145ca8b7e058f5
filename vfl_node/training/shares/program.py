"""The contract of a training in shares: what is public of it, and the dealer's part in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from vfl_node.crypto.shares.machine import Dealer
from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.section import TrainerSection
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, ShareContext

P = TypeVar("P")

After = Callable[[], Awaitable[None]]
"""What happens after an epoch, or a tree."""


class Program(ABC, Generic[P]):
    """One kind of training in shares, of one job.

    Attributes:
        version: of the computation: another one computes other values in the same places, so masks must be others.
        unit: what its steps are, such as ``epochs``; after each there is a checkpoint.

    Args:
        job: the job.
    """

    version: ClassVar[int]
    unit: ClassVar[str] = "epochs"

    def __init__(self, job: Job) -> None:
        self.job = job

    @abstractmethod
    def public(self, said: ShareContext | DealingTerms) -> Mapping[str, Any]:
        """What values depend on beside the job, the widths and the schedule, as JSON: the same of both messages."""

    @abstractmethod
    def plan(self, said: DealingTerms) -> P:
        """The training that the terms describe."""

    @abstractmethod
    def fits(self, said: DealingTerms) -> bool:
        """Whether the job can have such terms; rows, widths and digests were checked."""

    @abstractmethod
    def steps(self, plan: P) -> int:
        """How many there are."""

    @abstractmethod
    def party_bytes(self, rows: int, widths: Sequence[int], batch_rows: int) -> int:
        """Memory that a data party needs."""

    @abstractmethod
    def dealer_bytes(self, rows: int, widths: Sequence[int], batch_rows: int) -> int:
        """Memory that the coordinator needs."""

    @abstractmethod
    async def deal(self, dealer: Dealer, plan: P, first: int, after: After) -> None:
        """The dealer's part from step ``first`` on."""

    @abstractmethod
    def learns(self, rows: int | None, widths: Sequence[int]) -> Mapping[str, tuple[Disclosure, ...]]:
        """What each party learns, as far as the coordinator knows."""

    @abstractmethod
    def section(self, dealer_bytes: int) -> TrainerSection:
        """What the coordinator reports."""
