"""``fedcvt``: what a job says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from vfl_node.computing import Network, Passes
from vfl_node.models import cut_width
from vfl_node.training.unaligned.methods import AlternatingMethod
from vfl_node.training.unaligned.sizes import Sizes

if TYPE_CHECKING:
    from vfl_node.job import Job


def _weight(default: float, of: str) -> Any:
    return Field(default=default, ge=0, le=1000, allow_inf_nan=False, description=f"weight of the loss that {of}")


class FedCvt(AlternatingMethod):
    """FedAds' FedCVT: embeddings by attention over aligned rows (Kang et al. 2022)."""

    estimates: ClassVar[bool] = True
    implementation: ClassVar[str] = "vfl_node.training.unaligned.fedcvt.estimator:Estimator"

    pretrain: float = Field(default=0.1, gt=0, lt=1, description="as for the others; one epoch at least, and one is left")
    candidates: int = Field(default=512, ge=2, le=65536, description="aligned rows, drawn anew, that an estimate weighs")
    temperature: float = Field(
        default=0.5, gt=0, le=10, description="the smaller, the more an estimate is that of the most similar candidate"
    )
    common: float = _weight(0.1, "brings the common parts of both parties' representations of a row together")
    orthogonal: float = _weight(0.01, "keeps the unique and the common part of a representation apart")
    estimate: float = _weight(1.0, "brings estimates for aligned rows to what the passive party sent")

    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: each local batch sends candidates through the own bottom, and all batches weigh them by attention."""
        local = self.local_rows(sizes)
        attention = Network(bottom=False, dense=(sizes.own, sizes.received, self.candidates, sizes.received))
        drawn = -(-local // sizes.batch) * self.candidates
        return (
            *super().work(sizes),
            Passes("active", Network(bottom=True), drawn, self.candidates, learns=False),
            Passes("active", attention, local + sizes.aligned * sizes.epochs, sizes.batch),
        )

    def check(self, job: Job, epochs: int) -> None:
        """As the base; an embedding must have two halves."""
        super().check(job, epochs)
        train: Any = job.train
        if cut_width(train) % 2:
            raise ValueError(
                f"train.unaligned: {self.method} reads an embedding as two halves, and its width, the last of train.bottom, is "
                "odd: choose an even one"
            )

    def words(self) -> str:
        """As the base."""
        return "an estimate from aligned rows that are alike, anew in each batch"
