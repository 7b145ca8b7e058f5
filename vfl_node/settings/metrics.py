"""What a node's metrics may show: ``metrics``."""

from __future__ import annotations

from pydantic import Field

from vfl_node.configuration.models import Frozen


class MetricsSettings(Frozen):
    """What a node's metrics may show."""

    columns: bool = Field(
        default=False,
        description="whether vfl_feature_attack names the columns of this node; by default it has the worst of all",
    )
