"""The left halves of handwritten digits, rebuilt by the party that has the right halves and the digits.

Each party's bottom is a small CNN (``train.model: cnn``). The attacker knows 5 % of the left halves of the images trained on,
and guesses all others:

=============  ============================================================================================================
line           from what
=============  ============================================================================================================
mean           nothing: of each pixel the mean over the known images
imputation     its own halves and the digits: no embedding. The better of ridge regression and the decoder of the attacks
static-epoch   the embeddings that the last epoch sent
static-pass    those that predictions of all images would send
stacked        those of all epochs, side by side
joined         its own halves and the digits beside the last epoch's embeddings
=============  ============================================================================================================

Figures are mean squared errors of a pixel, black 0 and white 1, over all images that are not known, and the share of the
variance that is explained: 0 for the mean image. What embeddings leak is the attack's share less that of imputation.
Defences are judged by fresh decoders with the same known images.

`digits.py` makes an experiment of it, `run.py` runs it.
Source: arXiv 2104.14383, whose images are those of COCO-QA; MNIST, cut in halves, stands for them.
"""

from __future__ import annotations

import base64
import json
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from torch import Tensor

from experiments.asymmetric_mnist.make_data import IMAGES, LABELS, SIDE, read_idx
from experiments.inference.data import ACTIVE, VICTIMS, Split
from experiments.inference.training import Heard, train
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.images import Image
from vfl_node.data.tables import Column, NumericColumn, Table, values_of
from vfl_node.privacy.features.attacks import rebuild, stack_epochs
from vfl_node.privacy.features.targets import Target, Targets

ROWS, SEEDS, KNOWN = 3_000, 5, 0.05
HALF = SIDE // 2
VICTIM = VICTIMS[0]

TRAIN: Mapping[str, Any] = {
    "model": "cnn",
    "bottom": [64],
    "active_bottom": [64],
    "top": [64],
    "epochs": 4,
    "batch_size": 128,
    "learning_rate": 2e-3,
}

DEFENCES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "none": (),
    "noise": ({"name": "noise", "sigma": 2.0},),
    "fbs": ({"name": "fbs", "columns": "all", "model_rate": 0.0003},),
}
"""Name → of the passive party's settings."""

RIDGE = 100.0
"""Penalty of ridge regression on standardised columns; about the number of known images."""

COMPONENTS = 32

SHOWN = 10
"""Pictures."""

Pixels = NDArray[np.float64]


def halves(shared: Path, seed: int, rows: int = ROWS) -> Split:
    """``rows`` digits of MNIST: the active party has the right halves and the labels, the passive one the left halves."""
    images = read_idx(shared / "mnist" / IMAGES, header=16).reshape(-1, SIDE, SIDE)
    digits = read_idx(shared / "mnist" / LABELS, header=8)
    chosen = np.sort(Randomness(bytes(32)).derive(f"images {seed}").permutation(len(images))[:rows])
    return cut(images[chosen], digits[chosen])


def cut(images: NDArray[np.uint8], digits: NDArray[np.uint8]) -> Split:
    """Images uint8[n, 28, 28] and their classes, uint8[n], over both parties."""
    ids = Identifiers.from_items(str(row).encode() for row in range(len(images)))

    def table(part: NDArray[np.uint8], name: str, labels: NDArray[np.float32] | None = None) -> Table:
        grey = part.reshape(len(part), -1).astype(np.float64)
        columns: dict[str, Column] = {f"{name}-{at}": NumericColumn(values) for at, values in enumerate(grey.T)}
        return Table(ids, columns, labels, image=Image(columns=tuple(columns), shape=(1, *part.shape[1:])))

    own = table(images[:, :, HALF:], "right", digits.astype(np.float32))
    theirs = table(images[:, :, :HALF], "left")
    return Split({ACTIVE: own, VICTIM: theirs}, tuple(theirs.columns), 10)


def pixels_of(table: Table) -> Pixels:
    """Pixels of each record, float64[n, 392], black 0 and white 1."""
    return np.stack([np.asarray(values_of(column), np.float64) for column in table.columns.values()], axis=1) / 255


