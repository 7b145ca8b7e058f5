"""Integer sines are right, pinned, and their sums are the sigmoid."""

from __future__ import annotations

import numpy as np
import pytest

from vfl_node.crypto.shares import sines
from vfl_node.crypto.shares.sines import PERIOD, SIGMOID, VALID, sines_and_cosines, tables_digest


def test_the_tables_are_those_of_every_machine() -> None:
    assert tables_digest() == sines.TABLES_DIGEST


@pytest.mark.parametrize("multiple", [1, 2, 9, 17])
def test_sines_and_cosines(multiple: int) -> None:
    angles = np.random.default_rng(0).integers(0, 1 << sines.ANGLE_BITS, 5000).astype(np.uint64)
    exact = multiple * angles.astype(float) * 2 * np.pi / (1 << sines.ANGLE_BITS)
    for found, of in zip(sines_and_cosines(angles, multiple), (np.sin, np.cos), strict=True):
        assert np.abs(found - of(exact) * sines.ONE).max() < 2


@pytest.mark.parametrize(("terms", "reach", "fades", "error"), [(5, VALID / 2, 8, 0.012), (9, VALID, 16, 0.0021)])
def test_the_sigmoid(terms: int, reach: float, fades: float, error: float) -> None:
    x, series = np.linspace(-reach, reach, 4001), SIGMOID[terms]
    assert np.abs(series.values(x) + 0.5 - 1 / (1 + np.exp(-x))).max() < error
    weight = np.exp(-np.abs(x) / fades)
    design = np.sin(np.outer(x, series.multiples) * (2 * np.pi / PERIOD))
    fit = np.linalg.lstsq(design * weight[:, None], (1 / (1 + np.exp(-x)) - 0.5) * weight, rcond=None)[0]
    np.testing.assert_allclose(np.array(series.coefficients) / sines.ONE, fit, atol=1e-4)


def test_slopes_are_those_of_the_values() -> None:
    x = np.linspace(-VALID, VALID, 4001)
    numeric = np.gradient(SIGMOID[9].values(x), x)
    np.testing.assert_allclose(SIGMOID[9].slopes(x)[1:-1], numeric[1:-1], atol=1e-4)
