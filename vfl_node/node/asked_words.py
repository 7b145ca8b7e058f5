"""What an owner is shown of a job: who takes part, what is done and revealed, what it costs, what differs from the last one.

All of it is made here, of the job itself: no text of a peer is shown but the job's name and purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vfl_node.alignment.words import words_of
from vfl_node.data.named import table_name
from vfl_node.errors import StateError, VflError
from vfl_node.gdp import Exposure, compose, epsilon_of
from vfl_node.job import Job
from vfl_node.job.names import AUTO
from vfl_node.ledger import Declaration
from vfl_node.node.predictions import trained_with
from vfl_node.node.record import Record
from vfl_node.node.spending import counts_with
from vfl_node.node.store import Store
from vfl_node.report.compared_settings import compare_settings
from vfl_node.settings.bounds import Use
from vfl_node.settings.node import Settings
from vfl_node.trust.consents import Consent
from vfl_node.trust.manifest import DIGITS, Manifest, declare, keywords
from vfl_node.trust.told import read_told

Decision = tuple[Consent, str]
"""This party's answer, and what its owner has noted of it."""


def describe(settings: Settings, store: Store, record: Record, manifest: Manifest, decision: Decision | None) -> dict[str, Any]:
    """A job in plain words, for its owner.

    Args:
        settings: of this node.
        store: its jobs.
        record: the job.
        manifest: its manifest.
        decision: this party's answer, if there is one.

    Returns:
        id, name, purpose, submitter, state, digest, digits (that name it), created, expires, signed (whether answers are);
        parties: {name, role}; steps: sentences on what is done; reveals: {to, what, bound, new};
        budgets: {partner, limit, after (at most), used, allowed, …}; previous: id of the last job of this name and these
        parties, or None; same: whether that one was the same job; differences: {key, before, now};
        decision: {verdict, by, at, note}, or None; manifest: the document itself; told: {name, by} of parties whose
        card was told and not compared.

    Raises:
        VflError: the job cannot be read any more, or what is stored is damaged.
    """
    job, last = record.job, _find_last(store, record)
    reveals = list(_declare(settings, store, job))
    known = keywords(_declare(settings, store, last.job)) if last else keywords(reveals)
    compared = compare_settings([last.job, job], [{"training": None}] * 2) if last else ()
    return {
        "id": record.id,
        "name": record.name,
        "purpose": job.purpose,
        "submitter": record.submitter,
        "state": record.state,
        "digest": manifest.digest,
        "digits": manifest.digest[:DIGITS],
        "created": manifest.created.isoformat(),
        "expires": manifest.expires.isoformat(),
        "parties": [{"name": party.name, "role": party.role} for party in manifest.parties],
        "steps": [*_list_steps(job), *(_tell_repeated(last) if last and last.spec == manifest.job else ())],
        "reveals": [
            {"to": each.to, "what": each.what, "bound": each.bound, "new": (each.to, each.what) not in known}
            for each in reveals
        ],
        "budgets": list(list_budgets(settings, job)),
        "previous": last.id if last else None,
        "same": last is not None and last.spec == manifest.job,
        "differences": [
            {"key": setting.key, "before": setting.values[0], "now": setting.values[1]}
            for setting in compared
            if setting.differs
        ],
        "signed": settings.name in manifest.signers,
        "told": list(_list_told(settings, manifest)),
        "decision": _to_document(decision),
        "manifest": manifest.model_dump(mode="json"),
    }


def _declare(settings: Settings, store: Store, job: Job) -> Iterator[Declaration]:
    return declare(job, trained_with(store, job, settings.name))


def _find_last(store: Store, record: Record) -> Record | None:
    """The newest earlier job of the same name and parties that was not only asked about, and that can be read."""
    for other in store.records():
        like = other.name == record.name and other.parties == record.parties and not other.damaged
        if other.id != record.id and like and other.submitted <= record.submitted and other.attempt:
            try:
                other.job  # noqa: B018 - of a version that cannot be read any more
            except VflError:
                continue
            return other
    return None


