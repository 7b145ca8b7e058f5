"""From answers to a ranked list of ways: those that the answers allow, the best one first, and why each other one is ruled out.

The rule is that no way may tell a party more than the answers allow. What a way tells is what the manifest of its job declares,
so it is what an owner is shown before approving it (:mod:`vfl_node.trust.manifest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vfl_node.job import Job
from vfl_node.job.training import TrainerConfig
from vfl_node.ledger import UNDECLARED, Declaration
from vfl_node.plans.answers import ACTIVE, THIRD, Answers
from vfl_node.plans.combinations import Combination, job_of, list_combinations
from vfl_node.plans.meaning import MEANINGS, SECRETS, list_told
from vfl_node.trust.manifest import declare

ENOUGH_SHARED, ENOUGH_SHARED_HIDDEN = 1000, 2000
"""From how many shared records on a model with noise of ε = 1 is usually better than one of the active party alone, where all
know which records are shared, and where some do not (docs/explanations/training/hidden.md)."""

OBFUSCATED = 3
"""How many records an obfuscated set has for each record of the smaller table, so that it never has to be larger than asked."""

LARGEST_GUESS = 1.5
"""How many times what is guessed ``shared_fraction`` says: too little makes steps too large, too much only makes them small."""

REGRESSION_LOSS = (
    "a regression loses much where rows and targets are made up: R² of {psu} over psu and {psi} over psi, with half of the records "
    "shared (docs/experiments/regression-union.md)"
)


@dataclass(frozen=True)
class Proposal:
    """A way that the answers allow.

    Attributes:
        combination: of trainer and alignment.
        document: the job, as a job file has it.
        job: the same, checked.
        declared: what each party may learn by it at most.
        rank: by which ways are sorted, the least first: a number for each of :data:`CRITERIA`.
        warnings: what an owner should know before choosing it, in sentences without a capital.
    """

    combination: Combination
    document: dict[str, Any]
    job: Job
    declared: tuple[Declaration, ...]
    rank: tuple[int, ...]
    warnings: tuple[str, ...]

    def explain_place(self, better: Proposal) -> str:
        """Why it comes after a ``better`` one, in a sentence."""
        for (_, why), own, other in zip(CRITERIA, self.rank, better.rank, strict=True):
            if own != other:
                return why
        return LATER


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
    rank = tuple(measure(_Case(combination, answers, job, declared)) for measure, _ in CRITERIA)
    return Proposal(combination, document, job, declared, rank, tuple(_warn(combination, answers, job)))


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


@dataclass(frozen=True)
class _Case:
    """What a criterion looks at."""

    combination: Combination
    answers: Answers
    job: Job
    declared: tuple[Declaration, ...]


def _count_unforced(case: _Case) -> int:
    """How many parties learn something of others' columns: no answer is about that."""
    return len(list_told(case.declared, "columns"))


def _count_surplus(case: _Case) -> int:
    """0: trained rows are the shared ones; 1: they are within one party's records; 2: within those of all parties."""
    spec = case.combination.spec
    return 0 if spec.every_row_is_shared or spec.by_similarity else 1 if spec.is_within_one_set else 2


def _is_noisy(case: _Case) -> int:
    return int(_has_few(case.combination, case.answers, case.job))


def _count_learners(case: _Case) -> int:
    """How many learn which records are shared, where nothing is trained: all that such a job is for is a number."""
    return 0 if case.job.train else len(list_told(case.declared, "shared"))


CRITERIA: tuple[tuple[Callable[[_Case], int], str], ...] = (
    (lambda case: int(not case.combination.spec.allowed_by_default), "Owners must first name its protocol in their policies."),
    (_count_learners, "It also tells which records are shared, and not only how many."),
    (lambda case: int(case.combination.makes_up_rows), "It makes up rows for records that a party lacks, which costs accuracy."),
    (_is_noisy, "It adds noise, and so few shared records leave little of the model beside it."),
    (_count_unforced, "A party learns something of another one's columns."),
    (_count_surplus, "It trains over more rows than are shared, which costs more."),
    (lambda case: int(case.combination.coordinated), "It needs the third party, and another way does without."),
)
"""(Number of a way, and what a larger one means, in a sentence): ways are sorted by the first, then by the second, and so on."""

LATER = "By these answers it is as good; it stands later in the table of combinations."


def _has_few(combination: Combination, answers: Answers, job: Job) -> bool:
    """Whether so few records are shared that noise takes most of the gain."""
    noisy = job.train is not None and job.train.opens(job.evaluate, answers.shared).mu > 0
    return noisy and answers.shared < (ENOUGH_SHARED if combination.spec.every_row_is_shared else ENOUGH_SHARED_HIDDEN)


def _warn(combination: Combination, answers: Answers, job: Job) -> Iterator[str]:
    """What an owner should know of a way, in sentences."""
    spec = combination.spec
    if not spec.allowed_by_default:
        yield f"each owner must first allow {combination.alignment} (protocols in policy.yaml)"
    if combination.makes_up_rows and answers.aim == "regression":
        yield REGRESSION_LOSS
    elif combination.makes_up_rows:
        yield "rows are made up for records that a party lacks; the model is less good than over shared records alone"
    if _has_few(combination, answers, job):
        enough = ENOUGH_SHARED if spec.every_row_is_shared else ENOUGH_SHARED_HIDDEN
        yield (
            f"about {answers.shared:,} records are shared: below about {enough:,} the active party's own model is often as good, "
            "because of the noise that bounds what is told"
        )
    if "keys" in spec.options:
        yield "align.keys is an example: write there what both tables have that is alike (docs/guides/link-records.md)"
