"""What a row takes in a network on this machine, measured for the networks that a job says rows will go through.

They are built as training builds them and read random numbers; a step of training is timed with the job's optimiser. Of a
table that is not known nothing but its rows counts: it stands for :data:`COLUMNS` numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Job
from vfl_node.job.costs import Network, Operations, Passes, TableShape
from vfl_node.models import NONE_DECLARED, Architecture, InputSchema, architecture_of
from vfl_node.models.building import build_bottom
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import linear
from vfl_node.models.updates import Updates
from vfl_node.roles import DataRole
from vfl_node.training.split.config import Train
from vfl_node.training.split.costs import input_schema

COLUMNS = 16
BUDGET_S, FEWEST = 0.1, 3
"""A network is timed for so long, and for so many batches at least."""

MOST_BATCH = 8192
"""Rows timed together at most; in larger batches a row takes as long."""

HELD_ROWS = 1 << 16
"""Rows of the made-up table, from which each batch is taken."""


EACH_S = {"message": 1.0e-3, "meter": 0.18, "metered row": 8e-5, "attacked epoch": 0.1, "joint attack": 3.2}
"""CPU seconds (Xeon, one core): of an end for a message of a batch, with framing, gRPC, TLS and waking whoever waits; of the
meter of labels for each passive party, and for each row that it looks at; of the attacks of an epoch that look for made-up
rows, for each passive party; and of an estimate of the joint attack (:mod:`.joint_estimate`), which needs scikit-learn."""


class MeasuredPace:
    """Seconds of work on one core; each kind of it is measured when it is first asked for.

    Args:
        job: whose training is split training.
        tables: of the parties, as far as they are known.
        models: of the node's settings: name → ``module:Class`` of an architecture.
    """

    def __init__(self, job: Job, tables: Mapping[DataRole, TableShape], models: Mapping[str, str] = NONE_DECLARED) -> None:
        self._train = Train.section_of(job)
        self._architecture: Architecture = architecture_of(self._train.model, models)
        self._tables = tables
        self._row_s: dict[tuple[DataRole, Network, int, bool], float] = {}

    def __call__(self, work: Passes | Operations) -> float:
        """The seconds of all of it."""
        if isinstance(work, Operations):
            return work.count * EACH_S[work.kind]
        batch = max(1, min(work.batch, MOST_BATCH, int(work.rows)))
        kind = (work.at, work.network, batch, work.learns)
        if work.rows and kind not in self._row_s:
            self._row_s[kind] = self._measure(*kind)
        return work.rows * self._row_s[kind] if work.rows else 0.0

    def _measure(self, at: DataRole, network: Network, batch: int, learns: bool) -> float:
        """CPU seconds a row, the mean of all batches that are timed."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            step = self._make_step(at, network, batch, learns=learns)
            step()
            done, began = 0, time.process_time()
            while (spent := time.process_time() - began) < BUDGET_S or done < FEWEST:
                step()
                done += 1
            return spent / (done * batch)
        finally:
            torch.set_num_threads(threads)

    def _make_step(self, at: DataRole, network: Network, batch: int, *, learns: bool) -> Callable[[], None]:
        """What computes one batch."""
        train, schema = self._train, InputSchema()
        if network.bottom:
            schema = input_schema(self._tables.get(at, TableShape()), images=self._architecture.reads_images())
            schema = InputSchema(COLUMNS) if schema.empty else schema
        sizes = train.active_bottom if at == "active" else train.bottom
        bottom = build_bottom(self._architecture, train, schema, sizes) if network.bottom else None
        module = _Through(bottom, network.dense)
        initialise(module, Randomness(bytes(32)))
        draws = Randomness(bytes(32)).derive("rows")
        rows = _make_rows(schema, HELD_ROWS, draws)
        optimiser = Updates(module, train.optimizer, train)
        module.train(learns)

        def step() -> None:
            read = rows.take(torch.from_numpy(draws.choices(HELD_ROWS, batch)))
            if not learns:
                with torch.no_grad():
                    module(read)
                return
            optimiser.zero_grad()
            module(read).square().mean().backward()
            optimiser.step()

        return step


class _Through(nn.Module):
    """A bottom, if there is one, and dense layers, if there are any."""

    def __init__(self, bottom: nn.Module | None, dense: tuple[int, ...]) -> None:
        super().__init__()
        self.bottom, self._reads = bottom, dense[:1]
        pairs = pairwise(dense)
        self.dense = nn.ModuleList([linear(width, units) for width, units in pairs])

    def forward(self, rows: ModelInput) -> Tensor:
        """float32[B, width of the last layer]."""
        made: Tensor = torch.ones(len(rows), 0) if self.bottom is None else self.bottom(rows)
        for width in self._reads:  # what comes from elsewhere
            made = torch.cat([made, torch.ones(len(rows), max(0, width - made.shape[1]))], dim=1)
        for place, layer in enumerate(self.dense):
            made = layer(made.relu() if place else made)
        return made


def _make_rows(schema: InputSchema, rows: int, draws: Randomness) -> ModelInput:
    """Rows of this schema."""

    def codes(cardinalities: list[int]) -> Tensor:
        columns = [draws.choices(levels, rows) for levels in cardinalities]
        return torch.from_numpy(np.stack(columns, axis=1) if columns else np.empty((rows, 0), np.int64))

    bags = codes([codes_of for codes_of, length in schema.lists for _ in range(length)]).int() if schema.lists else None
    image = torch.from_numpy(draws.normal((rows, *schema.image))) if schema.image else None
    numeric = torch.from_numpy(draws.normal((rows, schema.numeric)))
    return ModelInput(numeric, codes(list(schema.cardinalities)), image, bags=bags)
