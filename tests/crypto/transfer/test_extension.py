"""Random transfers: keys agree, messages repeat themselves, and both attacks work as soon as a protection is left out."""

from __future__ import annotations

import hmac
import pickle
from hashlib import sha256

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.crypto.transfer.parties import bits, bound, ones, parties, seeds
from vfl_node.crypto.transfer import extension
from vfl_node.crypto.transfer.blocks import transpose
from vfl_node.crypto.transfer.sizes import SALT_BYTES, message_bytes

COUNT = 1 << 13


@pytest.mark.parametrize("count", [0, 1, 7, 8, 64, 65, 1000, 2**18 + 3])
def test_the_receiver_has_the_key_of_its_choice_alone(count: int) -> None:
    receiver, sender = parties()
    choices = bits("choices", count)
    message, keys = receiver.extend("place", count, choices)
    zero, one = sender.extend("place", count, message)
    assert len(message) == message_bytes(count)
    assert keys.dtype == zero.dtype == one.dtype == np.uint64
    assert keys.shape == zero.shape == one.shape == (count,)
    assert (np.where(choices, one, zero) == keys).all()
    assert (np.where(choices, zero, one) != keys).all()  # one of 2¹⁸ is equal with a probability of 2⁻⁴⁶
    assert len(np.unique(np.concatenate([zero, one]))) == 2 * count  # 2¹⁹ words: equal ones with a probability of 2⁻²⁷


def stream(seed: np.ndarray, label: bytes, size: int) -> list[int]:
    """Bits of G, the lowest of each byte first."""
    key = hmac.digest(seed.tobytes(), b"vfl-node transfer stream" + label, "sha256")
    drawn = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))
    return [byte >> bit & 1 for byte in drawn for bit in range(8)]


def test_message_and_keys_are_what_the_papers_say() -> None:
    """A bit at a time, with Python's integers."""
    (pairs, chosen), (receiver, sender), count = seeds(), parties(), 21
    choices = bits("choices", count)
    message, keys = receiver.extend("plaçe", count, choices)
    zero, one = sender.extend("plaçe", count, message)
    label = message[:16] + count.to_bytes(8, "big") + "plaçe".encode()
    t, u = [], []
    for row in range(128):
        first, second = stream(pairs.zero[row], label, 3), stream(pairs.one[row], label, 3)
        sent = message[16 + 3 * row : 19 + 3 * row]
        u.append([byte >> bit & 1 for byte in sent for bit in range(8)])
        assert u[row][:count] == [a ^ b ^ int(r) for a, b, r in zip(first, second, choices, strict=False)]
        t.append(first)
    q = [
        [a ^ (b & s) for a, b in zip(stream(chosen.seeds[row], label, 3), u[row], strict=True)]
        for row, s in enumerate(chosen.choices.tolist())
    ]
    offset = sum(s << row for row, s in enumerate(chosen.choices.tolist()))
    permutation = Cipher(algorithms.AES(sha256(b"vfl-node transfer hash" + label).digest()[:16]), modes.ECB())
    word = (1 << 64) - 1

    def hashed(block: int, number: int) -> int:
        point = ((block ^ block >> 64) & word ^ number) | (block & word) << 64
        permuted = permutation.encryptor().update(point.to_bytes(16, "little"))
        return (int.from_bytes(permuted, "little") ^ point) & word

    for number in range(count):
        column, mine = (sum(rows[row][number] << row for row in range(128)) for rows in (q, t))
        assert column == mine ^ offset * int(choices[number])
        assert int(keys[number]) == hashed(mine, number)
        assert int(zero[number]) == hashed(column, number)
        assert int(one[number]) == hashed(column ^ offset, number)


@pytest.mark.parametrize("choice", [0, 1])
def test_keys_are_fair_bits_and_so_is_what_the_other_key_differs_by(choice: int) -> None:
    """Even where all choices are equal."""
    receiver, sender = parties()
    message, keys = receiver.extend("equal choices", COUNT, np.full(COUNT, choice, np.uint8))
    zero, one = sender.extend("equal choices", COUNT, message)
    for words in (keys, zero, one, zero ^ one, one - zero):
        each = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1)
        assert (np.abs(each.mean(axis=0) - 0.5) < bound(COUNT, 64 * 5)).all()
    assert abs(ones(np.frombuffer(message, np.uint8)) / (8 * len(message)) - 0.5) < bound(8 * len(message), 1)


