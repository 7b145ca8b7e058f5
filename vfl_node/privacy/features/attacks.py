"""Attribute inference: columns of a party rebuilt from its embeddings by a peer that knows some of its rows.

The attacker is the party that gets the embeddings. It knows the columns of k rows, say because it is a customer itself or
made up customers ("poison data"), finds these rows by the alignment, learns columns from embeddings on them, and guesses the
columns of all other rows.

=============  =======================================================  ===============================================
attack         what it learns from, and guesses from                    here
=============  =======================================================  ===============================================
static-epoch   embeddings of one epoch, of a model that moves slowly    :func:`rebuild`
static-pass    embeddings of one pass by the same weights               :func:`rebuild`
stacked        embeddings of a row in several epochs together           :func:`views`, then :func:`rebuild`
adaptive       known rows of each batch, all through the training       :class:`Adaptive`
=============  =======================================================  ===============================================

Whatever an attacker knows besides, such as columns of its own, is joined to the embeddings; these columns alone give
imputation, which no embedding is needed for.

A *fresh* decoder (:func:`rebuild`) is the judge of every defence, never the one that a defence simulates: an embedding that
deceives one decoder may tell another everything.

Deviations from the paper: a static attack there is on one iteration, which in training by batches has the rows of one batch
only; here it pools those of an epoch. The stacked attack is not in it. An adaptive decoder may also learn from the newest
embedding of known rows that are not in the batch (``replay``), by earlier weights.

Source: arXiv 2104.14383, section 4.1, equation 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.features.decoder import decoder
from vfl_node.privacy.features.fitting import EFFORT, Effort, fit_decoders
from vfl_node.privacy.features.targets import Targets

LAST_EPOCHS = 16
"""The most epochs of which embeddings are put side by side."""

WIDEST = 256
"""How many numbers a row has at most with embeddings of several epochs side by side, unless two have more already."""

HIDDEN, RATE = 128, 3e-3
"""Width of an adaptive decoder's hidden layer, and its learning rate (Adam)."""

MOVED = 0.05
"""Weight of a batch in the moving averages of an embedding's mean and variance."""

LEAST = 1e-6
"""Added to a standard deviation, so that numbers that never change stay 0."""


def rebuild(
    known: Tensor | Sequence[Tensor],
    known_at: Tensor,
    others: Tensor | Sequence[Tensor],
    targets: Targets,
    randomness: Randomness,
    effort: Effort = EFFORT,
) -> Tensor:
    """Guess columns of ``others`` by fresh decoders that learn from the ``known`` rows.

    Args:
        known: float32[k, d], what the attacker has of rows whose columns it knows: embeddings, or several of them side by side.
            Or several views of them, each of a width of its own: for each column the decoder of the best one is used.
        known_at: int64[k], their shared positions.
        others: float32[n, d], the same of the rows that it attacks, with the same views.
        targets: the columns; of these only the truth at ``known_at`` is used.
        randomness: of this attack alone.
        effort: how hard it tries.

    Returns:
        float32[n, targets.width]: logits, and numbers in standard deviations. Where no decoder predicts known rows that it
        has not learnt from better than a constant does, they are near that constant.

    Cost: as :func:`~vfl_node.privacy.features.fitting.fit_decoders`.
    """
    seen, attacked = ([rows] if isinstance(rows, Tensor) else list(rows) for rows in (known, others))
    pairs = [_standardise(*pair) for pair in zip(seen, attacked, strict=True)]
    return fit_decoders(pairs, known_at, targets, randomness, effort)


def views(epochs: Sequence[Tensor], mean: Tensor) -> tuple[Tensor, ...]:
    """What several epochs say of the same rows: side by side, and their mean, in which noise of each epoch averages out.

    Args:
        epochs: as :func:`stack_epochs`.
        mean: float32[n, d], of all epochs.
    """
    return (stack_epochs(epochs), mean) if len(epochs) > 1 else (epochs[0],)


def stack_epochs(epochs: Sequence[Tensor]) -> Tensor:
    """Embeddings of the same rows in the last epochs side by side, float32[n, e·d].

    Args:
        epochs: float32[n, d] of each epoch, oldest first; at least one. Of them the last :func:`depth` count.
    """
    return torch.cat(list(epochs[-depth(epochs[-1].shape[1]) :]), dim=1)