def _list_told(settings: Settings, manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Parties whose card somebody has told this node, and nobody has compared."""
    for party in manifest.parties:
        at = settings.peers.get(party.name)
        if at and at.relayed and (known := read_told(settings, party.name)) and not known[0].compared:
            yield {"name": party.name, "by": known[0].by}


def _list_steps(job: Job) -> Iterator[str]:
    """What is done, a sentence each."""
    parties, align, evaluate = job.parties, job.align, job.evaluate
    data = " and ".join(parties.data)
    if job.is_service:
        assert job.predict
        yield f"{job.asker} asks for predictions of records that job {job.predict.model} was trained on."
        return
    matched, order = words_of(align.spec).title, f"the shared order is {align.spec.shared_rows}"
    if align.reuse == AUTO:
        yield f"An alignment of the same records on these terms that {data} have kept is used again, with its held-out rows."
        yield f"If there is none, the records of {data} are matched by {matched}: {order}."
    elif align.reuse:
        yield f"Nothing is aligned anew: the records are those of {data} that job {align.reuse} matched by {matched}; {order}."
    else:
        yield f"The records of {data} are matched by {matched}: {order}."
    if job.predict:
        yield f"The shared records are predicted by the model of job {job.predict.model}, for {job.asker}."
        return
    if job.train is None:
        yield "Nothing is trained."
        return
    trainings = [trial.train for trial in job.trials]
    rounds = [getattr(train, "epochs", None) or getattr(train, "iterations", None) or 0 for train in trainings]
    times = f", at most {_count(max(rounds), job.train.traits.unit)}" if max(rounds) else ""
    yield f"A model ({job.train.algorithm}) learns to predict the label of {_label_holder(job)}{times}."
    if job.sweep:
        total = f", with {_count(job.add_trials(rounds), job.train.traits.unit)} at most" if max(rounds) else ""
        chosen = "one model, and after each part which of them go on" if job.sweep.by == "halving" else "one model"
        yield f"That is done in {len(trainings)} trainings with different settings{total}. Validation rows choose {chosen}."
    if start := getattr(job.train, "start_from", None):
        yield f"Training goes on from the model of job {start}."
    told = "All parties get the metrics" if evaluate.share_with_passive else f"{parties.active} gets the metrics"
    again = f", with {evaluate.repeats:,} splits" if evaluate.repeats > 1 else ""
    yield f"It is measured on {100 * evaluate.test_fraction:g} % of the rows{again}. {told}."
    askers = " and ".join(parties.members(job.serve.to)) if job.serve else "Nobody"
    yield f"Each party keeps its part of the model. {askers} may ask for predictions by it."
    if job.serve and job.serve.align:
        yield f"New records that they bring are then aligned by {job.serve.align}."
    if receiver := job.receiver:
        for name in parties.others(receiver):
            yield f"{name} gives its half of the model to {receiver}, as a file that holds cells of its table."
        yield f"With the halves of all {receiver} predicts any record any number of times, and no budget counts it."
    if parties.coordinator:
        yield f"{parties.coordinator} takes part as the coordinator, without data."


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'s' if number != 1 else ''}"


def _tell_repeated(last: Record) -> Iterator[str]:
    """What comes of it that the same job runs again and again, as by a schedule of its submitter."""
    if not last.predict:
        yield (
            f"The same was submitted on {last.submitted[:10]}. Of a table that has grown since, the others can tell what is "
            "new, and so when it came."
        )


def _label_holder(job: Job) -> str:
    return job.parties.active if job.label_holder == "active" else " or ".join(job.parties.passive)


def list_budgets(settings: Settings, job: Job) -> Iterator[dict[str, Any]]:
    """partner, limit; after (at most); used, allowed, …: what is used of limits over many jobs, and what after this one."""
    if settings.name not in job.parties.data:
        return
    opens = job.train.opens(job.evaluate) if job.train else Exposure()
    trials = len(job.sweep.settings()) if job.sweep else 1
    more: dict[str, float] = {
        "alignments": not job.is_service,
        "trainings": trials if job.train else 0,
        "trainings_in_clear": trials if job.train and job.train.traits.opens_rows else 0,
        "linkages": job.align.spec.by_similarity,
    }
    for name in job.parties.others(settings.name):
        try:
            counts, allowed = counts_with(settings, name), settings.rules.limits_of(name).budgets
            uses = counts.list_uses(allowed)
            spent = counts.spent_over(table_name(settings, job)).mu
        except StateError:
            continue
        after = {limit: uses[limit].used + more[limit] for limit in more if more[limit]}
        if opens.mu:
            uses["epsilon"] = Use(round(epsilon_of(spent), 2), counts.extended("epsilon", allowed.epsilon))
            after["epsilon"] = round(epsilon_of(compose([spent, opens.mu])), 2)
        for limit, count in after.items():
            yield {"partner": name, "limit": limit, "after": count, **uses[limit].describe()}


def _to_document(decision: Decision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    consent, note = decision
    return {"verdict": consent.verdict, "by": consent.by, "at": consent.at.isoformat(), "note": note}
