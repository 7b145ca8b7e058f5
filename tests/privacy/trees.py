"""Joint attacks by fewer trees, for tests over small tables."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from tests.thorough import examples
from vfl_node.privacy.attacks import joint


@pytest.fixture(autouse=True, scope="module")
def few_trees() -> Iterator[None]:
    """20 trees tell of a few hundred rows what 50 do, and at chance they are fitted less to them."""
    with mock.patch.dict(joint.TREES, max_iter=examples(50, fewer=20)):
        yield
