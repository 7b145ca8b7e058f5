"""vfl-node doctor on a node's own machine: each check where all is well and where it is not, and the form for programs."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cryptography import x509

from tests.node.nodes import command
from tests.node.test_check import shown as _  # noqa: F401
from vfl_node.errors import UsageError
from vfl_node.node.doctor import machine, own, past
from vfl_node.node.doctor.examine import examine
from vfl_node.node.doctor.finding import CHECKS, OF_PEERS, Finding, fail, guarded, ok, skip, warn, worst
