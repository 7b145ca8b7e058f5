"""What is made of the state folders of the nodes of a trial (:mod:`vfl_node.node.federation`) once its job has ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vfl_node.execution.extras import Extras
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input, select_records
from vfl_node.execution.known_rows import TrialParty
from vfl_node.job import Job
from vfl_node.node.partners import Partner
from vfl_node.session.memory import join_memories
from vfl_node.settings.reading import load_settings


def make_extras(extras: Extras, job: Job, job_id: str, nodes: Path, out: Mapping[str, Path]) -> None:
    """Make the extras of a job.

    Args:
        extras: what is made.
        job: that has ended.
        job_id: its id at every party.
        nodes: folder with one of each party, in which its node had its settings and its state.
        out: party → folder of its report.

    Raises:
        VflError: as :meth:`vfl_node.execution.extras.Extras.make`.
    """
    folders = {name: JobFolder(nodes / name / "state" / "jobs" / job_id) for name in job.parties.all}
    extras.make(job, folders, lambda: _gather(job, nodes, folders), out)


def _gather(job: Job, nodes: Path, folders: Mapping[str, JobFolder]) -> dict[str, TrialParty]:
    """What each data party has of the job."""
    ended = {}
    for name in job.parties.data:
        settings = load_settings(nodes / name / "node.yaml")
        partners = settings.state_dir / "partners"  # its node changes nothing any more
        memory = join_memories([Partner(partners, peer) for peer in job.parties.others(name)])
        whole = read_input(settings, job)
        table = select_records(whole, job.align, memory, settings.limits_for(job), name)
        ended[name] = TrialParty(settings, folders[name], whole, table)
    return ended
