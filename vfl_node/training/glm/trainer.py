"""A generalised linear model as the node trains it."""

from __future__ import annotations

from typing_extensions import override

from vfl_node.session.session import Session
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.glm.coordinator import Decryptions
from vfl_node.training.glm.decryption_log import FileDecryptionLog
from vfl_node.training.glm.regression import regress
from vfl_node.training.trainer import Coordination, Trained, Trainer, TrainingData


class GlmTrainer(Trainer):
    """Genuine-with-dummy training (:mod:`~vfl_node.training.glm.regression`), as a `Trainer`."""

    @override
    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        logs = {name: FileDecryptionLog(session.attempt.folder / f"decryptions-{name}") for name in session.others}
        return await regress(session, data, checkpoints, logs, resume_from=resume)

    def coordination(self, session: Session) -> Coordination:
        """The coordinator decrypts for all data parties."""
        return Decryptions(session)
