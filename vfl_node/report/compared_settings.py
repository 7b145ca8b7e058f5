"""The settings of several runs: the keys of their jobs, and this party's own defences, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vfl_node.job import Job


@dataclass(frozen=True)
class ComparedSetting:
    """One key of the job, and the value of each run in words; None: the run has no such key."""

    key: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        """Whether two runs have other values."""
        return len(set(self.values)) > 1


def compare_settings(jobs: Sequence[Job], reports: Sequence[Mapping[str, Any]]) -> Iterator[ComparedSetting]:
    """Every key that one of the jobs has, and this party's own defences."""
    each = [dict(_leaves("", job.model_dump(mode="json", exclude={"name"}))) for job in jobs]
    for own, report in zip(each, reports, strict=True):
        own |= dict(_defences(report["training"]))
    for key in dict.fromkeys(key for own in each for key in own):
        yield ComparedSetting(key, tuple(own.get(key) for own in each))


def _defences(training: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """This party's own, of a training that knows some."""
    section = training[training["algorithm"]] if training else {}
    if "defences" in section:
        texts = [" ".join(_write(value) for value in defence.values()) for defence in section["defences"]]
        yield "defences", ", ".join(texts) or "none"


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Each key below ``value``, joined by dots, and what it says in words."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else key, inner)
    else:
        yield prefix, _write(value)


def _write(value: Any) -> str:
    """A value of a job in words."""
    match value:
        case None | [] | {}:
            return "none"
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case list() if not any(isinstance(item, dict | list) for item in value):
            return ", ".join(map(_write, value))
    return json.dumps(value).replace('"', "")
