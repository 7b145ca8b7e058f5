"""Several jobs: new noise averages out, noise that stays while terms change is subtracted, and the product has neither."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.linkage_privacy import SECRET, Linkage, exact_share, jobs, nearest_found
from experiments.linkage import repeated
from vfl_node.alignment.linkage.terms import digest_of
from vfl_node.job import Align
from vfl_node.settings.limits import Limits

CHANCE = 1 / 20


def terms(**changed: object) -> bytes:
    """What the product keys noise by."""
    said = {
        "protocol": "linkage",
        "keys": {"x": {"kind": "number", "low": 0, "high": 1, "reach": 0.1}},
        "candidates": 20,
        "noise": {"sigma": 0.4},
    }
    return digest_of(Align.model_validate({**said, **changed}), b"mark of the seed")


def test_noise_that_is_drawn_again_averages_out_and_the_products_does_not(linkage: Linkage) -> None:
    fresh = [nearest_found(linkage, jobs(linkage, count, fresh=True)) for count in (1, 3, 10, 30)]
    assert fresh == sorted(fresh)
    assert fresh[-1] > fresh[0] + 0.25
    assert fresh[0] > 3 * CHANCE  # one job tells something
    once = nearest_found(linkage, jobs(linkage, 1, fresh=False))
    assert once == pytest.approx(fresh[0], abs=0.08)
    assert nearest_found(linkage, jobs(linkage, 30, fresh=False)) == once


def test_as_many_linkages_as_are_allowed_tell_as_little_as_few_jobs(linkage: Linkage) -> None:
    """New terms draw new noise, so they are counted: the default number allows the gain of as many jobs and no more."""
    allowed = Limits().budgets.linkages
    others = [linkage.release(0.4, terms=terms(candidates=20 + number)) for number in range(allowed)]
    found = nearest_found(linkage, others)
    assert found == pytest.approx(nearest_found(linkage, jobs(linkage, allowed, fresh=True)), abs=0.08)
    assert found < nearest_found(linkage, jobs(linkage, 30, fresh=True)) - 0.1


@pytest.mark.parametrize("changed", ["sigma", "scale"])
def test_two_jobs_with_the_same_noise_give_distances_exactly(linkage: Linkage, changed: str) -> None:
    """The control: noise by the pair alone, under two σ, or under two scales, as two K have, or a record that has changed."""
    scale = linkage.scale
    other = dataclasses.replace(scale, mean=scale.mean * 1.01, deviation=scale.deviation * 1.002)
    first = linkage.release(0.4)
    how = {"sigma": 0.5} if changed == "sigma" else {"sigma": 0.4, "scale": other}
    assert exact_share(linkage, first, linkage.release(**how)) > 0.99


def test_noise_of_the_terms_cannot_be_subtracted(linkage: Linkage) -> None:
    first = linkage.release(0.4, terms=terms())
    other_noise = linkage.release(0.5, terms=terms(noise={"sigma": 0.5}))
    fewer = Linkage(linkage.points, 15, 0.1)
    other_count = fewer.release(0.4, terms=terms(candidates=15))
    for second in (other_noise, other_count):
        assert exact_share(linkage, first, second) < 0.02


def test_a_scale_that_is_kept_says_nothing_new_when_a_record_changes(linkage: Linkage) -> None:
    """μ0 and σ0 of the first linkage: every pair that is in both has the same similarity, to the bit."""
    moved = linkage.points.passive.copy()
    moved[3] = 1 - moved[3]
    after = Linkage(dataclasses.replace(linkage.points, passive=moved), 20, 0.1)
    first, kept = linkage.release(0.4), after.release(0.4, scale=linkage.scale)
    both = ~np.isnan(linkage.true) & ~np.isnan(after.true)
    both[3] = False
    assert both.sum() > 5000
    np.testing.assert_array_equal(first.similarities[both], kept.similarities[both])
    with pytest.raises(ValueError, match="nothing to subtract"):
        repeated.subtract(first, kept)
    again = after.release(0.4)  # the control: computed again
    assert again.deviation != first.deviation
    found = np.rint(repeated.subtract(first, again))[both] == linkage.true[both]
    assert found.mean() > 0.5


def test_another_secret_of_the_coordinator_is_another_job(linkage: Linkage) -> None:
    """So one that has lost its memory must not go on: its noise would be a second sample."""
    first, second = linkage.release(0.4), linkage.release(0.4, secret=SECRET.derive("lost"))
    known = ~np.isnan(first.similarities)
    assert (first.similarities[known] != second.similarities[known]).all()
    both = repeated.average([first, second])[known] - linkage.true[known]
    one = repeated.average([first])[known] - linkage.true[known]
    assert both.std() == pytest.approx(one.std() / np.sqrt(2), rel=0.05)
