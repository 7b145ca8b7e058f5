"""One full-batch iteration of two-party logistic regression over an obfuscated set, stage by stage.

The shape is that of the credit-default table: the strong party owns 30,000 rows with ten features of
20 bits, 10,000 of them are shared, and 3,000 of those are genuine. Values are synthetic: standard
normal features at 2^-16, residuals in ±1/3,000. Both parties work one after the other, on one core
(pinned, CPU time) and then in as many processes as there are cores (wall time).

Source: arXiv 2004.07427, Algorithm 2, steps 6 to 11, with an additive mask and packed slots.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from benchmarks.measure import alone
from benchmarks.tables import head, line, number
from vfl_node.crypto.fixed_point import RangeBound, encode
from vfl_node.crypto.paillier import ciphertexts as homomorphic
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.paillier.keys import generate
from vfl_node.crypto.paillier.matrix import multiply
from vfl_node.crypto.paillier.packing import join, pack, slots, unpack
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Block, Engine, Inline, Key, Result
from vfl_node.engines.processes import Processes
from vfl_node.training.glm.masks import Mask

T = TypeVar("T")

OWNED, SHARED, GENUINE, FEATURES = 30_000, 10_000, 3_000, 10
FEATURE_BITS, RESIDUAL_BITS = 20, 40
KINDS = (False, True)  # short exponents


@dataclass(frozen=True)
class Stage:
    """A stage of the iteration, as it was measured.

    Attributes:
        key_bits: size of n.
        short_exponents: of the noise.
        processes: how many worked.
        name: which.
        party: whose work it is.
        seconds: of CPU with one process, of wall time with several.
        sent_bytes: that leave the party after it.
    """

    key_bits: int
    short_exponents: bool
    processes: int
    name: str
    party: str
    seconds: float
    sent_bytes: int


class Ahead:
    """An engine that is done when ``map`` returns, so that what is prepared can be measured apart."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.workers, self.grain = engine, engine.workers, engine.grain

    def map(
        self, operation: Callable[[Key, Block], Result], blocks: Iterable[Block], key: Key, *, background: bool = False
    ) -> Iterator[Result]:
        return iter(list(self._engine.map(operation, blocks, key)))

    def close(self) -> None:
        self._engine.close()


def measured(key_bits: int, repeats: int) -> Iterator[Stage]:
    """All stages, each time in a new process."""
    cores = len(os.sched_getaffinity(0))
    for _ in range(repeats):
        for short_exponents in KINDS:
            for processes in sorted({1, cores}):
                yield from alone(stages, key_bits, short_exponents, processes)


def stages(key_bits: int, short_exponents: bool, processes: int) -> list[Stage]:
    """One iteration."""
    if processes == 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    engine = Ahead(Processes(processes) if processes > 1 else Inline())
    clock = time.perf_counter if processes > 1 else time.process_time
    done: list[Stage] = []

    def stage(name: str, party: str, function: Callable[..., T], *arguments: Any, sends: int = 0) -> T:
        began = clock()
        result = function(*arguments)
        done.append(Stage(key_bits, short_exponents, processes, name, party, clock() - began, sends))
        return result

    rng = np.random.default_rng(1)
    most = 10 << 16  # ten standard deviations
    owned = np.clip(np.rint(rng.normal(size=(OWNED, FEATURES)) * 2**16), -most, most).astype(np.int64)
    features = owned[rng.permutation(OWNED)[:SHARED]]
    residuals = np.zeros(SHARED)
    residuals[rng.permutation(SHARED)[:GENUINE]] = rng.uniform(-1, 1, GENUINE) / GENUINE
    bound = RangeBound(factor=1 << FEATURE_BITS, total=(1 << RESIDUAL_BITS) + SHARED)
    slot_bits = bound.slot_bits(key_bits)

    private = generate(key_bits, Randomness(bytes(32)))
    public = private.public
    weak = Encryptor(public, Randomness(b"weak".ljust(32)), engine, short_exponents=short_exponents, private=private)
    strong_randomness = Randomness(b"strong".ljust(32))
    strong = Encryptor(public, strong_randomness, engine)
    list(engine.map(pow, [1] * processes, 1))  # processes are running

    numbers = encode(residuals, RESIDUAL_BITS)
    stage("scores, in clear", "strong", np.matmul, features, rng.normal(size=FEATURES), sends=8 * SHARED)
    stage("noise (may be computed ahead)", "weak", weak.prepare, "residuals", SHARED)
    sent = stage("encryption", "weak", weak.encrypt, numbers, "residuals", sends=SHARED * public.width)
    stage("check", "strong", homomorphic.check, public, sent)
    gradient = stage("matrix", "strong", multiply, public, features, sent, engine)
    packed = stage("packing", "strong", pack, public, gradient, slot_bits, engine)
    per = slots(public, slot_bits)
    drawn = Mask.draw("additive", FEATURES, bound.bits, strong_randomness)

    def mask() -> Any:
        sums = [join(drawn.offsets[start : start + per], slot_bits) for start in range(0, FEATURES, per)]
        return strong.blind(homomorphic.add_plain(public, packed, sums, engine), "gradient")

    masked = stage("masking and blinding", "strong", mask, sends=len(packed) * public.width)
    opened = stage("decryption", "weak", decrypt, private, masked, engine, sends=len(packed) * public.width // 2)
    found = drawn.remove(unpack(opened, slot_bits, FEATURES, per))
    if found != [sum(x * d for x, d in zip(column, numbers, strict=True)) for column in features.T.tolist()]:
        raise SystemExit("the gradient is wrong")
    engine.close()
    return done


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """One line a stage, and all of them, for each key and kind of noise."""
    many = max(row["processes"] for row in rows)
    yield from head("key bits", "exponents", "stage", "party", "CPU s, one core", f"wall s, {many} processes", "bytes sent")
    for key_bits, short in dict.fromkeys((row["key_bits"], row["short_exponents"]) for row in rows):
        same = [row for row in rows if (row["key_bits"], row["short_exponents"]) == (key_bits, short)]
        kind = [str(key_bits), "short" if short else "half"]
        seconds, sent = [0.0, 0.0], 0
        for name, party, sends in dict.fromkeys((row["name"], row["party"], row["sent_bytes"]) for row in same):
            each = [
                statistics.median(row["seconds"] for row in same if (row["name"], row["processes"]) == (name, processes))
                for processes in (1, many)
            ]
            seconds, sent = [total + one for total, one in zip(seconds, each, strict=True)], sent + sends
            yield line(*kind, name, party, *map(number, each), f"{sends:,}" if sends else "")
        yield line(*kind, "all", "both", *map(number, seconds), f"{sent:,}")
