"""Keys: as bytes and back, other ones in other rings, and never written by accident."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.crypto.lattice.phases import phase, secret_of
from tests.crypto.lattice.variants import SETS, compiled, key, randomness, ring, sets
from vfl_node.crypto.lattice.keys import PublicRingKey, SecretKey
from vfl_node.crypto.lattice.sizes import public_key_bytes

pytestmark = compiled


@sets
def test_a_public_key_is_a_small_encryption_of_nothing(name: str) -> None:
    owner = key(name)
    data = owner.public.to_bytes()
    assert len(data) == public_key_bytes(SETS[name])
    back = PublicRingKey.from_bytes(ring(name), data)
    np.testing.assert_array_equal(back.parts, owner.public.parts)
    assert back.to_bytes() == data
    assert max(map(abs, phase(owner, back.parts))) <= 21


def test_the_same_randomness_gives_other_keys_to_other_rings() -> None:
    """So that ciphertexts of two rings, whose moduli share primes, do not share a key."""
    secrets = [secret_of(SecretKey(ring(name), randomness("one"))) for name in sorted(SETS)]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        same = sum(x == y for x, y in zip(secrets[first], secrets[second], strict=True))
        assert abs(same - 8192 / 3) < 5 * np.sqrt(8192 * 2 / 9)


def test_a_secret_key_is_not_shown_or_pickled() -> None:
    assert repr(key("linear")) == "SecretKey(linear)"
    with pytest.raises(TypeError, match="not serialised"):
        pickle.dumps(key("linear"))
