"""Bytes of all messages are known without anything large, and are those of the specification."""

from __future__ import annotations

import subprocess
import sys

from vfl_node.crypto.lattice import sizes
from vfl_node.crypto.lattice.parameters import LINEAR, SLOTS
from vfl_node.crypto.lattice.sizes import Tiles


def test_nothing_large_is_imported() -> None:
    code = (
        "import sys; from vfl_node.crypto.lattice import flooding, parameters, sizes;"
        "print(*{'numpy', 'scipy', 'torch', 'cryptography', 'gmpy2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_sizes_of_a_usual_job() -> None:
    """100,000 rows of 165 columns: 25 bytes a number of whole tiles; an answer is 82 kB and 9 bytes a row or column."""
    tiles = Tiles(100_000, 165, 512)
    assert (tiles.blocks, tiles.across, tiles.block_rows(195), tiles.tile_width(10)) == (196, 11, 160, 5)
    assert sizes.matrix_bytes(tiles) == 196 * (32 + 11 * 8192 * 25)
    assert sizes.public_key_bytes(LINEAR) == 32 + 8192 * 25
    assert sizes.forward_bytes(tiles, 4096) == 8 * 81_920 + 4096 * 9
    assert sizes.forward_bytes(tiles, 4100, 3) == 3 * (9 * 81_920 + 4100 * 9)
    assert sizes.transposed_bytes(tiles, 2) == 2 * (11 * 81_920 + 165 * 9)
    assert sizes.terms_bytes(18, 4096) == 32 + 9 * SLOTS.polynomial_bytes
    assert sizes.terms_answer_bytes(4097) == 2 * 8192 * 15
    assert sizes.monomials_bytes() == 32 + 8192 * 150 // 8
    assert sizes.monomial_ciphertexts(20, 1024) == 3
    assert sizes.tally_bytes(1024) == 1024 * 9 + 81_920
