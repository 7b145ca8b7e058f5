"""What the owner of all tables asks of a trial beside reports and models. Light: what makes a thing is loaded to make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vfl_node.errors import UsageError
from vfl_node.execution.trial import Trial
from vfl_node.job import Job

if TYPE_CHECKING:
    from vfl_node.execution.folder import JobFolder
    from vfl_node.execution.known_rows import TrialParty


@dataclass(frozen=True)
class Extras:
    """Nothing by default.

    Attributes:
        seed: from which the randomness of every party follows, 0 to 2^63 - 1 (:mod:`vfl_node.execution.trial`); reports say so.
        predictions: file for what the trained model says of the shared rows (:mod:`vfl_node.execution.known_rows`).
        transcript: folder for what each party receives in training (:mod:`vfl_node.execution.transcripts`).
        joint: whether the joint attack runs at the end, where it has something to find (:mod:`vfl_node.execution.joint`).
    """

    seed: int | None = None
    predictions: Path | None = None
    transcript: Path | None = None
    joint: bool = False

    def check(self, job: Job) -> None:
        """Refuse, before anything is read, a job that cannot be tried, or of which this cannot be had. Raises UsageError."""
        if job.predict:
            raise UsageError(
                "a job that predicts needs the nodes that keep its model", hint="vfl-node predict JOB, at a running node"
            )
        if self.predictions:
            from vfl_node.execution.known_rows import check_predictable

            check_predictable(job)
        if self.transcript:
            from vfl_node.execution.transcripts import check_transcribable

            check_transcribable(job)
        if self.seed is not None and not 0 <= self.seed < 1 << 63:
            raise UsageError(f"seed {self.seed} is not a whole number from 0 to 2^63 - 1")

    def prepare(self, job: Job) -> Extras:
        """These, checked, with a folder for transcripts; without the joint attack where it has nothing to find.

        Raises:
            UsageError: as :meth:`check`, or transcripts cannot be written (``E_FILE``).
        """
        self.check(job)
        if self.transcript:
            from vfl_node.execution.transcripts import prepare_transcripts

            prepare_transcripts(job, self.transcript)
        if not self.joint or not job.train:
            return replace(self, joint=False)
        from vfl_node.execution.joint import runs_joint

        return replace(self, joint=runs_joint(job))

    @property
    def wanted(self) -> bool:
        """Whether anything is made once all parties have ended."""
        return bool(self.transcript or self.predictions or self.joint)

    def make_trial(self, party: str) -> Trial:
        """What ``party`` must do for them."""
        keeps, records = self.predictions is not None, self.transcript is not None
        return Trial.from_number(self.seed, party, keeps=keeps, transcript=records, joint=self.joint)

    def make(
        self,
        job: Job,
        folders: Mapping[str, JobFolder],
        parties: Callable[[], Mapping[str, TrialParty]],
        out: Mapping[str, Path],
    ) -> None:
        """Make them, once all parties have ended.

        Args:
            job: the job.
            folders: party → its folder of the job.
            parties: gives what each data party has; called where it is needed, since it may read tables again.
            out: party → folder of its report.

        Raises:
            VflError: one cannot be made or written; the reports are there.
        """
        if self.transcript:
            from vfl_node.execution.transcripts import write_transcripts

            write_transcripts(job, folders, self.transcript)
        attacked = False
        if self.joint:
            from vfl_node.execution.joint import has_enough_rows, report_joint

            attacked = has_enough_rows(folders[name] for name in job.parties.passive)
        if not attacked and not self.predictions:
            return
        ended = parties()
        if attacked:
            report_joint(job, ended, out)
        if self.predictions:
            from vfl_node.execution.known_rows import write_predictions

            write_predictions(job, ended, self.predictions)


NO_EXTRAS = Extras()
