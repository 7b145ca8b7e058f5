"""The coordinator's side: it holds the key and answers what the job allows, and nothing else.

Source: arXiv 2004.07427 section 4.1.

Leaks: to this party masked values, and how many iterations there are; nothing from here to
the parties but their own plaintexts.
"""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.alignment.alignment import Pins
from vfl_node.crypto.paillier.keys import PrivateKey
from vfl_node.engines.contract import Engine
from vfl_node.job import Job, Logistic
from vfl_node.progress import Progress
from vfl_node.training.logistic.decryption import Count, DecryptionLog, Service
from vfl_node.training.logistic.disclosures import Numbers, learns
from vfl_node.training.task import LogisticFigures, TrainingResult
from vfl_node.transport.channel import Channel


async def coordinate(
    channel: Channel,
    train: Logistic,
    role: str,
    private: PrivateKey,
    *,
    workers: Engine,
    journal: DecryptionLog,
    pins: Pins,
    other: str,
    progress: Progress,
) -> None:
    """Serve one data party until it has no more to decrypt.

    Args:
        channel: the conversation with it; phase ``decrypt`` is opened and ended here.
        train: the job's section.
        role: that party's.
        private: the key, the same in every attempt of the job.
        workers: who decrypts.
        journal: what that party has had so far.
        pins: where its plan is pinned.
        other: the other data party.
        progress: told of each answer.

    Raises:
        ProtocolError: a request that the rules refuse (``E_DECRYPTION``), or ciphertexts that are none (``E_CIPHERTEXT``).
        StateError: another plan than in an earlier attempt (``E_REPLAY``).
    """
    async with channel.phase("decrypt"):
        service = Service(channel, private, train, role, workers, journal, pins, other)
        await service.send_key()
        await service.take_plan()
        while await service.answer():
            progress.advance(1)


def result(job: Job, counts: Mapping[str, Count]) -> TrainingResult:
    """What a coordinator can tell of a training, from each data party's ``counts``."""
    assert isinstance(job.train, Logistic)
    rounds = max(count.step + 1 for count in counts.values())
    features = {name: count.columns for name, count in counts.items() if count.requests}
    bits = {name: count.bits for name, count in counts.items()}
    return TrainingResult(
        epochs=(),
        steps=rounds,
        rows=(0, 0),
        device="cpu",
        learnt=learns(job.parties, job.train, job.evaluate, Numbers(None, rounds, features, None, bits)),
        logistic=LogisticFigures(
            flow=job.train.flow,
            rows=None,
            features=features,
            rounds=rounds,
            decryptions={name: count.values for name, count in counts.items()},
            decrypted_bits=bits,
        ),
    )
