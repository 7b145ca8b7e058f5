"""The one table of what goes with what: each way to train over each way to align, as the registries have them.

A way to train is a trainer with the keys of one of its ``ways``, or no training; a way to align is a protocol with those of one
of its ``ways``. An installed package's are in the table, too. ``vfl-node plan`` chooses among its rows, and
docs/reference/combinations.md shows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from vfl_node.configuration.models import validate
from vfl_node.errors import UsageError
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS, AlignmentSpec
from vfl_node.job.training import ALWAYS, TRAINERS, TrainerConfig

Keys = tuple[tuple[str, Any], ...]
"""Keys of a section with their values, in their order."""

EXAMPLE_KEYS: Mapping[str, Any] = {"name": {"kind": "text"}}
"""What records are compared by where they have no identifier in common, until an owner says it."""

EXAMPLE_NOISE: Mapping[str, Any] = {"sigma": 0.4}


@dataclass(frozen=True)
class Combination:
    """One row of the table.

    Attributes:
        trainer: in ``train.algorithm``; None: a job that only aligns.
        alignment: in ``align.protocol``.
        train: what the ``train`` section says besides.
        align: what the ``align`` section says besides.
    """

    trainer: str | None
    alignment: str
    train: Keys = ()
    align: Keys = ()

    @property
    def config(self) -> type[TrainerConfig] | None:
        """What the trainer declares; None: there is none."""
        return None if self.trainer is None else TRAINERS[self.trainer]

    @property
    def spec(self) -> AlignmentSpec:
        """What the protocol is."""
        return ALIGNMENTS[self.alignment]

    @property
    def trained(self) -> str:
        """The way to train, as a page shows it."""
        return _named(self.trainer or "none", self.train)

    @property
    def aligned(self) -> str:
        """The way to align, as a page shows it."""
        return _named(self.alignment, self.align)

    @property
    def name(self) -> str:
        """Both, in words."""
        return f"{self.trained} over {self.aligned}" if self.trainer else f"{self.aligned} without training"

    @property
    def coordinated(self) -> bool:
        """Whether a third party takes part."""
        return self.spec.coordinated or (self.config is not None and _is_coordinated(self.config, dict(self.train)))

    @property
    def makes_up_rows(self) -> bool:
        """Whether training makes up rows for records that a party lacks."""
        return self.config is not None and self.config.traits.synthetic_rows and bool(self.spec.synthetic_rows_at)

    def document(
        self, parties: Mapping[str, Any], train: Mapping[str, Any] | None = None, align: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """A job of this kind, as a document.

        Args:
            parties: ``active``, ``passive`` and ``coordinator``, which is left out where none takes part.
            train: further keys of the section.
            align: further keys of the section.
        """
        needed: dict[str, Any] = {"obfuscation": "private"} if "obfuscation" in self.spec.options else {}
        if "keys" in self.spec.options:
            needed = {"keys": dict(EXAMPLE_KEYS), "noise": dict(EXAMPLE_NOISE)}
        named = {role: name for role, name in parties.items() if role != "coordinator" or self.coordinated}
        document: dict[str, Any] = {
            "name": "plan",
            "parties": named,
            "align": {"protocol": self.alignment, **needed, **dict(self.align), **(align or {})},
        }
        return document | ({"train": {"algorithm": self.trainer, **dict(self.train), **(train or {})}} if self.trainer else {})


def list_combinations(*, own: bool = False) -> Iterator[Combination]:
    """Every trainer with every alignment that can be loaded, whether or not a job may have both; ``own``: of this package."""
    alignments = dict(ALIGNMENTS.usable(ALIGNMENTS.own if own else None))
    trainers = TRAINERS.usable(TRAINERS.own if own else None)
    for trainer, ways in ((None, ({},)), *((name, config.ways) for name, config in trainers)):
        for train in ways:
            for alignment, spec in alignments.items():
                for align in spec.ways:
                    yield Combination(trainer, alignment, tuple(train.items()), tuple(align.items()))


def job_of(document: Mapping[str, Any]) -> Job | str:
    """The job that a document is; why it is none, as a node says it."""
    return _job_of(json.dumps(document))


@lru_cache(maxsize=4096)
def _job_of(text: str) -> Job | str:
    try:
        return validate(json.loads(text), Job, source="job")
    except UsageError as error:
        return error.message.removeprefix("job: ")


def _is_coordinated(config: type[TrainerConfig], train: Mapping[str, Any]) -> bool:
    """Whether a coordinator takes part in a training with these keys."""
    way = config.traits.coordinated_by
    if way == ALWAYS:
        return True
    # its config knows, whatever keys are left out: only those of the way decide
    return bool(way) and config.model_construct(**train).coordinated


def _named(name: str, keys: Keys) -> str:
    said = ", ".join(f"{key}: {value}" for key, value in keys)
    return f"{name} ({said})" if said else name
