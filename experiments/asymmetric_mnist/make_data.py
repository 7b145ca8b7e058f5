"""Cut the MNIST training images into a weak and a strong party's file.

The strong party has the upper half of all images (14 rows of 28 pixels: 392 columns), the weak
one the lower half of some of them and the label: 1 for a digit of 5 or more, 0 for less. What
the weak party could know of the other images is abandoned, so every one of its records is
shared. Pixels stay whole numbers of 0 to 255.

Why this label: it is balanced and far from linear in the pixels, so loss and AUC still move
after thirty iterations. One digit against the rest is nearly separable; its curves would be
flat after a few, and would coincide for that reason alone.

The result is the same on every machine. By default it has 300 and 1,500 records, and each
square of 2 × 2 pixels is one column, their rounded mean: 98 columns a party. The paper's is
`--full`.

Usage: python make_data.py MNIST_FOLDER FOLDER [--full | --rows WEAK STRONG --pool {1,2,7}]
"""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness

SIDE, HALF = 28, 14
"""Pixels of an image's side, and of half of it."""

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


def main(source: Path, folder: Path, weak: int, strong: int, pool: int) -> None:
    """Write ``weak.csv`` and ``strong.csv`` into ``folder``."""
    images = pooled(read_idx(source / IMAGES, header=16).reshape(-1, SIDE, SIDE), pool)
    digits = read_idx(source / LABELS, header=8)
    if not 0 < weak <= strong <= len(images):
        raise SystemExit(f"{source} has {len(images)} images: WEAK may be 1 to STRONG, and STRONG at most all")
    randomness = Randomness(b"halves of handwritten digits, v1")
    chosen = randomness.derive("strong").permutation(len(images))[:strong]
    shared = chosen[randomness.derive("weak").permutation(strong)[:weak]]
    middle = images.shape[1] // 2
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "strong.csv", chosen, images[chosen, :middle], {})
    write(folder / "weak.csv", shared, images[shared, middle:], {"label": digits[shared] >= 5})


def read_idx(path: Path, *, header: int) -> NDArray[np.uint8]:
    """The bytes of a gzipped IDX file behind its ``header``."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def pooled(images: NDArray[np.uint8], pool: int) -> NDArray[np.int64]:
    """Rounded means of squares of ``pool`` × ``pool`` pixels: [n, 28, 28] → [n, 28/pool, 28/pool]."""
    size = SIDE // pool
    return np.rint(images.reshape(-1, size, pool, size, pool).mean(axis=(2, 4))).astype(np.int64)


def write(path: Path, ids: NDArray[np.int64], pixels: NDArray[np.int64], last: dict[str, NDArray[np.bool_]]) -> None:
    """Write one CSV file: an image's number, its pixels row by row, and what comes ``last``."""
    _, height, width = pixels.shape
    columns = np.column_stack([ids, pixels.reshape(len(ids), -1), *last.values()])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"pixel-{row:02d}-{column:02d}" for row in range(height) for column in range(width)), *last])
        writer.writerows(columns.tolist())
    print(f"{path}: {len(columns)} images, {height * width} pixels of each")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="MNIST_FOLDER", help=f"with {IMAGES} and {LABELS}")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--rows", type=int, nargs=2, default=(300, 1500), metavar=("WEAK", "STRONG"))
    parser.add_argument("--pool", type=int, choices=(1, 2, 7), default=2)
    parser.add_argument("--full", action="store_true", help="10,000 and 60,000 records of 392 pixels")
    chosen = parser.parse_args()
    (weak, strong), pool = ((10_000, 60_000), 1) if chosen.full else (chosen.rows, chosen.pool)
    main(chosen.source, chosen.folder, weak, strong, pool)
