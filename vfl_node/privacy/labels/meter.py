"""The active party's own attacks on its labels, with what each passive party gets, while it trains.

The passive party's attacks (:mod:`vfl_node.privacy.labels.attacks`), run by the party at which they aim: it has what the peer
receives, the embeddings that the peer sent, and the truth. Rows are judged whose labels are its own real ones, up to 4,096:
those with the smallest names, so that they are the same ones in all repeats and jobs. Some of them are taken as known to the
peer (:mod:`vfl_node.privacy.labels.truth`); they are not judged.

With several passive parties each is one attacker, and all together one more, who has all their rows side by side. The figure of
an attack is that of the worst attacker.

What repeats and jobs told before adds up (:mod:`vfl_node.privacy.labels.evidence`): ``added_up`` is the figure of their sum,
from the second training on.

What is found is a lower bound: a peer may know more labels, and join its own columns. Figures are folded; of s positives and r
negatives an AUC is above .5 by chance, by about .8·√((s + r + 1) / (12·s·r)) for one attack, and by more for the strongest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from vfl_node.errors import PolicyError
from vfl_node.models.storage import add_prefix, join_parts, split_parts, take_part
from vfl_node.privacy.attachment import Attachment, TrainingStep
from vfl_node.privacy.attacks.attack import Positions, Subset
from vfl_node.privacy.labels.attacks import Informed
from vfl_node.privacy.labels.evidence import Evidence, History
from vfl_node.privacy.labels.seen import SeenEpoch
from vfl_node.privacy.labels.shown import Course, KnownRows, Shown
from vfl_node.privacy.labels.truth import Truth
from vfl_node.privacy.peers import TOGETHER
from vfl_node.privacy.silent import attempt

ADDED_UP = "added_up"
"""The attack that has all repeats and jobs so far."""

T = TypeVar("T")

Told = tuple[str, str]
"""An attacker, and its attack."""

Leaks = Mapping[str, float | None]
"""Attack on labels → its figure, .5 at chance; None where it is not defined, or where the numbers are of no use to it."""


class LabelMeter(Attachment):
    """How well labels can be read from what each peer has.

    Args:
        truth: the labels that are judged.
        peers: names of the passive parties.
        party: the active party's name.
        limit: the largest figure that its owner allows; None: any.
        histories: attacker and summed attack → what each partner of it was told in earlier jobs.

    Cost: at most 4,096 rows whatever their number, a few hundredths of a second an epoch at a width of 32, and
        d² multiplications a row. Memory: these rows' gradients, embeddings and means.

    Leaks: under a limit, that labels could be read better than it allows, where that stops a training. Nothing else depends on
        labels but for the number of rows that are judged.
    """

    name, carries = "labels", "told"

    def __init__(
        self,
        truth: Truth,
        peers: Sequence[str],
        *,
        party: str,
        limit: float | None = None,
        histories: Mapping[Told, Sequence[History]] | None = None,
    ) -> None:
        self._truth, self._party, self._limit, self._histories = truth, party, limit, histories or {}
        self._followed = Subset(truth.followed, truth.rows)
        self._known = [KnownRows(torch.from_numpy(rows), truth.targets(rows)) for rows in truth.known if len(rows)]
        self._peers = list(peers)
        self._attackers = [*peers, TOGETHER] if len(peers) > 1 else [*peers]
        self._courses = {attacker: Course() for attacker in self._attackers}
        self._epoch = 0
        self._worst: dict[str, float | None] = {}
        self._scores: dict[Told, Tensor] = {}
        """What each summed attack says of each row."""
        self._repeats: dict[Told, Evidence] = {}
        """The same of the repeats before."""
        self._seen = SeenEpoch(self._peers)
        self._judging: Future[dict[str, float | None]] | None = None

    @property
    def enough(self) -> bool:
        """Whether there are enough rows to judge."""
        return self._truth.enough

    @property
    def trainings(self) -> int:
        """How many trainings the figures count: repeats, this one included, and earlier jobs with a partner."""
        of_job = max((int(evidence.counts.max(initial=0)) for evidence in self._job_evidence().values()), default=0)
        earlier = (history.trainings for histories in self._histories.values() for history in histories)
        return of_job + max(earlier, default=0)

    @torch.no_grad()
    def see(self, positions: Positions, embeddings: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Look at one step of training: of each peer the embedding that it sent and the gradient that it gets.

        Args:
            positions: int64[B], shared positions.
            embeddings: float32[B, d] of each peer.
            gradients: float32[B, d], as they were sent; of the batch's mean loss.
        """
        places = self._followed.places(positions)
        among = np.flatnonzero(places >= 0)
        rows = torch.from_numpy(among)
        # of a row's own loss: the last batch of an epoch is smaller, and its gradients are larger
        got = {peer: tensor[rows].cpu() * len(positions) for peer, tensor in zip(self._peers, gradients, strict=True)}
        sent = {peer: tensor.detach()[rows].cpu() for peer, tensor in zip(self._peers, embeddings, strict=True)}
        self._seen.add(torch.from_numpy(places[among].astype(np.int64)), got, sent)

    def epoch_begins(self, epoch: int, steps: int) -> None:
        """As :meth:`Attachment.epoch_begins`: before the first step nothing may be told where earlier jobs told too much.

        Raises:
            PolicyError: as :meth:`epoch_done`.
        """
        if self._epoch == 0 and self._limit is not None and self.enough:
            self._check(self._sum_trainings())

    @override
    def step_done(self, step: TrainingStep) -> None:
        self.see(step.positions, step.embeddings, step.gradients)

    def epoch_ends(self) -> Leaks:
        """As :meth:`Attachment.epoch_ends`: figures come while the next epoch trains, and at once under a limit."""
        self.epoch_done()
        return {} if self._limit is None else self.wait()

    def epoch_done(self) -> None:
        """Begin to attack what was seen in this epoch, on a thread of its own. Under an owner's limit it waits for the end.

        Raises:
            PolicyError: labels can be read better than the owner allows (``E_LEAK``; the peer gets ``E_STOPPED``).
        """
        if not self._seen:
            return
        self._judging = aside(partial(self._find, self._seen))
        self._seen = SeenEpoch(self._peers)
        if self._limit is not None and self.enough:
            self._check(self._judging.result())

    @override
    def wait(self) -> Mapping[str, Any]:
        found = self.judge()
        return {"labels": found} if found else {}

    def judge(self) -> Leaks:
        """What the attacks found after the epoch that was done last, once; waits for it. Empty where nothing is judged."""
        if self._judging is None:
            return {}
        judging, self._judging = self._judging, None
        found = judging.result()
        if not self.enough:
            return {}
        self._worst = {name: larger(self._worst.get(name), value) for name, value in found.items()}
        self._keep()
        return found

    @torch.no_grad()
    def _find(self, seen: SeenEpoch) -> dict[str, float | None]:
        """What the attacks find in what was ``seen`` of an epoch."""
        windows, self._epoch = seen.windows(), self._epoch + 1
        found: dict[str, float | None] = {}
        for attacker, (gradients, embeddings) in seen.sort(len(self._truth.followed)).items():
            shown = self._courses[attacker].epoch_done(gradients, windows, embeddings)
            for name, figure in self._attack(attacker, shown).items():
                found[name] = larger(found.get(name), figure)
        return found | self._sum_trainings()

    def result(self) -> Leaks:
        """The largest figure of each attack in the epochs so far; empty where nothing is judged."""
        return dict(self._worst)

    @override
    def findings(self, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
        worst, now = (before or {}).get("labels", {}), self.result()
        return {
            "labels": {name: larger(worst.get(name), now.get(name)) for name in {**worst, **now}},
            "trainings": self.trainings,
        }

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Attachment.tensors`; empty before the first epoch is done."""
        assert self._judging is None
        if not self._epoch:
            return {}
        worst = {
            name: torch.tensor(np.nan if value is None else value, dtype=torch.float64) for name, value in self._worst.items()
        }
        courses = join_parts({attacker: course.tensors() for attacker, course in self._courses.items()})
        scores = {f"{attacker}.{attack}": score for (attacker, attack), score in self._scores.items()}
        figures = {**add_prefix("worst", worst), **add_prefix("scores", scores)}
        return {"epoch": torch.tensor(self._epoch), **add_prefix("courses", courses), **figures}

    @override
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        if not take_part("courses", tensors):  # nothing, or what an earlier version kept
            return
        self._epoch = int(tensors["epoch"])
        for attacker, courses in split_parts(take_part("courses", tensors), self._attackers).items():
            self._courses[attacker].restore(courses)
        scores = take_part("scores", tensors)
        self._scores = {told: scores[".".join(told)].cpu() for told in self._summed if ".".join(told) in scores}
        self._worst = {name: None if value.isnan() else value.item() for name, value in take_part("worst", tensors).items()}

    def break_off(self) -> None:
        """As :meth:`Attachment.break_off`: rows that were not seen in the epoch count as telling nothing in it."""
        self.judge()
        if self._seen:
            self._find(self._seen)
        self.settle()

    @override
    def carry_over(self) -> dict[str, Tensor]:
        self.settle()
        return {
            f"{'.'.join(told)}.{name}": torch.from_numpy(array)
            for told, evidence in self._job_evidence().items()
            for name, array in (
                ("names", evidence.names.view(np.int64)),
                ("sums", evidence.sums),
                ("squares", evidence.squares),
                ("counts", evidence.counts),
            )
        }

    @override
    def follow_on(self, carried: Mapping[str, Tensor]) -> None:
        for told in self._summed:
            if part := take_part(".".join(told), carried):
                names, sums, squares, counts = (part[name].numpy() for name in ("names", "sums", "squares", "counts"))
                self._repeats[told] = Evidence(names.view(np.uint64), sums, squares, counts)

    @property
    def _summed(self) -> list[Told]:
        return [(attacker, attack) for attacker in self._attackers for attack in self._truth.attacks.summed]

    def _attack(self, attacker: str, shown: Shown) -> dict[str, float | None]:
        """Attack → its figure; of one that knows some labels the mean over choices of these."""
        attacks, found = self._truth.attacks, {}
        scores = {name: attempt(partial(attack, shown)) for name, attack in attacks.blind.items()}
        for name, score in scores.items():
            found[name] = None if score is None else attempt(partial(self._truth.figure, score))
        for name, informed in attacks.informed.items():
            values = [attempt(partial(self._score_informed, informed, shown, known)) for known in self._known]
            told = [value for value in values if value is not None]
            found[name] = sum(told) / len(told) if told else None
        for name in attacks.summed:
            if (score := scores[name]) is not None and bool(score.isfinite().all()):
                self._scores[attacker, name] = score
        return found

    def _score_informed(self, attack: Informed, shown: Shown, known: KnownRows) -> float | None:
        return self._truth.figure(attack(shown, known))

    def _job_evidence(self) -> dict[Told, Evidence]:
        """What this job has told so far."""
        told, followed = dict(self._repeats), self._truth.followed
        targets = self._truth.targets(np.arange(len(followed)))
        for by, score in self._scores.items():
            now = Evidence.from_scores(followed.astype(np.uint64), score, targets)
            told[by] = told[by].add(now) if by in told else now
        return told

    def _sum_trainings(self) -> dict[str, float | None]:
        """The figure of all trainings together, of the partner that has most; nothing in the first training."""
        positions, told = self._truth.followed, self._job_evidence()
        scores = [evidence.scores(positions.astype(np.uint64)) for by, evidence in told.items() if by in self._repeats]
        for by, histories in self._histories.items():
            now = told.get(by, Evidence.empty(self._truth.columns))
            scores += [history.score_with_job(now, positions) for history in histories if len(history.earlier.names)]
        if not scores:
            return {}
        value: float | None = None
        for each in scores:
            value = larger(value, attempt(partial(self._truth.figure, each)))
        return {ADDED_UP: value}

    def _keep(self) -> None:
        """Remember for later jobs what this one tells: after its first epochs, and then less and less often."""
        if self._epoch & (self._epoch - 1) == 0:
            self.settle()

    def settle(self) -> None:
        """Remember for later jobs what this one has told so far."""
        for by, told in self._job_evidence().items():
            for history in self._histories.get(by, ()):
                history.keep_at(told)

    def _check(self, found: Leaks) -> None:
        """Refuse to go on where an attack does better than the owner allows."""
        name = max(found, key=lambda name: found[name] or 0.0, default="")
        value = found.get(name)
        if self._limit is None or value is None or value <= self._limit:
            return
        when = f"epoch {self._epoch}" if self._epoch else "by earlier jobs"
        raise PolicyError(
            f"{self._party}'s own attacks read its labels from what a passive party has at an AUC of {value:.2f} "
            f"({name.replace('_', ' ')}, {when}); attacks.labels allows {self._limit:g}",
            code="E_LEAK",
            hint="add a defence of gradients to this node's settings (docs/explanations/privacy/labels.md says which), train "
            "fewer epochs, or allow more; of what all trainings told together nothing takes any back",
            for_peer=f"stopped by {self._party}'s policy",
            peer_code="E_STOPPED",
        )


def aside(work: Callable[[], T]) -> Future[T]:
    """Do ``work`` on a thread of its own, which ends with it."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="meter")
    doing = executor.submit(work)
    executor.shutdown(wait=False)
    return doing


def larger(first: float | None, second: float | None) -> float | None:
    """The larger one of two figures; None where neither is defined."""
    return max((value for value in (first, second) if value is not None), default=None)