def depth(width: int) -> int:
    """The most epochs of which embeddings of ``width`` numbers are put side by side; at least 2."""
    return max(2, min(LAST_EPOCHS, WIDEST // width))


class Adaptive:
    """One decoder over a whole training, which learns from the known rows of each batch as they come.

    Args:
        width: d of an embedding.
        targets: the columns.
        randomness: of this attack alone.
        steps: of the decoder for each batch with known rows.
        replay: so many known rows of other batches at most, each with the newest embedding that was seen of it, are learnt
            from in each step, too; 0: none, as in the paper.

    Cost: a step of a decoder with one hidden layer of 128 for each batch with known rows.
    """

    def __init__(self, width: int, targets: Targets, randomness: Randomness, *, steps: int = 1, replay: int = 0) -> None:
        self._targets, self._randomness, self._steps, self._replay = targets, randomness, steps, replay
        device = targets.most.device
        self._decoder = decoder(width, (HIDDEN,), targets.width, randomness.derive("weights")).to(device)
        self._optimiser = torch.optim.Adam(self._decoder.parameters(), lr=RATE, fused=True)
        self._mean, self._variance = torch.zeros(width, device=device), torch.ones(width, device=device)
        self._batches = 0
        self._newest = torch.empty(0, width, device=device)
        self._newest_at = torch.empty(0, dtype=torch.int64, device=device)

    def see(self, rows: Tensor, known: Tensor, known_at: Tensor) -> None:
        """Learn from one batch.

        Args:
            rows: float32[B, d], all its embeddings; they only say how embeddings are scaled.
            known: float32[j, d], those of known rows among them; j may be 0.
            known_at: int64[j], their shared positions.
        """
        self.learn(spread(rows), known, known_at)

    def learn(self, scale: tuple[Tensor, Tensor] | None, known: Tensor, known_at: Tensor) -> None:
        """As :meth:`see`, of a batch whose :func:`spread` is ``scale``."""
        self._scale(scale)
        if not len(known):
            return
        with torch.enable_grad():
            for step in range(self._steps):
                learnt, learnt_at = self._add_replay(known, known_at, self._randomness.derive(f"{self._batches}/{step}"))
                self._optimiser.zero_grad()
                self._targets.losses(self._decoder(self._apply_scale(learnt)), learnt_at).sum().backward()  # type: ignore[no-untyped-call]
                self._optimiser.step()
        self._remember(known, known_at)

    @torch.no_grad()
    def rebuild(self, others: Tensor) -> Tensor:
        """Guess the columns of ``others``, float32[n, d], as the decoder is now: float32[n, targets.width]."""
        outputs: Tensor = self._decoder(self._apply_scale(others))
        return outputs

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold."""
        moments: dict[int, dict[str, Tensor]] = self._optimiser.state_dict()["state"]
        kept = {
            "mean": self._mean,
            "variance": self._variance,
            "batches": torch.tensor(self._batches),
            "newest": self._newest,
            "newest_at": self._newest_at,
        }
        return {
            **kept,
            **add_prefix("decoder", self._decoder.state_dict()),
            **{f"moments.{index}.{key}": value for index, parts in moments.items() for key, value in parts.items()},
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave; the attack must be made with the same arguments."""
        device = self._mean.device
        self._mean, self._variance = tensors["mean"].to(device), tensors["variance"].to(device)
        self._newest, self._newest_at = tensors["newest"].to(device), tensors["newest_at"].to(device)
        self._batches = int(tensors["batches"])
        self._decoder.load_state_dict(take_part("decoder", tensors))
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in take_part("moments", tensors).items():
            index, key = name.split(".")
            state.setdefault(int(index), {})[key] = value.clone()
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": state})

    def _scale(self, scale: tuple[Tensor, Tensor] | None) -> None:
        """Take a batch into the moving averages of mean and variance."""
        self._batches += 1
        if scale is None:
            return
        weight = max(1 / self._batches, MOVED)
        self._mean = self._mean.lerp(scale[0], weight)
        self._variance = self._variance.lerp(scale[1], weight)

    def _apply_scale(self, rows: Tensor) -> Tensor:
        return (rows - self._mean) / (self._variance.sqrt() + LEAST)

    def _add_replay(self, known: Tensor, known_at: Tensor, randomness: Randomness) -> tuple[Tensor, Tensor]:
        """The known rows of the batch, and some of earlier ones."""
        earlier = torch.nonzero(~torch.isin(self._newest_at, known_at)).squeeze(1)
        if not (count := min(self._replay, len(earlier))):
            return known, known_at
        drawn = earlier[torch.from_numpy(randomness.permutation(len(earlier))[:count]).to(earlier.device)]
        return torch.cat([known, self._newest[drawn]]), torch.cat([known_at, self._newest_at[drawn]])

    def _remember(self, known: Tensor, known_at: Tensor) -> None:
        """Keep the newest embedding of each known row, where rows are replayed."""
        if self._replay:
            kept = ~torch.isin(self._newest_at, known_at)
            self._newest = torch.cat([self._newest[kept], known])
            self._newest_at = torch.cat([self._newest_at[kept], known_at])


def spread(rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and variance of each number of a batch, float32[d] each; None of fewer than two rows."""
    return (rows.mean(dim=0), rows.var(dim=0)) if len(rows) > 1 else None


def _standardise(known: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the mean 0 and the standard deviation 1 that all rows have together."""
    rows = torch.cat([known, others])
    rows = (rows - rows.mean(dim=0)) / (rows.std(dim=0) + LEAST)
    return rows[: len(known)], rows[len(known) :]
