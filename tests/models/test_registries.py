"""What an installed package adds: a whole architecture, a part of one, an optimiser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PACKAGE = """
from dataclasses import dataclass

from vfl_node.models import Composed
from vfl_node.models.bottoms import MlpBottomKind


@dataclass(frozen=True)
class Shallow(MlpBottomKind):
    "A bottom of the last layer alone."

    def weights(self, schema, sizes, settings):
        return super().weights(schema, sizes[-1:], settings)

    def build(self, schema, sizes, settings):
        return super().build(schema, sizes[-1:], settings)


SHALLOW = Shallow(linear=True)
SHALLOW_WIDE = Composed(bottom_kind="shallow")


def plain(parameters, settings):
    import torch

    return torch.optim.RMSprop(parameters, lr=settings.learning_rate)
"""

POINTS = """
[vfl_node.models]
shallow_wide = shallow:SHALLOW_WIDE
broken = shallow:NOT_THERE
[vfl_node.bottoms]
shallow = shallow:SHALLOW
[vfl_node.optimisers]
rmsprop = shallow:plain
"""

PROGRAM = """
import sys
from vfl_node.errors import UsageError
from vfl_node.models import ARCHITECTURES, OPTIMISERS, InputSchema, architecture_of, cut_width
from vfl_node.training.split.config import Train

train = Train(model="shallow_wide", optimizer="rmsprop", bottom=(16, 8))
assert list(ARCHITECTURES) == ["mlp", "wide_deep", "cnn", "youtube_dnn", "shallow_wide", "broken"]
assert cut_width(train) == 9
schema = InputSchema(3, (4,))
architecture = architecture_of(train.model)
count = architecture.bottom_weights(schema, train.bottom, train)
assert "torch" not in sys.modules

from vfl_node.models.building import build_bottom

bottom = build_bottom(architecture, train, schema, train.bottom)
assert count == sum(parameter.numel() for parameter in bottom.parameters())
optimiser = OPTIMISERS[train.optimizer](bottom.parameters(), train)
try:
    architecture_of("broken")
except UsageError as error:
    print(type(optimiser).__name__, error.code)
"""


def test_an_installed_package_adds_an_architecture_a_part_and_an_optimiser(tmp_path: Path) -> None:
    (tmp_path / "shallow.py").write_text(PACKAGE)
    about = tmp_path / "shallow-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shallow\nVersion: 1\n")
    (about / "entry_points.txt").write_text(POINTS)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert ended.stdout.split() == ["RMSprop", "E_EXTENSION"]
