"""A node that offers its jobs with another purpose than they have, which a file holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.node import forked_node
from vfl_node.node import others
from vfl_node.transport.generated.vfl.v1.session_pb2 import Offer


def run(file: Path, environment: Mapping[str, str], arguments: list[str], log: Path) -> None:
    def offer(job_json: str, manifest: bytes, **said: Any) -> Offer:
        if file.exists():
            purpose = json.loads(file.read_text())
            job_json = _encode(json.loads(job_json) | {"purpose": purpose})
            manifest = _encode(json.loads(manifest) | {"purpose": purpose, "job": job_json}).encode()
        return Offer(job_json=job_json, manifest=manifest, **said)

    others.Offer = offer  # type: ignore[assignment, misc]
    forked_node.run(environment, arguments, log)


def _encode(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
