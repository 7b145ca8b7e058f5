"""From answers to a ranked list of ways: those that the answers allow, the best one first, and why each other one is ruled out.

The rule is that no way may tell a party more than the answers allow. What a way tells is what the manifest of its job declares,
so it is what an owner is shown before approving it (:mod:`vfl_node.trust.manifest`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from vfl_node.job import Job
from vfl_node.job.training import TrainerConfig
from vfl_node.ledger import UNDECLARED, Declaration
from vfl_node.plans.answers import ACTIVE, THIRD, Answers
from vfl_node.plans.combinations import Combination, job_of, list_combinations
from vfl_node.plans.meaning import MEANINGS, SECRETS, list_told
from vfl_node.plans.ranking import Case, rank, warn
from vfl_node.trust.manifest import declare

OBFUSCATED = 3
"""How many records an obfuscated set has for each record of the smaller table, so that it never has to be larger than asked."""

LARGEST_GUESS = 1.5
"""How many times what is guessed ``shared_fraction`` says: too little makes steps too large, too much only makes them small."""


@dataclass(frozen=True)
class Proposal:
    """A way that the answers allow.

    Attributes:
        combination: of trainer and alignment.
        document: the job, as a job file has it.
        job: the same, checked.
        declared: what each party may learn by it at most.
        rank: by which ways are sorted, the least first (:mod:`vfl_node.plans.ranking`).
        warnings: what an owner should know before choosing it, in sentences without a capital.
    """

    combination: Combination
    document: dict[str, Any]
    job: Job
    declared: tuple[Declaration, ...]
    rank: tuple[int, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Ruled:
    """A way that the answers do not allow.

    Attributes:
        combination: of trainer and alignment.
        answer: the option that rules it out, with its value; empty where it says nothing of what it tells.
        why: in a sentence.
    """

    combination: Combination
    answer: str
    why: str


@dataclass(frozen=True)
class Ranked:
    """All ways, for one set of answers.

    Attributes:
        fitting: those that the answers allow, the best one first.
        ruled: the others.
    """

    fitting: tuple[Proposal, ...]
    ruled: tuple[Ruled, ...]


def recommend(answers: Answers) -> Ranked:
    """Sort all ways by what the answers allow. Nothing is read, measured or sent."""
    fitting, ruled = [], []
    for combination in list_combinations():
        found = _judge(combination, answers)
        if isinstance(found, Proposal):
            fitting.append(found)
        elif found is not None:
            ruled.append(found)
    return Ranked(tuple(sorted(fitting, key=lambda proposal: proposal.rank)), tuple(ruled))


def accepts(combination: Combination) -> bool:
    """Whether two parties may run it at all, whatever the answers are."""
    return any(isinstance(job_of(document), Job) for document in _documents(combination))


def _documents(combination: Combination) -> Iterator[dict[str, Any]]:
    """A job of two parties for each task that the trainer learns."""
    parties = {"active": ACTIVE, "passive": "passive-party", "coordinator": THIRD}
    for task in combination.config.traits.tasks if combination.config else ("",):
        yield combination.document(parties, {"task": task})


def _judge(combination: Combination, answers: Answers) -> Proposal | Ruled | None:
    """What the answers make of it; None where no job may have both parts."""
    if not accepts(combination):
        return None
    if plain := next(_rule_out(combination, answers), None):
        return Ruled(combination, *plain)
    document = _document(combination, answers)
    job = job_of(document)
    if isinstance(job, str):
        count = len(answers.passive)
        why = f"A node refuses it: {job}." if count == 1 else f"It does not run with {count} other parties (--passive)."
        return Ruled(combination, f"--task {answers.aim}" if count == 1 else "--passive", why)
    declared = tuple(declare(job, None))
    if told := next(_tell_too_much(declared, answers), None):
        return Ruled(combination, *told)
    case = Case(combination, answers, job, declared)
    return Proposal(combination, document, job, declared, rank(case), tuple(warn(case)))


def _rule_out(combination: Combination, answers: Answers) -> Iterator[tuple[str, str]]:
    """(Answer, sentence) of what needs no job to be seen."""
    config, spec, aim = combination.config, combination.spec, answers.aim
    said_aim = f"--task {aim}"
    if config is None and aim != "count":
        yield said_aim, f"It trains no model, and you said {said_aim}."
    elif config is not None and aim == "count":
        yield said_aim, f"It trains a model, and you said {said_aim}."
    elif config is not None and (aim == "regression") != (_task(answers, config) == "regression"):
        yield said_aim, f"It does not learn {'numbers' if aim == 'regression' else 'classes'}, and you said {said_aim}."
    elif config is not None and aim == "multiclass" and get_args(config.model_fields["classes"].annotation) == (2,):
        yield said_aim, f"It tells two classes apart, and you said {said_aim}."
    if spec.by_similarity and aim == "count":
        yield said_aim, f"It finds similar records and counts no shared ones, and you said {said_aim}."
    if spec.by_similarity and answers.same_id:
        yield "--same-id yes", "It is for tables without a common identifier, and you said --same-id yes."
    if not spec.by_similarity and not answers.same_id:
        yield "--same-id no", "It compares identifiers, and you said --same-id no."
    if combination.coordinated and not answers.third_party:
        yield "--third-party no", "It needs a third party that all trust, and you said --third-party no."
    most = min(spec.several.most, config.traits.max_passive_parties if config else spec.several.most)
    if (count := len(answers.passive)) > most:
        parties = "one other party" if most == 1 else f"{most} other parties"
        yield "--passive", f"It runs with {parties} at most, and you named {count} (--passive)."


def _tell_too_much(declared: tuple[Declaration, ...], answers: Answers) -> Iterator[tuple[str, str]]:
    """(Answer, sentence) of what it would tell, and may not."""
    unknown = next((each for each in declared if each.what not in MEANINGS), None)
    if unknown:
        what = "nobody knows what it tells" if unknown.what == UNDECLARED else f"nobody knows what {unknown.what!r} means here"
        yield "", f"The package that adds it does not say enough: {what}."
    said = f"--may-learn-shared {answers.may_learn_shared}"
    for name, keyword in list_told(declared, "shared").items():
        if name not in answers.learners:
            yield said, f"It can tell {name} {SECRETS['shared']} ({keyword}), and you said {said}."
    if answers.hide_labels:
        for name, keyword in list_told(declared, "labels").items():
            yield "--hide-labels yes", f"It can tell {name} {SECRETS['labels']} ({keyword}), and you said --hide-labels yes."


def _task(answers: Answers, config: type[TrainerConfig]) -> str:
    """The task by the answers, or the only one that the trainer has."""
    wanted = "regression" if answers.aim == "regression" else "classification"
    return wanted if wanted in config.traits.tasks else config.traits.tasks[0]


def _document(combination: Combination, answers: Answers) -> dict[str, Any]:
    """The job for these answers, as a document."""
    passive: Any = list(answers.passive_names) if len(answers.passive) > 1 else answers.passive_names[0]
    parties = {"active": ACTIVE, "passive": passive, "coordinator": THIRD}
    align: dict[str, Any] = {}
    rows = sum(answers.records.values())
    if "obfuscation" in combination.spec.options:
        theirs = min(answers.passive)
        part = min(1.0, _round_up(OBFUSCATED * min(answers.records.values()) / theirs))
        align, rows = {"obfuscation": {"fraction": part}}, round(part * theirs)
    train: dict[str, Any] = {}
    if config := combination.config:
        fields = config.model_fields
        task = _task(answers, config)
        if task != fields["task"].default:
            train["task"] = task
        if answers.aim == "multiclass":
            train["classes"] = answers.classes
        document = combination.document(parties, train, align)
        job = job_of(document)
        if "shared_fraction" in fields and isinstance(job, Job) and not job.align.tells_common:
            train["shared_fraction"] = min(1.0, _round_up(LARGEST_GUESS * max(answers.shared, 1) / rows))
    return combination.document(parties, train, align)


def _round_up(part: float) -> float:
    """The next hundredth."""
    return -(-round(part * 1e6) // 10_000) / 100
