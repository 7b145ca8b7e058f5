"""A passive party's own attacks on its columns, with what it sends and the truth, while it trains.

The peer's attacks (:mod:`vfl_node.privacy.features.attacks`), run by the party at which they aim: it has what the peer receives
and the truth. A share of its rows is taken as known to the peer; fresh decoders learn from these and are judged on others.

* after each epoch fresh decoders are made, ``static`` and ``stacked``, and the ``adaptive`` one learns from its batches in
  their order;
* where projections leave before the training with labels, fresh decoders learn from those of an epoch and of several together
  (``projections``); later they lie beside the embeddings in ``stacked``;
* held-out rows meet ``held_out`` decoders before they leave: those known among them and, if these are fewer than 50, the known
  rows of the newest epoch are learnt from.

Synthetic rows are left out: there is no truth. So are rows that equal a known one in all that the bottom reads. The attack and
the epoch that count are chosen on half of the judged rows, and the figures are those of the other half
(:mod:`vfl_node.privacy.features.worst`).

What is found is a lower bound: a peer that joins its own columns to the embeddings, or knows more rows, rebuilds more. And it
does not say what embeddings *add*: how much the peer rebuilds from its own columns alone, this party cannot know. Each repeat
is judged by itself, and rows that are validated on by the newest pass alone; a peer may put several of either side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.attachment import Attachment
from vfl_node.privacy.attacks.attack import Positions, Subset
from vfl_node.privacy.features.attacks import Adaptive, rebuild, spread
from vfl_node.privacy.features.followed import Followed
from vfl_node.privacy.features.measures import FIGURES, Score, measure
from vfl_node.privacy.features.rows import LEAST_KNOWN, AuditedRows, Inputs, check_enough, choose
from vfl_node.privacy.features.targets import Targets
from vfl_node.privacy.features.worst import Found, Worst
from vfl_node.privacy.outgoing import Observer, Sent
from vfl_node.process import failpoints
from vfl_node.progress import CONSTANT, Rebuilt

TRAINING = ("static", "adaptive", "stacked")
"""The attacks while it trains."""

HELD_OUT = "held_out"
"""The attack on rows held out, or validated on."""

PROJECTIONS = "projections"
"""The attack on projections, in the epochs before the training with labels."""

REPLAYED = 64
"""Known rows of other batches from which an adaptive decoder learns in each step, too."""


class DecoderAudit(Attachment):
    """How well fresh decoders rebuild columns from what has been sent, if a share of the rows is known.

    Args:
        targets: the columns.
        trained: int64[t], the shared positions trained on in this repeat, each once an epoch.
        real: bool[m], which shared rows are real at this party.
        inputs: what the bottom reads at shared positions.
        share: which share of this party's rows the peer is assumed to know.
        randomness: of this audit in this repeat.
        party: its name.
        limit: by how much a column may be rebuilt better than by a constant; None: by any.

    Raises:
        UsageError: too few rows are known or left to judge (``E_CONFIG``).

    Cost: at most 2,048 known and 2,048 judged rows, whatever the number of rows. At the end of an epoch two trainings of fresh
        decoders, one of them of two views (of three after projections), and a step of the adaptive decoder for each batch with
        known rows. Of 8,000 rows in batches of 128 a training with it took about three times as long as one without, with one
        column and with 15. At the end of an epoch of projections one training of fresh decoders, of up to three views. Memory:
        embeddings of these rows of the last epochs, at most 16 and about 256 numbers a row, and their mean, all of it also in
        a checkpoint; as much of projections; and two numbers for each number of an embedding and each batch of an epoch.

    Leaks: by how long the party takes. Between two steps there is no more work where a batch has known rows, which are real
        ones: all decoders learn at the end of an epoch. How long that takes depends on how many rows are followed, on how many
        batches have a known one, and on how soon the decoders find no more.
    """

    name = "features"

    def __init__(
        self,
        targets: Targets,
        trained: Positions,
        real: np.ndarray[Any, np.dtype[np.bool_]],
        inputs: Inputs,
        share: float,
        randomness: Randomness,
        *,
        party: str,
        limit: float | None = None,
    ) -> None:
        self._targets, self._real, self._inputs, self._share = targets, real, inputs, share
        self._randomness, self._party, self._limit = randomness, party, limit
        self._rows = choose(trained[real[trained]], share, inputs, randomness.derive("rows"))
        check_enough(len(self._rows.known), len(self._rows.judged), share=share)
        self._known_at = self._index_tensor(self._rows.known)
        self._worst = Worst(targets, (*TRAINING, HELD_OUT, PROJECTIONS))
        followed = Subset(np.concatenate([self._rows.known, self._rows.judged]), len(real))
        self._embeddings, self._projections = Followed(followed), Followed(followed)
        self._adaptive: Adaptive | None = None
        self._batches: list[tuple[tuple[Tensor, Tensor] | None, Tensor, Tensor]] = []
        """What the adaptive decoder is to learn from each batch of this epoch: its spread, its known rows, and their places."""
        self._epoch = 0
        """Epochs that are over, those before the training with labels included."""

    @property
    def projections(self) -> Observer:
        """What sees projections where they leave; :meth:`see` sees embeddings."""
        return self._projections

    @torch.no_grad()
    def see(self, sent: Sent) -> None:
        """Look at one step of training."""
        followed, places = self._embeddings.take(sent)
        known = places < len(self._rows.known)
        self._batches.append((spread(sent.rows), sent.rows[followed][known], self._known_at[places[known]]))

    def epoch_done(self) -> Rebuilt:
        """Column → attack → its success after this epoch, and beside them the constant's.

        The figures are those of the half of the judged rows that chooses nothing.

        Raises:
            PolicyError: a column is rebuilt better than the owner allows (``E_LEAK``; the peer is told ``E_STOPPED``).
        """
        if self._projections.epoch_done():
            self._judge_projections()
        if not self._embeddings.epoch_done():
            return {}
        now = self._embeddings.epochs[-1]
        adaptive, batches, self._batches = self._adaptive_of(now.shape[1]), self._batches, []
        for batch in batches:
            adaptive.learn(*batch)
        self._epoch += 1
        known = len(self._rows.known)
        drawn = self._randomness.derive(f"epoch/{self._epoch}")
        static = together = self._rebuild((now,), drawn.derive("static"))
        seen = self._embeddings.view_epochs()
        if self._projections.count:
            seen = (*seen, torch.cat([self._embeddings.stack_last(), self._projections.stack_last()], dim=1))
        if len(seen) > 1:
            together = self._rebuild(seen, drawn.derive("stacked"))
        outputs = {
            "static": static,
            "adaptive": adaptive.rebuild(now[known:]),
            "stacked": together,
        }
        shown = {attack: self._take(attack, said, self._rows) for attack, said in outputs.items()}
        self._check()
        return {
            name: {CONSTANT: score.constant, **{attack: shown[attack][name].success for attack in TRAINING}}
            for name, score in shown["static"].items()
        }

    @override
    def epoch_ends(self) -> Mapping[str, Any]:
        return {"rebuilt": self.epoch_done()}

    def epoch_without_labels_ends(self) -> None:
        """As :meth:`Attachment.epoch_without_labels_ends`: what left is judged as in any other epoch."""
        self.epoch_done()

    def findings(self, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """As :meth:`Attachment.findings`: of the first repeat."""
        return {} if before is not None else {"rebuilt": self.result()}

    def judge(self, positions: Positions, rows: Tensor) -> None:
        """Attack the held-out rows at ``positions``, int64[n], float32[n, d], which have not been sent yet.

        With fewer than 100 rows left to judge nothing is said of them.

        Raises:
            PolicyError: as :meth:`epoch_done`.
        """
        place = Subset(positions, len(self._real))
        like = self._inputs(self._rows.known).digests()
        own = self._randomness.derive("held out")
        chosen = choose(positions[self._real[positions]], self._share, self._inputs, own.derive("rows"), like=like)
        if not chosen.enough or not self._embeddings.count:
            return
        followed, at = self._embeddings.epochs[-1], self._index_tensor(chosen.known)
        known, judged = (
            rows[torch.from_numpy(place.places(rows_of).astype(np.int64))] for rows_of in (chosen.known, chosen.judged)
        )
        if len(chosen.known) < LEAST_KNOWN:
            known, at = torch.cat([known, followed[: len(self._rows.known)]]), torch.cat([at, self._known_at])
        said = rebuild(known, at, judged, self._targets, own.derive(f"epoch/{self._epoch}"))
        self._take(HELD_OUT, said, chosen)
        self._check()

    def result(self) -> dict[str, dict[str, Any]]:
        """Column → what the report says of it, over the whole repeat; a figure is None where it was never defined."""
        figures = {}
        for column in self._targets.columns:
            attack, found = self._worst.overall(column.name) or (None, None)
            names = FIGURES[column.kind]
            figures[column.name] = {
                "kind": column.kind,
                "metric": names[0],
                "constant": found.score.constant if found else None,
                **{name: _success(self._worst.find(name, column.name)) for name in (*TRAINING, HELD_OUT, PROJECTIONS)},
                "worst": _success(found),
                "attack": attack,
                "epoch": found.epoch if found else None,
                "known": int(column.known[self._known_at].sum()),
                "judged": found.score.rows if found else 0,
                "figures": dict(found.score.figures) if found else dict.fromkeys(names),
                "constants": dict(found.score.constants) if found else dict.fromkeys(names),
            }
        return figures

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Attachment.tensors`; empty before the first epoch is done."""
        if not self._epoch:
            return {}
        kept = {"epoch": torch.tensor(self._epoch), **self._embeddings.tensors()}
        adaptive = self._adaptive.tensors() if self._adaptive else {}
        projected = add_prefix(PROJECTIONS, self._projections.tensors())
        return {**kept, **projected, **add_prefix("worst", self._worst.tensors()), **add_prefix("adaptive", adaptive)}

    @override
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        if not tensors:
            return
        self._epoch = int(tensors["epoch"])
        device = self._known_at.device
        self._embeddings.restore({"count": tensors["epoch"], **tensors}, device)  # an earlier version saw no projections
        self._projections.restore(take_part(PROJECTIONS, tensors), device)
        self._worst.restore(take_part("worst", tensors))
        if adaptive := take_part("adaptive", tensors):
            self._adaptive_of(self._embeddings.epochs[-1].shape[1]).restore(adaptive)

    def _judge_projections(self) -> None:
        """Attack the projections of the epoch that is over, and those of all such epochs."""
        self._epoch += 1
        newest, together = self._projections.epochs[-1], self._projections.view_epochs()
        seen = (newest, *together) if len(together) > 1 else together
        said = self._rebuild(seen, self._randomness.derive(f"epoch/{self._epoch}/{PROJECTIONS}"))
        self._take(PROJECTIONS, said, self._rows)
        self._check()

    def _rebuild(self, rows: Sequence[Tensor], randomness: Randomness) -> Tensor:
        """Guess the columns of the judged ones of the followed rows; ``rows`` are views of all of these."""
        known = len(self._rows.known)
        parts = [rows_of[:known] for rows_of in rows], [rows_of[known:] for rows_of in rows]
        return rebuild(parts[0], self._known_at, parts[1], self._targets, randomness)

    def _take(self, attack: str, outputs: Tensor, rows: AuditedRows) -> dict[str, Score]:
        """Note what ``attack`` says of the judged ones of ``rows``; column → its score on the half that counts."""
        choosing, measured = (
            measure(self._targets, outputs[half], self._index_tensor(rows.judged[half])) for half in rows.halves
        )
        self._worst.take(attack, self._epoch, choosing, measured)
        return measured

    def _check(self) -> None:
        """Refuse to go on where a column is rebuilt better than the owner allows."""
        failpoints.reach("rebuilt")
        if self._limit is None:
            return
        found = {column.name: self._worst.overall(column.name) for column in self._targets.columns}
        gains = {name: record[1].score.gain or 0.0 for name, record in found.items() if record}
        name = max(gains, key=gains.__getitem__, default="")
        worst = found.get(name)
        if not worst or gains[name] <= self._limit:
            return
        attack, top = worst
        raise PolicyError(
            f"{self._party}'s own attacks rebuild one of its columns from what it sends better than by a constant, and by more "
            f"than attacks.columns allows ({self._limit:g})",
            code="E_LEAK",
            hint=f"the column is {name!r}, with {WORDS[top.score.metric]} of {top.score.success:.2f} "  # a hint is in no log
            f"({attack.replace('_', ' ')}, epoch {top.epoch}), where a constant has {top.score.constant:.2f}: leave it out, "
            "add a defence that hides it, train fewer epochs, or allow more",
            for_peer=f"stopped by {self._party}'s policy",
            peer_code="E_STOPPED",
        )

    def _index_tensor(self, positions: Positions) -> Tensor:
        return torch.from_numpy(positions).to(self._targets.most.device)

    def _adaptive_of(self, width: int) -> Adaptive:
        if self._adaptive is None:
            self._adaptive = Adaptive(width, self._targets, self._randomness.derive("adaptive"), replay=REPLAYED)
        return self._adaptive


WORDS = {"accuracy": "an accuracy", "auc": "an AUC", "r2": "an R²"}
"""Metric → how a sentence names it."""


def _success(found: Found | None) -> float | None:
    return found.score.success if found else None
