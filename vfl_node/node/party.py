"""One party's part in a job, from the first word to the report: preflight, align, train, keep.

The same coroutine runs over gRPC in a node's job thread and in memory in a simulation.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass

import torch

from vfl_node import report
from vfl_node.alignment import align
from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.workers import ThreadWorkers, Workers
from vfl_node.data.tables import Table
from vfl_node.errors import PeerLost, UsageError
from vfl_node.job import Job
from vfl_node.node.live import LiveProgress
from vfl_node.node.preflight import preflight
from vfl_node.node.store import JobFolder, now
from vfl_node.settings import Role, Settings
from vfl_node.training.checkpoints import FileCheckpoints
from vfl_node.transport.channel import Channel

ALIGNED = "aligned"
"""Name of the first point a job can resume from; the later ones are training checkpoints."""