def test_a_place_gives_the_same_bytes_whenever_and_by_whomever_it_is_asked() -> None:
    receiver, sender = parties()
    choices = bits("choices", 1000)
    message, keys = receiver.extend("a", 1000, choices)
    zero, one = sender.extend("a", 1000, message)
    receiver.extend("b", 77, choices[:77])
    restarted, peer = parties()
    again, same = restarted.extend("a", 1000, choices.astype(bool))
    assert again == message
    assert (same == keys).all()
    assert all((left == right).all() for left, right in zip(peer.extend("a", 1000, message), (zero, one), strict=True))


def test_other_places_counts_and_jobs_are_independent() -> None:
    choices = bits("choices", 4096)
    message, keys = parties()[0].extend("a", 4096, choices)
    for name, place, count in (("job", "b", 4096), ("job", "a", 4095), ("other job", "a", 4096), ("job", "", 4096)):
        other, others = parties(name)[0].extend(place, count, choices[:count])
        assert other[:SALT_BYTES] != message[:SALT_BYTES]
        rows = [np.frombuffer(each, np.uint8)[SALT_BYTES:].reshape(128, 512) for each in (message, other)]
        seen = ones(rows[0][:, :511] ^ rows[1][:, :511]) / (128 * 511 * 8)
        assert abs(seen - 0.5) < bound(128 * 511 * 8, 4)
        assert not np.isin(others, keys).any()  # 2²⁴ pairs of words, 2⁻⁴⁰


