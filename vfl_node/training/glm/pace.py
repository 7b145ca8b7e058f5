"""What an encryption, a check and a product under encryption take on this machine, measured with a key of the job's size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from vfl_node.crypto.paillier.ciphertexts import check
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.paillier.keys import Ciphertexts, PrivateKey, generate
from vfl_node.crypto.paillier.matrix import multiply
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.job import Job
from vfl_node.job.costs import Operations, Passes, TableShape
from vfl_node.models import NONE_DECLARED
from vfl_node.roles import DataRole
from vfl_node.training.glm.config import GeneralisedLinear

ROWS, COLUMNS = 1024, 16
"""How much is measured. An encryption costs less where there are many, since they share tables."""

DEVIATION = 1 << 17
"""Standard deviation of the entries, which have 20 bits at most."""


class EncryptionPace:
    """Seconds of work on one core; each kind of it is measured when it is first asked for.

    Args:
        job: whose training is under encryption.
        tables: of the parties; not needed.
        models: of the node's settings; not needed.
    """

    def __init__(self, job: Job, tables: Mapping[DataRole, TableShape], models: Mapping[str, str] = NONE_DECLARED) -> None:
        self._train = GeneralisedLinear.section_of(job)
        self._randomness, self._engine = Randomness(bytes(32)), Inline()
        began = time.process_time()
        self._key = generate(self._train.key_bits, self._randomness.derive("key"))
        self._each_s = {"key": time.process_time() - began}

    def __call__(self, work: Passes | Operations) -> float:
        """The seconds of all of them."""
        assert isinstance(work, Operations)
        if work.count and work.kind not in self._each_s:
            self._each_s[work.kind] = self._measure(work.kind)
        return work.count * self._each_s[work.kind] if work.count else 0.0

    @cached_property
    def _ciphertexts(self) -> Ciphertexts:
        return self._encrypt(self._key)

    def _encrypt(self, private: PrivateKey | None) -> Ciphertexts:
        encryptor = Encryptor(
            self._key.public, self._randomness, self._engine, short_exponents=self._train.short_exponents, private=private
        )
        return encryptor.encrypt(range(ROWS), "estimate")

    def _measure(self, kind: str) -> float:
        public, sent = self._key.public, self._ciphertexts
        numbers = self._randomness.derive("entries").normal((ROWS, COLUMNS)) * DEVIATION
        entries = np.clip(np.rint(numbers), -4 * DEVIATION, 4 * DEVIATION).astype(np.int64)
        kinds: dict[str, tuple[Callable[[], object], int]] = {
            "own encryption": (lambda: self._encrypt(self._key), ROWS),
            "encryption": (lambda: self._encrypt(None), ROWS),
            "check": (lambda: check(public, sent), ROWS),
            "entry": (lambda: multiply(public, entries, sent, self._engine), ROWS * COLUMNS),
        }
        operation, count = kinds[kind]
        began = time.process_time()
        operation()
        return (time.process_time() - began) / count
