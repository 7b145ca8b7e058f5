"""Which trainings the tables and the figure of training in shares need."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.hidden.cost import between_nodes
from experiments.hidden.experiment import hidden, leaks, union_in_the_open
from experiments.inference.experiment import Work

REAL = ("adult", "default_credit", "criteo", "talkingdata")
HALF = 0.5
"""Where trainings are attacked, and measured between nodes."""


@dataclass(frozen=True)
class Plan:
    """How much is done.

    Attributes:
        seeds: of each training.
        small: a made-up table, for a first look.
    """

    seeds: int = 3
    small: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables."""
        return ("made_up",) if self.small else REAL

    @property
    def ratios(self) -> tuple[float, ...]:
        """α = β."""
        return (0.2, HALF) if self.small else (0.05, 0.2, 0.35, HALF, 0.65, 0.8, 0.95)

    def trainings(self, data: str, ratio: float) -> list[tuple[Work, Work]]:
        """Trainings of each seed: in shares and in the clear, and FLORIST's."""
        each = [{"data": data, "seed": seed, "ratio": ratio} for seed in range(self.seeds)]
        return [(Work(hidden, arguments), Work(union_in_the_open, arguments)) for arguments in each]

    def attacked(self, data: str) -> list[Work]:
        """Trainings of each seed that are attacked."""
        return [Work(leaks, {"data": data, "seed": seed, "ratio": HALF}) for seed in range(self.seeds)]

    def cost(self, data: str) -> Work:
        """The measurement of one seed."""
        return Work(between_nodes, {"data": data, "seed": 0, "ratio": HALF})

    @property
    def works(self) -> list[Work]:
        """All of these, seed after seed, and the costs at last."""
        of_seed: list[list[Work]] = [[] for _ in range(self.seeds)]
        for data in self.names:
            for ratio in self.ratios:
                for seed, pair in enumerate(self.trainings(data, ratio)):
                    of_seed[seed] += pair
            for seed, work in enumerate(self.attacked(data)):
                of_seed[seed].append(work)
        return [*(work for each in of_seed for work in each), *map(self.cost, self.names)]
