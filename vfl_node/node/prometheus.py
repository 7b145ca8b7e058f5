"""A node's figures in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest


def write_figures(states: Iterable[str], running: Iterable[Mapping[str, Any]], peers: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The figures.

    Args:
        states: of every job.
        running: the jobs that run (:meth:`vfl_node.node.jobs.Jobs.views`).
        peers: the status of each peer (:meth:`vfl_node.node.peers.Peers.status`).
    """
    registry = CollectorRegistry()
    jobs = Gauge("vfl_jobs", "Jobs known to this node", ["state"], registry=registry)
    up = Gauge("vfl_peer_up", "Whether the standing link with a peer is up", ["peer"], registry=registry)
    done = Gauge("vfl_job_done", "Steps done in the phase under way", ["job", "phase"], registry=registry)
    total = Gauge("vfl_job_total", "Steps of the phase under way", ["job", "phase"], registry=registry)
    description = "AUC of this node's own attack on what it sends, in the newest epoch; 0.5 is chance"
    attacks = Gauge("vfl_attack_auc", description, ["job", "attack"], registry=registry)
    description = "How well this node itself rebuilds a column of its own from what it sends, in the newest epoch"
    rebuilt = Gauge("vfl_feature_attack", description, ["job", "column", "attack"], registry=registry)
    description = "AUC, folded, of this node's own attack on its labels by what a passive party has, in the newest epoch"
    labels = Gauge("vfl_label_auc", description, ["job", "attack"], registry=registry)
    for state in states:
        jobs.labels(state).inc()
    for view in running:
        done.labels(view["id"], view["phase"]).set(view["done"])
        total.labels(view["id"], view["phase"]).set(view["total"])
        for attack, auc in view["attacks"].items():
            if auc is not None:
                attacks.labels(view["id"], attack).set(auc)
        for attack, auc in view["labels"].items():
            if auc is not None:
                labels.labels(view["id"], attack).set(auc)
        for column, successes in view["rebuilt"].items():
            for attack, success in successes.items():
                if success is not None:
                    rebuilt.labels(view["id"], column, attack).set(success)
    for peer, status in peers.items():
        if status["online"] is not None:
            up.labels(peer).set(int(bool(status["online"])))
    return generate_latest(registry)
