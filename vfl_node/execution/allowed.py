"""Which jobs a party takes part in: those that name it in its role and that its settings allow."""

from __future__ import annotations

from vfl_node.alignment.linkage.policy import check_sigma
from vfl_node.data.named import barred_from, data_of, table_name
from vfl_node.errors import UsageError
from vfl_node.estimate.memory import check_limits
from vfl_node.halves.graph import check_installed
from vfl_node.job import Job
from vfl_node.settings.limits import allows
from vfl_node.settings.node import Settings, role_in
from vfl_node.settings.refusals import refusal


def check_allowed(settings: Settings, job: Job, *, by_peer: bool = False, loading: bool = True) -> None:
    """Raise UsageError or PolicyError if this node does not take part in ``job``, or its settings do not allow the job.

    Args:
        settings: this node's.
        job: the job.
        by_peer: whether a peer submits it.
        loading: whether to load what another package adds to its trainer, to see whether it is there (``E_EXTENSION``).
    """
    own, role = settings.name, settings.role
    if role_in(job.parties, own) != role:
        raise UsageError(
            f"job {job.name!r} does not name {own!r} as {role}",
            code="E_ROLE",
            hint="its parties are " + ", ".join(f"{role_in(job.parties, name)}: {name}" for name in job.parties.all),
            for_peer=f"the job does not name it as {role}",
        )
    limits = settings.limits_for(job)
    if not allows(limits.protocols, job.align.protocol):
        raise refusal(
            "kind", f"job {job.name!r} aligns by {job.align.protocol}, which this node's policy does not allow", "see protocols"
        )
    if job.train and not allows(limits.trainers, job.train.algorithm):
        raise refusal(
            "kind", f"job {job.name!r} trains by {job.train.algorithm}, which this node's policy does not allow", "see trainers"
        )
    if job.align.spec.by_similarity and role == "active" and not allows(limits.reveal, "candidates"):
        raise refusal(
            "kind",
            f"job {job.name!r} would tell {' and '.join(job.parties.passive)} which of its records are nearest to each of this "
            "node's, which this node's policy does not allow",
            "see reveal: [candidates]: such sets of candidates locate this node's records",
        )
    noise = job.align.noise
    if role == "passive" and noise and noise.sigma is not None:
        check_sigma(noise.sigma, limits)
    if job.evaluate.matched and role != "coordinator" and not allows(limits.reveal, "matched"):
        raise refusal(
            "kind",
            f"job {job.name!r} measures on the rows that both own, which this node's policy does not allow",
            "see reveal: [matched]; or leave out evaluate.matched",
        )
    method = job.train.learns_unaligned_by if job.train else "none"
    if method != "none" and not allows(limits.unaligned, method) and role != "coordinator":
        raise refusal(
            "kind",
            f"job {job.name!r} learns from rows outside of the alignment by {method}, which this node's policy does not allow",
            "see unaligned; or choose another train.unaligned",
        )
    kind = job.train.opens(job.evaluate).unbounded if job.train else ""
    if kind and not allows(limits.unbounded_models, kind) and role != "coordinator":
        raise refusal(
            "kind",
            f"job {job.name!r} opens a model of which nothing bounds what it tells ({kind}), which this node's policy "
            "does not allow",
            f"say an epsilon, and no train.layers or loss: taylor; or write unbounded_models: [{kind}] in the policy",
        )
    if job.export and not limits.allow_joint_export and role != "coordinator":
        raise refusal(
            "kind",
            f"job {job.name!r} gives the halves of all parties to {job.receiver}, which the policy of {own} does not allow",
            "see allow_joint_export: with all halves the model is asked without any count; or leave export out of the job",
        )
    _check_coordinator(settings, job, by_peer=by_peer)
    if job.train and role != "coordinator" and loading:
        job.train.check_here(settings.models)
        if job.receiver not in (None, own):
            check_installed("onnx", "onnxruntime")
    check_limits(job, role, limits, models=settings.models)
    _check_table(settings, job)
    _check_known(settings, job)


def _check_coordinator(settings: Settings, job: Job, *, by_peer: bool) -> None:
    """Raise PolicyError if a peer names a coordinator that this owner has not listed.

    Who deals randomness, or compares encodings, learns everything together with any one data party: a peer that might choose it
    could choose itself, under another name, or a friend.
    """
    name = job.parties.coordinator
    if not by_peer or name is None or settings.role == "coordinator" or allows(settings.limits_for(job).coordinators, name):
        return
    raise refusal(
        "partner",
        f"job {job.name!r} of a peer has {name} as coordinator, whom this node's owner has not listed",
        f"if {name} works together with no other party: coordinators: [{name}] in this node's policy",
    )


def _check_table(settings: Settings, job: Job) -> None:
    """Raise DataError (``E_TABLE``) if the policy bars the table of a job from one of its parties."""
    name = table_name(settings, job)
    if not job.predict and name in settings.tables and barred_from(settings, job, name):
        data_of(settings, job)


def _check_known(settings: Settings, job: Job) -> None:
    """Raise UsageError (``E_UNKNOWN_PEER``) unless the owner has listed every other party, in the way in which they meet."""
    own, met = settings.name, job.parties.peers_of(settings.name)
    for name in sorted(set(job.parties.all) - {own}):
        if name not in settings.peers:
            relayed = "" if name in met else f" as {name}: {{relayed: true}}, if its owner may take part with {name}"
            raise UsageError(
                f"job {job.name!r} names {name!r}, which is not among this node's peers",
                code="E_UNKNOWN_PEER",
                hint=f"add it under peers{relayed} (known: {', '.join(sorted(settings.peers)) or 'none'})",
                for_peer="the job names a party that it does not know",
            )
        if name in met and name not in settings.connected:
            raise UsageError(
                f"job {job.name!r} has {name!r} as {role_in(job.parties, name)}, and this node knows it as a relayed peer only",
                code="E_UNKNOWN_PEER",
                hint=f"give {name} an address under peers, or leave relayed out and it connects to this node",
                for_peer="the job names a party with which it has no connection",
            )