def test_other_choices_at_one_place_are_hidden_by_other_streams() -> None:
    receiver, sender = parties()
    first, second = bits("first", COUNT), bits("second", COUNT)
    rows = []
    for choices in (first, second):
        message, keys = receiver.extend("place", COUNT, choices)
        rows.append(np.frombuffer(message, np.uint8)[SALT_BYTES:].reshape(128, -1))
        assert (np.where(choices, *sender.extend("place", COUNT, message)[::-1]) == keys).all()
    sums = rows[0] ^ rows[1]
    moved = np.packbits(first ^ second, bitorder="little")
    assert (np.abs([ones(row ^ moved) / COUNT - 0.5 for row in sums]) < bound(COUNT, 128)).all()

    # Control: under the streams of one salt, each row of the sum is the sum of the choices.
    pairs, label = seeds()[0], bytes(SALT_BYTES)
    drawn = [
        extension._draw(extension._streams(pairs.zero, label), COUNT // 8)
        ^ extension._draw(extension._streams(pairs.one, label), COUNT // 8)
        ^ np.packbits(choices, bitorder="little")
        for choices in (first, second)
    ]
    assert ((drawn[0] ^ drawn[1]) == moved).all()


@pytest.mark.parametrize("piece", [64, 192, 1 << 12])
def test_nothing_depends_on_the_size_of_a_piece(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, sender = parties()
    count = 4099
    choices = bits("choices", count)
    message, keys = receiver.extend("a", count, choices)
    both = sender.extend("a", count, message)
    monkeypatch.setattr(extension, "PIECE", piece)
    other, others = receiver.extend("a", count, choices)
    assert other == message
    assert (others == keys).all()
    assert all((left == right).all() for left, right in zip(sender.extend("a", count, message), both, strict=True))


def read_choices(message: bytes, label: bytes) -> np.ndarray:
    """What the sender finds of each row without the one stream that it can compute: bool[128, count]."""
    chosen = seeds()[1]
    streams = extension._draw(extension._streams(chosen.seeds, label), COUNT // 8)
    rows = np.frombuffer(message, np.uint8)[SALT_BYTES:].reshape(128, -1) ^ streams
    return np.unpackbits(rows, axis=1, bitorder="little").astype(bool)


def test_messages_show_no_choice_and_do_so_without_the_second_stream() -> None:
    """Against each row, and against the majority of all rows."""
    pairs, chosen = seeds()
    choices = bits("choices", COUNT)
    message, _ = parties()[0].extend("place", COUNT, choices)
    label = message[:SALT_BYTES] + extension._label_place("place", COUNT)
    found = read_choices(message, label)
    majority = found.sum(axis=0) > 64
    for guess in (*found, majority):
        assert abs((guess == choices).mean() - 0.5) < bound(COUNT, 129)

    # Control: u = G(k⁰) ⊕ r. A row shows all choices to a sender that has k⁰ of it.
    first = extension._draw(extension._streams(pairs.zero, label), COUNT // 8)
    bare = (first ^ np.packbits(choices, bitorder="little")).tobytes()
    found = read_choices(bytes(SALT_BYTES) + bare, label)
    assert (found[chosen.choices == 0] == choices).all()
    assert (np.abs((found[chosen.choices == 1] == choices).mean(axis=1) - 0.5) < bound(COUNT, 128)).all()


def predicted(mine: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The receiver's guess at its other keys, from the first of them: that the difference is the same everywhere."""
    return mine[1:] ^ (mine[0] ^ other[0])


def test_one_other_key_shows_no_second_and_does_so_without_the_hash() -> None:
    receiver, sender = parties()
    choices = bits("choices", COUNT)
    message, keys = receiver.extend("place", COUNT, choices)
    zero, one = sender.extend("place", COUNT, message)
    others = np.where(choices, zero, one)
    wrong = ones(predicted(keys, others) ^ others[1:]) / (64 * (COUNT - 1))
    assert abs(wrong - 0.5) < bound(64 * (COUNT - 1), 1)

    # Control: with columns for keys, t and t ⊕ s, one known pair gives s and so all others.
    pairs, chosen = seeds()
    label = message[:SALT_BYTES] + extension._label_place("place", COUNT)
    columns = transpose(extension._draw(extension._streams(pairs.zero, label), COUNT // 8))
    u = np.frombuffer(message, np.uint8)[SALT_BYTES:].reshape(128, -1)
    q = transpose(extension._draw(extension._streams(chosen.seeds, label), COUNT // 8) ^ (u * chosen.choices[:, None]))
    s = np.packbits(chosen.choices, bitorder="little").view("<u8")
    assert (np.where(choices[:, None], q ^ s, q) == columns).all()
    unchosen = np.where(choices[:, None], q, q ^ s)
    assert (predicted(columns, unchosen) == unchosen[1:]).all()


def test_messages_of_another_length_are_refused() -> None:
    receiver, sender = parties()
    message, _ = receiver.extend("a", 100, bits("choices", 100))
    for bad, count in ((message[:-1], 100), (message + b"\0", 100), (b"", 100), (message, 105), (message, 96), (b"", 0)):
        with pytest.raises(ValueError, match=f"a message for {count} transfers has"):
            sender.extend("a", count, bad)
    with pytest.raises(ValueError, match="-1 transfers"):
        sender.extend("a", -1, message)


def test_choices_of_another_kind_are_refused() -> None:
    receiver, _ = parties()
    for bad in (bits("c", 9), bits("c", 10).astype(np.uint64), bits("c", 10).reshape(2, 5)):
        with pytest.raises(ValueError, match="10 choices are"):
            receiver.extend("a", 10, bad)
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        receiver.extend("a", 10, np.full(10, 2, np.uint8))


def test_seeds_are_not_shown_and_not_serialised() -> None:
    for party in parties():
        assert repr(party).endswith("(secret)")
        with pytest.raises(TypeError, match="secret"):
            pickle.dumps(party)


def test_bytes_are_fixed_for_ever() -> None:
    """A restarted party, or one with other library versions, must repeat them."""
    receiver, sender = parties()
    message, keys = receiver.extend("a", 3, np.array([0, 1, 1], np.uint8))
    zero, one = sender.extend("a", 3, message)
    assert message[:20].hex() == "c226a0fcb95f948bd43a59ca0ed22052616c51e9"
    assert [format(int(key), "016x") for key in keys] == ["40a80c5823120a05", "3cef8f61d71faf49", "31520df3d836eecc"]
    assert format(int(zero[1]), "016x") == "1eb350b1808d3653"
    assert format(int(one[0]), "016x") == "7fb0ac373086e1ee"