@dataclass(frozen=True, eq=False)
class Attacker:
    """What the active party knows and has.

    Attributes:
        truth: float64[t, 392], the left halves of the images trained on.
        own: float32[t, c], its own halves and the digits as flags, standardised.
        known: int64[k], places among them of those that it knows.
        others: int64[n], of all others.
        randomness: of the attacks.
    """

    truth: Pixels
    own: Tensor
    known: NDArray[np.int64]
    others: NDArray[np.int64]
    randomness: Randomness

    @classmethod
    def draw(cls, heard: Heard, seed: int, share: float = KNOWN) -> Attacker:
        """One that knows a ``share`` of the images trained on, drawn at random."""
        split, rows = heard.split, heard.training
        randomness = Randomness(bytes(32)).derive(f"attack on images {seed}")
        order = randomness.derive("known").permutation(len(rows))
        known, others = np.split(order, [round(share * len(rows))])
        table = split.tables[ACTIVE]
        assert table.labels is not None
        columns = np.column_stack([pixels_of(table), np.eye(split.classes)[table.labels.astype(np.int64)]])[rows]
        own = (columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-2)
        truth = pixels_of(split.tables[VICTIM])[rows]
        return cls(truth, torch.from_numpy(own.astype(np.float32)), np.sort(known), np.sort(others), randomness)

    @property
    def targets(self) -> Targets:
        """The pixels, all in one scale: an error counts alike wherever it is."""
        scaled = ((self.truth - self._mean) / self._scale).astype(np.float32)
        every = torch.ones(len(scaled), dtype=torch.bool)
        return Targets(
            [Target(str(at), "number", 1, torch.from_numpy(values), every, 1.0) for at, values in enumerate(scaled.T)]
        )

    @property
    def components(self) -> Tensor:
        """The first principal components of its own columns, float32[t, 32]: beside an embedding all of them are too many."""
        _, _, directions = torch.linalg.svd(self.own - self.own.mean(dim=0), full_matrices=False)
        return self.own @ directions[:COMPONENTS].T

    def guess(self, rows: Tensor, name: str) -> Pixels:
        """The other images' left halves, float64[n, 392], from ``rows``, float32[t, d], by a fresh decoder."""
        known, others = (torch.from_numpy(places) for places in (self.known, self.others))
        found = rebuild(rows[known], known, rows[others], self.targets, self.randomness.derive(name))
        return np.clip(found.double().numpy() * self._scale + self._mean, 0, 1)

    def ridge(self) -> Pixels:
        """As :meth:`guess`, from its own columns by ridge regression."""
        fitted = Ridge(RIDGE).fit(self.own[self.known].numpy(), self.truth[self.known])
        return np.clip(fitted.predict(self.own[self.others].numpy()), 0, 1)

    def impute(self) -> Pixels:
        """The better of two guesses without embeddings, which favours the defence in no way: both are judged by the truth."""
        return min((self.ridge(), self.guess(self.own, "imputation")), key=self.error)

    def error(self, guessed: Pixels) -> float:
        """Mean squared error of a pixel."""
        return float(np.square(guessed - self.truth[self.others]).mean())

    def mean(self) -> Pixels:
        """The mean image of those that are known, for each other one."""
        return np.broadcast_to(self._mean, (len(self.others), self.truth.shape[1]))

    @property
    def _mean(self) -> Pixels:
        return np.asarray(self.truth[self.known].mean(axis=0))

    @property
    def _scale(self) -> float:
        """The scale of all pixels together: the root of their mean variance."""
        return float(np.sqrt(self.truth[self.known].var(axis=0).mean()))


def trial(split: Split, seed: int, settings: Mapping[str, Any] = TRAIN) -> tuple[dict[str, Any], dict[str, Pixels]]:
    """Figures of one seed: defence → line → error and accuracy; and pictures, [n, 392] each, by what they show."""
    figures: dict[str, Any] = {}
    pictures: dict[str, Pixels] = {}
    for name, defences in DEFENCES.items():
        began = time.perf_counter()
        heard = train("mnist", split, seed, settings=settings, defences=defences)
        took = time.perf_counter() - began
        attacker = Attacker.draw(heard, seed)
        last = len(heard.losses) - 1
        epochs = [heard.epoch(VICTIM, number) for number in range(last + 1)]
        guessed = {
            "static-epoch": attacker.guess(epochs[last], "epoch"),
            "static-pass": attacker.guess(heard.final(VICTIM), "pass"),
            "stacked": attacker.guess(stack_epochs(epochs), "stacked"),
            "joined": attacker.guess(torch.cat([epochs[last], attacker.components], dim=1), "joined"),
        }
        if not pictures:
            own = pixels_of(split.tables[ACTIVE])[heard.training][attacker.others]
            pictures = {"right half": own, "original": attacker.truth[attacker.others], "imputed": attacker.impute()}
            figures["mean"] = attacker.error(attacker.mean())
            figures["imputation"] = attacker.error(pictures["imputed"])
        pictures["rebuilt" if name == "none" else f"rebuilt, {name}"] = guessed["static-pass"]
        errors = {line: attacker.error(pixels) for line, pixels in guessed.items()}
        figures[name] = {"errors": errors, "accuracy": heard.test["accuracy"], "seconds": round(took, 1)}
    return figures, pictures


