"""The pages of linkage: their jobs are valid, and their figures of keys are those of the encoding."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from tests.estimate.plans import ONLY_POWERS, exact
from vfl_node import errors
from vfl_node.configuration.models import parse
from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.randomness import Randomness
from vfl_node.estimate import totals
from vfl_node.estimate.linkage import linkage_cost
from vfl_node.estimate.plan import Plan
from vfl_node.job import Job
from vfl_node.job.keys import Encoding, Key, filter_bits
from vfl_node.settings.node import Obfuscation

ROOT = Path(__file__).parents[3]
GUIDE, PROTOCOL = (
    (ROOT / "docs" / page).read_text(encoding="utf-8")
    for page in ("guides/link-records.md", "explanations/alignment/linkage.md")
)
PAGE = f"{GUIDE}\n{PROTOCOL}"
JOBS = [
    parse(text, Job, source="docs/guides/link-records.md")
    for text in re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
]


def distances(key: Any, column: Any, encoding: Encoding) -> list[int]:
    """Bits in which the filters of all others differ from that of the first, the mean of five seeds."""
    keys = {"key": TypeAdapter(Key).validate_python(key)}
    found = []
    for seed in range(5):
        filters = np.concatenate(list(encode(keys, encoding, {"key": column}, Randomness(bytes([seed]) * 32))))
        bits = np.unpackbits(filters, axis=1)
        found.append((bits[1:] != bits[0]).sum(axis=1))
    return np.mean(found, axis=0).tolist()


def test_its_jobs_are_valid() -> None:
    first, second = JOBS
    example = parse((ROOT / "examples" / "linkage" / "job.yaml").read_text(), Job, source="examples")
    assert first.canonical() == example.canonical()
    assert set(second.align.keys or ()) == {"name", "born", "postcode"}


@pytest.mark.parametrize(("epsilon", "reach"), [(0.1, 600), (0.2, 150)])
def test_what_a_reach_weighs(epsilon: float, reach: int) -> None:
    assert f"{reach}" in PAGE
    number = {"kind": "number", "low": 0, "high": 100, "reach": 5}
    column = np.array([50.0, 55.0, 60.0, 90.0])
    assert distances(number, column, Encoding(epsilon=epsilon)) == pytest.approx([reach, 2 * reach, 2 * reach], rel=0.08)
    place = {"kind": "place", "south": 1.2, "north": 1.5, "west": 103.6, "east": 103.9, "reach": 3000}
    north = np.array([[1.35, 103.7], [1.35 + 3000 / 111_195, 103.7]])
    assert distances(place, north, Encoding(epsilon=epsilon)) == pytest.approx([reach], rel=0.08)


def test_what_letters_weigh() -> None:
    column = ("anna schmidt", "anna schmitt", "peter maier", "Änna  SCHMIDT", "schmidt anna")
    letter, other, same, turned = distances({"kind": "text"}, column, Encoding())
    assert "| 40 |" in PAGE
    assert "| 220 |" in PAGE
    assert letter == pytest.approx(40, abs=4)
    assert other == pytest.approx(220, abs=8)
    assert same == 0
    assert turned == 0


def test_a_birth_date_is_large_as_a_date_and_small_as_a_text() -> None:
    day = TypeAdapter(Key).validate_python({"kind": "date", "low": "1920-01-01", "high": "2020-01-01", "reach": 30})
    text = TypeAdapter(Key).validate_python({"kind": "text", "length": 10})
    assert "45 kB" in PAGE
    assert round(filter_bits({"born": day}, Encoding()) / 8, -3) in (45_000, 46_000)
    assert "184 bytes" in PAGE
    assert filter_bits({"born": text}, Encoding()) == 8 * 184


def test_what_it_costs_is_what_the_estimate_says() -> None:
    align = JOBS[0].align
    cost = linkage_cost(align, (100_000, 100_000))
    sizes, page = dict(zip(JOBS[0].parties.data, (100_000, 100_000), strict=True)), " ".join(PAGE.split())
    plan = Plan(
        job=JOBS[0], party="agency", records=sizes, shared=(0, 100_000), rtt_ms=20, obfuscation=Obfuscation(), rate_mbit_s=100
    )
    training = totals.estimate(plan, ONLY_POWERS)["linkage"]
    assert f"filters of {cost.filter_bytes} bytes" in page
    assert f"are {cost.search_s:.0f} s of CPU time" in page
    assert f"C's disk takes {cost.coordinator_disk_bytes / 1e6:.0f} MB" in page
    assert f"{exact(training, 'train_bytes') / 2**30:.1f} GiB" in page
    assert f"{exact(training, 'train_wire_s') / 60:.0f} minutes" in page


def test_its_errors_are_raised_somewhere() -> None:
    package = Path(errors.__file__).parent
    sources = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    for code in re.findall(r"`(E_\w+)`", PAGE):
        assert f'"{code}"' in sources, code
