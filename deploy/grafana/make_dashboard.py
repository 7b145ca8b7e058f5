"""Writes the dashboard of a node for Grafana.

    python deploy/grafana/make_dashboard.py > deploy/grafana/vfl-node.json

Each panel is one line of PANELS. Names of metrics: docs/reference/metrics-for-prometheus.md.
"""

from __future__ import annotations

import json
import sys
from typing import Any

HERE = 'instance=~"$instance"'

PANELS: list[tuple[str, str, str, str, list[tuple[str, str]]]] = [
    # kind, title, what it shows, unit, [(expression, legend)]
    ("stat", "Ready", "Whether each node can take jobs, as /ready says", "bool", [("vfl_ready{HERE}", "{{instance}}")]),
    ("stat", "Links", "Whether the link with each peer is up", "bool", [("vfl_peer_up{HERE}", "{{peer}}")]),
    ("timeseries", "Jobs", "Jobs that have not ended, by state", "short", [
        ('vfl_jobs{state=~"asked|waiting|running|paused",HERE}', "{{state}}"),
    ]),
    ("timeseries", "Queue", "Jobs that wait, and what for", "short", [
        ("vfl_queue_jobs{HERE}", "{{reason}}"),
        ("vfl_asks_pending{HERE}", "this owner's answer"),
    ]),
    ("timeseries", "Jobs that ended", "In each hour, by result and code", "short", [
        ("sum by (result, code) (increase(vfl_jobs_ended_total{HERE}[1h]))", "{{result}} {{code}}"),
    ]),
    ("bargauge", "Progress", "Steps done of the phase of each running job", "percentunit", [
        ("vfl_job_steps_done{HERE} / (vfl_job_steps{HERE} > 0)", "{{exported_job}} {{phase}}"),
    ]),
    ("timeseries", "Traffic", "Bytes a second with each peer", "Bps", [
        ("rate(vfl_peer_bytes_total{HERE}[5m])", "{{peer}} {{direction}}"),
    ]),
    ("timeseries", "What leaks", "AUC of this node's own attacks; 0.5 is chance", "none", [
        ("vfl_attack_auc{HERE}", "{{exported_job}} {{attack}}"),
        ("vfl_label_auc{HERE}", "{{exported_job}} labels: {{attack}}"),
    ]),
    ("bargauge", "Budgets", "How much is used of what the policy allows with each partner", "percentunit", [
        ("vfl_budget_spent{HERE} / (vfl_budget_limit{HERE} > 0)", "{{partner}} {{budget}} {{period}}"),
    ]),
    ("bargauge", "Certificates", "Time until each ends", "s", [
        ("vfl_certificate_expiry_timestamp_seconds{HERE} - time()", "{{party}} {{kind}}"),
    ]),
    ("timeseries", "Errors and refusals", "In each hour, by code", "short", [
        ("sum by (code) (increase(vfl_errors_total{HERE}[1h]))", "{{code}}"),
        ("sum by (code, side) (increase(vfl_refusals_total{HERE}[1h]))", "refused: {{code}} ({{side}})"),
    ]),
    ("timeseries", "Machine", "Free disk, what is stored, and memory", "bytes", [
        ("vfl_disk_free_bytes{HERE}", "free disk: {{mount}}"),
        ("vfl_state_bytes{HERE}", "stored: {{kind}}"),
        ('process_resident_memory_bytes{job="vfl",HERE}', "memory"),
    ]),
]  # fmt: skip

WIDTH, HEIGHT, COLUMNS = 8, 8, 3
"""Of a panel, in units of a grid that is 24 wide, and how many stand beside each other."""

SOURCE = {"type": "prometheus", "uid": "${source}"}


def make_panel(number: int, kind: str, title: str, text: str, unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    """One panel."""
    defaults: dict[str, Any] = {"unit": unit, "min": 0}
    if unit == "bool":
        colours = {"0": {"text": "no", "color": "red", "index": 0}, "1": {"text": "yes", "color": "green", "index": 1}}
        defaults = {"mappings": [{"type": "value", "options": colours}], "color": {"mode": "thresholds"}}
    targets = [
        {"refId": chr(ord("A") + place), "expr": query.replace("HERE", HERE), "legendFormat": legend, "datasource": SOURCE}
        for place, (query, legend) in enumerate(queries)
    ]
    place = {"x": number % COLUMNS * WIDTH, "y": number // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT}
    return {
        "id": number + 1,
        "type": kind,
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if kind == "timeseries" else {},
        "targets": targets,
    }


def make_dashboard() -> dict[str, Any]:
    """The dashboard."""
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    instance = {"name": "instance", "type": "query", "label": "Node", "datasource": SOURCE, "includeAll": True, "multi": True}
    instance |= {"query": "label_values(vfl_build_info, instance)", "refresh": 2, "current": {"text": "All", "value": "$__all"}}
    return {
        "uid": "vfl-node",
        "title": "vfl-node",
        "tags": ["vfl"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": [source, instance]},
        "panels": [make_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(make_dashboard(), indent=1) + "\n")
