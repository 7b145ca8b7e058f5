"""The coordinator's side: it holds the key and decrypts what the job allows, and nothing else.

Source: arXiv 2004.07427 section 4.1.

Leaks: to this party masked values, and how many iterations there are; to each data party its own plaintexts only.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from vfl_node.crypto.paillier import keys
from vfl_node.crypto.paillier.keys import PrivateKey
from vfl_node.engines.contract import Engine
from vfl_node.job import Job, Parties
from vfl_node.progress import Advanced, PhaseBegan, Progress
from vfl_node.session.pins import Pins
from vfl_node.session.session import Session
from vfl_node.settings.node import role_in
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.decryption import DecryptionService
from vfl_node.training.glm.decryption_log import DecryptionCount, DecryptionLog, FileDecryptionLog
from vfl_node.training.glm.disclosures import Numbers, learns
from vfl_node.training.glm.masked_tensors import tensors_of
from vfl_node.training.glm.section import GlmSection
from vfl_node.training.trainer import Trained
from vfl_node.transport.channel import Channel


async def coordinate(
    channel: Channel,
    train: GeneralisedLinear,
    parties: Parties,
    private: PrivateKey,
    *,
    workers: Engine,
    log: DecryptionLog,
    pins: Pins,
    progress: Progress,
) -> None:
    """Serve one data party until it has no more to decrypt.

    Args:
        channel: the conversation with it; phase ``decrypt`` is opened and ended here.
        train: the job's section.
        parties: the job's.
        private: the key, the same in every attempt of the job.
        workers: the engine that decrypts.
        log: what was decrypted for that party so far.
        pins: where plans are pinned, the same in all conversations of the job.
        progress: told of each answer.

    Raises:
        ProtocolError: a request that the rules refuse (``E_DECRYPTION``), or bytes that are no ciphertexts (``E_CIPHERTEXT``).
        StateError: another plan than in an earlier attempt (``E_REPLAY``).
    """
    async with channel.phase("decrypt"):
        service = DecryptionService(channel, private, train, parties, workers, log, pins)
        await service.send_key()
        await service.take_plan()
        while await service.answer():
            progress.emit(Advanced(1))


class Decryptions:
    """All data parties' conversations in one job, each on a thread of its own, and one key for all.

    Args:
        session: the coordinator's.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._train = session, GeneralisedLinear.section_of(session.job)
        self._logs = {
            name: FileDecryptionLog(session.attempt.folder / f"decryptions-{name}") for name in session.job.parties.data
        }
        self._one = threading.Lock()
        self._private: keys.PrivateKey | None = None
        parties = session.job.parties
        each = [tensor for name in parties.data for tensor in tensors_of(self._train, str(role_in(parties, name)))]
        session.progress.emit(PhaseBegan("decrypt", self._train.iterations * len(each), "requests"))

    async def serve(self, channel: Channel) -> None:
        """As :func:`coordinate`, with the job's key."""
        session = self._session
        await coordinate(
            channel,
            self._train,
            session.job.parties,
            self._key(),
            workers=session.machine.processes,
            log=self._logs[channel.peer],
            pins=session.attempt.pins,
            progress=session.progress,
        )

    def result(self) -> Trained:
        """As :meth:`vfl_node.training.trainer.Coordination.result`: from the logs, which outlive a restart."""
        return result(self._session.job, {name: log.read() for name, log in self._logs.items()})

    def _key(self) -> keys.PrivateKey:
        """The job's key: generated from its stored secret, so the same after a restart."""
        with self._one:
            if self._private is None:
                self._private = keys.generate(self._train.key_bits, self._session.randomness.derive("paillier key"))
            return self._private


def result(job: Job, counts: Mapping[str, DecryptionCount]) -> Trained:
    """What a coordinator can report about a training, from each data party's ``counts``."""
    train = GeneralisedLinear.section_of(job)
    rounds = max(count.step + 1 for count in counts.values())
    widths = {name: count.columns for name, count in counts.items() if count.requests}
    bits = {name: count.bits for name, count in counts.items()}
    return Trained(
        epochs=(),
        steps=rounds,
        rows=(0, 0),
        device="cpu",
        disclosures=learns(job.parties, train, job.evaluate, Numbers(None, rounds, widths, None, bits)),
        section=GlmSection(
            flow=train.flow,
            rows=None,
            features={name: widths.get(name) for name in job.parties.data},
            rounds=rounds,
            decryptions={name: count.values for name, count in counts.items()},
            decrypted_bits=bits,
        ),
    )
