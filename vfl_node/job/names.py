"""What parties and jobs are called."""

from __future__ import annotations

from typing import Annotated

from vfl_node.configuration.models import text_like

Name = Annotated[
    str,
    text_like(
        r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
        "a name: 1 to 63 small letters, digits and hyphens that begin and end with a letter or digit",
    ),
]
"""Names of jobs and parties: lower-case letters, digits and inner hyphens, at most 63 (safe as a path and in DNS)."""

JobId = Annotated[str, text_like(r"^[a-z0-9][a-z0-9-]{0,62}$", "the id of a job: small letters, digits and hyphens")]
"""What a node calls one run of a job."""
