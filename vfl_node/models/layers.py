"""Layers that own networks are made of. They are built without initial weights: the constructors draw nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from vfl_node.models.settings import LayerOptions

L = TypeVar("L", bound=nn.Module)

SPARSE_FROM = 100_000
"""Codes of a table whose gradients are sparse (:mod:`vfl_node.models.updates`).

Measured with Adam on one core: at 100,000 codes a sparse step of 256 rows is 6 times as fast as a dense one, and one of 8,192
rows 1.2 times. At 30,000 codes a sparse step of 8,192 rows is slower than a dense one (docs/reference/benchmarks/index.md).
"""


class ByteStream(Protocol):
    """Where masks come from: a :class:`~vfl_node.crypto.randomness.Randomness`."""

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes."""


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation (Ioffe and Szegedy 2015) that is defined for every batch.

    In training each unit is scaled by mean and variance over **all** rows of the batch, whoever owns them, and running
    averages of both (momentum 0.1) follow. In evaluation and predictions the running averages are used, and a row does not
    depend on its batch. A batch of one row, which may be the last of an epoch, has no variance: in training, too, it is scaled
    by the running averages, and leaves them as they are.

    Leaks: in training each row of an embedding or of a gradient depends on the whole batch: a peer that receives all of its
        rows learns nothing new from the averages, but each row says a little about the others, such as a gradient about the
        labels of the rest of its batch. The running averages stay at the party.
    """

    def forward(self, input: Tensor) -> Tensor:
        """float32[B, units] → the same shape."""
        if len(input) > 1:
            return super().forward(input)
        return batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class ChannelNorm(BatchNorm):
    """As :class:`BatchNorm`, for each channel of a convolution: over all rows of the batch and all places of the image."""

    def forward(self, input: Tensor) -> Tensor:
        """float32[B, channels, h, w] → the same shape."""
        return super().forward(input.flatten(2)).view_as(input)


class Dropout(nn.Module):
    """Sets a share of the numbers to 0 in training and scales the others by 1 / (1 − rate) (Srivastava et al. 2014).

    Masks come from the party's own randomness, anew in each step (:meth:`draw_from`): torch's generator keeps 32 bits of its
    seed, and a restarted party must draw the same masks again.

    Args:
        rate: probability of 0, met to 2⁻³²; below 1.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self._stream: ByteStream | None = None

    def draw_from(self, stream: ByteStream | None) -> None:
        """Take the masks of the step that begins from ``stream``; None after a step, so that the layer can be copied."""
        self._stream = stream

    def forward(self, values: Tensor) -> Tensor:
        """float32 of any shape → the same shape. Costs 4 bytes of the stream for each number.

        Raises:
            RuntimeError: in training, before :meth:`draw_from`.
        """
        if not self.training:
            return values
        if self._stream is None:
            raise RuntimeError("a dropout layer trains without its party's randomness")
        words = np.frombuffer(self._stream.bytes(4 * values.numel()), dtype="<u4").reshape(tuple(values.shape))
        stays = torch.from_numpy(words >= round(self.rate * 2**32)).to(values.device)
        return values * stays / (1 - self.rate)


def allocate(layer: L) -> L:
    """Give memory on the default device to the weights of a ``layer`` that was made on ``meta``, where none are drawn.

    As ``to_empty``, which loads half a second of torch's compiler.
    """
    for name, weights in layer.named_parameters(recurse=False):
        setattr(layer, name, nn.Parameter(torch.empty(weights.shape, dtype=weights.dtype, device=torch.get_default_device())))
    return layer


def linear(width: int, size: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer. Made on ``meta`` it draws nothing from torch's global generator."""
    return allocate(nn.Linear(width, size, bias=bias, device="meta"))


def hidden_layers(width: int, sizes: Sequence[int], options: LayerOptions) -> nn.Sequential:
    """Linear → norm, if any → ReLU → dropout, if any, for each of ``sizes``; the last one included."""
    layers: list[nn.Module] = []
    for before, after in zip([width, *sizes], sizes, strict=False):
        layers.append(linear(before, after))
        if options.batch_norm:
            layers.append(BatchNorm(after))
        if options.layer_norm:
            layers.append(nn.LayerNorm(after))
        layers.append(nn.ReLU())
        if options.dropout:
            layers.append(Dropout(options.dropout))
    return nn.Sequential(*layers)


def convolutions(channels: int, sizes: Sequence[int], options: LayerOptions) -> nn.Sequential:
    """3 × 3 convolution → norm, if any → ReLU → max-pooling → dropout, if any, for each of ``sizes``.

    float32[B, channels, h, w] → float32[B, sizes[-1], h', w']. A convolution keeps height and width, as if zeros were around
    the image; a pooling takes the largest of 2 × 2 numbers, and at an edge of what is left there. Normalised within the row,
    all channels of an image are scaled together.
    """
    layers: list[nn.Module] = []
    for before, after in zip([channels, *sizes], sizes, strict=False):
        layers.append(allocate(nn.Conv2d(before, after, 3, padding=1, device="meta")))
        if options.batch_norm:
            layers.append(ChannelNorm(after))
        if options.layer_norm:
            layers.append(nn.GroupNorm(1, after))
        layers += [nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
        if options.dropout:
            layers.append(Dropout(options.dropout))
    return nn.Sequential(*layers)


def lookup_tables(cardinalities: Sequence[int], width: int) -> nn.ModuleList:
    """An embedding table of ``width`` numbers a code for each categorical column; sparse from :data:`SPARSE_FROM` codes on."""
    return nn.ModuleList(
        nn.Embedding.from_pretrained(  # type: ignore[no-untyped-call]
            torch.empty(codes, width), freeze=False, sparse=codes >= SPARSE_FROM
        )
        for codes in cardinalities
    )  # made on meta as `linear`, the first one would load torch's compiler: more than a second


def mean_tables(codes: Sequence[int], width: int) -> nn.ModuleList:
    """For each column of lists a table as in :func:`lookup_tables`, which gives the mean over the codes of a row but code 0.

    int32[B, length] → float32[B, width]; 0 for a row without any other code.
    """
    return nn.ModuleList(
        nn.EmbeddingBag.from_pretrained(
            torch.empty(count, width), freeze=False, mode="mean", padding_idx=0, sparse=count >= SPARSE_FROM
        )
        for count in codes
    )