def explained(figures: Mapping[str, Any], error: float) -> float:
    """Share of the variance."""
    return 1 - error / float(figures["mean"])


def page(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of Markdown: means over the seeds and their standard errors."""

    def cell(values: Sequence[float], digits: int) -> str:
        error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"

    def row(name: str, errors: Sequence[float], accuracy: str = "") -> str:
        shares = [explained(trial, error) for trial, error in zip(trials, errors, strict=True)]
        return f"| {name} | {cell(errors, 4)} | {cell(shares, 2)} | {accuracy} |"

    lines = [
        f"{len(trials)} seeds, {ROWS:,} digits each, 80 % of them trained on in {TRAIN['epochs']} epochs by",
        "`train.model: cnn`. The passive party has the left halves, the active one the right halves and the digits; it knows "
        f"{KNOWN:.0%} of the left halves trained on. ± is a standard error.",
        "",
        "| left halves guessed | MSE of a pixel | share of the variance | accuracy of the digits |",
        "| --- | --- | --- | --- |",
        row("mean image", [trial["mean"] for trial in trials]),
        row("imputation: no embedding", [trial["imputation"] for trial in trials]),
    ]
    for name in DEFENCES:
        accuracy = cell([trial[name]["accuracy"] for trial in trials], 3)
        lines += [
            row(f"{name}: {line}", [trial[name]["errors"][line] for trial in trials], accuracy)
            for line in trials[0][name]["errors"]
        ]
    seconds = ", ".join(f"{name} {np.mean([trial[name]['seconds'] for trial in trials]):.0f} s" for name in DEFENCES)
    settings = "; ".join(f"`{name}`: `{json.dumps(list(defences))}`" for name, defences in DEFENCES.items())
    lines += [
        "",
        f"Settings of the passive node (`defences`): {settings}. A training took: {seconds}.",
        "",
        "![Digits: left halves as they are, imputed, rebuilt, and rebuilt under defences](inference-images.svg)",
    ]
    return lines


def picture(pictures: Mapping[str, Pixels], columns: Sequence[int]) -> str:
    """Whole digits, one below the other: right halves as they are, left halves as they were, were imputed and rebuilt. SVG."""
    right = pictures["right half"].reshape(-1, SIDE, HALF)
    rows = {name: picture.reshape(-1, SIDE, HALF) for name, picture in pictures.items() if name != "right half"}
    drawn = [
        np.concatenate([np.concatenate([left[at], right[at]], axis=1) for at in columns], axis=1) for left in rows.values()
    ]
    pixels = 2 * SIDE
    width, height = 150 + pixels * len(columns), (pixels + 6) * len(rows) + 6
    parts = []
    for place, (name, line) in enumerate(zip(rows, drawn, strict=True)):
        top = 6 + place * (pixels + 6)
        data = base64.b64encode(_png(line)).decode()
        parts.append(f'<text x="8" y="{top + SIDE + 5}">{name}</text>')
        parts.append(
            f'<image x="150" y="{top}" width="{pixels * len(columns)}" height="{pixels}" style="image-rendering: pixelated" '
            f'href="data:image/png;base64,{data}"/>'
        )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="14">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>\n"])


def _png(grey: Pixels) -> bytes:
    """An image of greys in 0 … 1, [h, w], in the format PNG."""
    lines = np.rint(255 * grey).astype(np.uint8)
    raw = b"".join(b"\0" + line.tobytes() for line in lines)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", lines.shape[1], lines.shape[0], 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
