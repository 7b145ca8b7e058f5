"""The own estimate gives what is published of others' parameters, and the sets have 128 bits."""

from __future__ import annotations

import math

import pytest

from experiments.lattice_security import TERNARY_DEVIATION, Problem, dual, main, primal
from vfl_node.crypto.lattice.parameters import ERROR_VARIANCE, LINEAR, SLOTS, N, Parameters


@pytest.mark.parametrize(("rank", "deviation", "published"), [(2, 1.5, 118), (3, 1.0, 182), (4, 1.0, 256)])
def test_kyber_has_its_published_bits(rank: int, deviation: float, published: int) -> None:
    """Core-SVP bits of the third round's specification: 118, 182 and 256."""
    problem = Problem(256 * rank, math.log2(3329), math.sqrt(deviation), math.sqrt(deviation))
    assert primal(problem).bits() == pytest.approx(published, abs=3)


@pytest.mark.parametrize("chosen", [LINEAR, SLOTS], ids=lambda each: each.name)
def test_the_sets_have_128_bits_against_classical_computers(chosen: Parameters) -> None:
    problem = Problem(N, math.log2(chosen.q), TERNARY_DEVIATION, math.sqrt(ERROR_VARIANCE))
    assert primal(problem).bits(calls=True) > 128
    assert dual(problem).bits(calls=True) > 128


def test_the_standard_has_the_same_at_its_limit() -> None:
    """Of 2018: log2 q = 218 has 128 bits and little more, by its count of calls."""
    problem = Problem(N, 218, TERNARY_DEVIATION, 3.19)
    assert primal(problem).bits(calls=True) == pytest.approx(128, abs=4)
    assert dual(problem).bits(calls=True) == pytest.approx(128, abs=6)


def test_a_modulus_beyond_the_tables_has_less() -> None:
    problem = Problem(N, 250, TERNARY_DEVIATION, math.sqrt(ERROR_VARIANCE))
    assert primal(problem).bits(calls=True) < 128


def test_the_script_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    printed = capsys.readouterr().out
    assert "own estimate" in printed
    assert "quantum: log2 q <= 161; linear: 200, not met, slots: 150, met" in printed
