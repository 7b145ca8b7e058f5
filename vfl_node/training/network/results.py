"""What is left of a network's training at each party: metrics, intervals, and what the passive parties are told of them."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict

from vfl_node.roles import NUMBER_TASKS
from vfl_node.session.session import Session
from vfl_node.training.evaluation import Figures, real_share
from vfl_node.training.network import alone
from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.network.journal import Journal
from vfl_node.training.network.overfitting import judge_classes, judge_numbers, judge_validation
from vfl_node.training.sharing import receive_figures, send_figures
from vfl_node.training.summary import Summary, summarise
from vfl_node.training.trainer import Trained, TrainingData


async def finish_active(session: Session, data: TrainingData, journal: Journal, trained: Trained, *, shifted: bool) -> Trained:
    """``trained`` with all that the active party measured; it tells the passive parties what the job says.

    Args:
        session: the active party's.
        data: what it trained on.
        journal: at the end.
        trained: what is left of it otherwise.
        shifted: whether made-up labels or class weights alone can make the model worse than a constant, which knows neither.

    Leaks: with ``evaluate.share_with_passive`` the epochs' figures and the metrics.
    """
    summary = summarise(journal.evaluations, *journal.rows, real_share=real_share(data.alignment), kind=alone.KIND)
    if session.job.evaluate.share_with_passive:
        figures = [Figures(epoch.loss, epoch.auc, epoch.validation_loss, epoch.validation_auc) for epoch in journal.epochs]
        for channel in session.data_peers.values():
            await send_figures(channel, figures, summary.metrics, validated=len(journal.validated) > 0)
    warnings = (*trained.warnings, *_overfitting(session, journal, summary, shifted=shifted))
    return dataclasses.replace(trained, results=summary, warnings=warnings, split=journal.split)


async def finish_passive(session: Session, journal: Journal, trained: Trained) -> Trained:
    """``trained`` with what the active party tells a passive one. Raises ProtocolError: not the figures that were due."""
    trained = dataclasses.replace(trained, split=journal.split)
    if not session.job.evaluate.share_with_passive:
        return trained
    names, validated = session.job.evaluate.metrics, len(journal.validated) > 0
    shared, metrics = await receive_figures(session.peer, len(journal.epochs), names, validated=validated)
    epochs = [dataclasses.replace(epoch, **asdict(figures)) for epoch, figures in zip(journal.epochs, shared, strict=True)]
    return dataclasses.replace(trained, epochs=tuple(epochs), results=Summary(metrics))


def _overfitting(session: Session, journal: Journal, summary: Summary, *, shifted: bool) -> tuple[str, ...]:
    """A warning where the network overfits."""
    if journal.stopped:
        return judge_validation(journal.epochs, journal.stopped[0][0])
    if shifted or not session.job.evaluate.test_fraction:
        return ()
    if session.job.task == "poisson":
        return ()  # a loss of counts has no value of its own that a constant's could be compared with
    numbers = NetworkConfig.section_of(session.job).task in NUMBER_TASKS
    judge, name = (judge_numbers, "rmse") if numbers else (judge_classes, "nll")
    return judge(journal.epochs, summary.metrics.get(name), summary.constant.get(name))
