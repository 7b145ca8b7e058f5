"""Encryption with noise that can be computed in advance.

A ciphertext of m is (1 + m·n)·ρ mod n². The noise ρ, of any kind, is an n-th power. It takes
nearly all of the time, but does not depend on m: it can be computed while the node does
something else.

* For most ciphertexts ρ = h_s^α, where h is a random number of the *encryptor's own*, h_s = h^n mod
  n², and α is a random number of ⌈|n|/2⌉ bits. Without the key's factors such noise cannot be
  distinguished from uniform noise, if the composite residuosity and quadratic residuosity assumptions
  hold (for exponents of half the modulus's length: if factoring is hard). There are two deviations from Damgård,
  Jurik and Nielsen, where h is a square (or minus a square) published with the key:

  - If the owner of the key chose h, it could choose one of small order. Then it could see, for each ciphertext that is only
    rerandomised, where it came from. So the encryptor chooses h.
  - Anyone can compute the Jacobi symbol of a ciphertext, and a power of a square does not change it.
    A party that sent a ciphertext of symbol −1 would recognise a result that was made from it with an odd factor,
    and so distinguish genuine rows from dummies. So h has the symbol −1, and noise has either symbol with probability ½.

  Short exponents rely on one more assumption: that powers of h with short exponents cannot be distinguished
  from others. The best known attack, Pollard's kangaroo, takes the square root of the number of
  exponents. They have four bits for each bit of the modulus's strength: 448 for n of 2048 bits (strength
  112), 512 for 3072 (128) and 608 for 4096 (152).
* :meth:`Encryptor.blind` uses ρ = r^n with r uniform in Z_n*. Its result is uniform among the
  ciphertexts of its number, whatever the receiver can compute. It costs twenty times more, and is
  for the few ciphertexts that are sent to the owner of the key.

Sources: Paillier 1999; Damgård, Jurik, Nielsen, "A generalization of Paillier's public-key system
with applications to electronic voting", 2010, section 4.2; Goldreich, Rosen, "On the security of
modular exponentiation with application to the construction of pseudorandom generators", 2003
(exponents of half the length); FIPS 140-2 IG 7.5 (strengths).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import index
from typing import TYPE_CHECKING

import gmpy2
from gmpy2 import mpz

from vfl_node.crypto.kernels import kernel
from vfl_node.crypto.paillier.fixed_base import Comb, Moduli, choose_comb, powers
from vfl_node.crypto.paillier.keys import Ciphertexts, PrivateKey, PublicKey, integers
from vfl_node.engines.contract import Engine, block_size

if TYPE_CHECKING:  # it imports torch, which worker processes do not need
    from vfl_node.crypto.randomness import Randomness

_SHORT_EXPONENTS = ((2048, 448), (3072, 512), (4096, 608))  # modulus up to, bits
_LEAST, _MOST = 64, 128  # encryptions of a block: 5 to 50 ms of work at 2048 bits, up to half a second at 4096
_MOST_BLIND = 8
_MULTIPLE = 32  # so that 2^32·n ± n/2 fill the same number of 64-bit words


class Encryptor:
    """Encrypts under one key, with randomness of this party.

    The same randomness, label and index give the same noise, with any workers, prepared or
    not. A label can be used once: noise used for two numbers would reveal their difference.

    Cost, in multiplications mod n² (4 µs at 2048 bits, 7 at 3072, 11.5 at 4096): about 100 per number at 2048
    bits and 45 with short exponents, plus those for the tables, as far as these save time; one and a half with
    prepared noise. A process keeps up to 90 MiB of tables.

    Args:
        public: the key, checked.
        randomness: this party's; its stream is not consumed.
        engine: computes the noise.
        short_exponents: see above.
        private: the same key's primes, if this party owns it: 1.5 times faster, and the same bytes.

    Raises:
        ValueError: the private key is not that of the public one.
    """

    def __init__(
        self,
        public: PublicKey,
        randomness: Randomness,
        engine: Engine,
        *,
        short_exponents: bool = False,
        private: PrivateKey | None = None,
    ) -> None:
        if private is not None and private.public != public:
            raise ValueError("the private key belongs to another public key")
        self.public = public
        self._randomness = randomness
        self._engine = engine
        stream = randomness.derive("noise base")
        while gmpy2.jacobi(h := mpz(stream.draw_below(public.n)), public.n) != -1:
            pass
        self._base = gmpy2.powmod(h, public.n, public.square)  # h_s
        self._moduli: Moduli = (mpz(private.p) ** 2, mpz(private.q) ** 2) if private else (public.square,)
        self._exponent_bytes = (_exponent_bits(public.bits, short=short_exponents) + 7) // 8
        self._prepared: dict[str, tuple[int, Iterator[bytes]]] = {}
        self._used: set[str] = set()
        self._drawn = 0

    def prepare(self, label: str, count: int) -> None:
        """Start computing the noise of ``count`` ciphertexts in the background; 2·bits/8 bytes each.

        Raises:
            RuntimeError: the label was used before.
        """
        self._prepared[label] = count, self._draw(label, count, background=True)

    def encrypt(self, values: Sequence[int], label: str) -> Ciphertexts:
        """Encrypt signed integers, |v| < n/2, with the noise prepared under ``label`` or drawn now.

        The same multiplications, of numbers of the same lengths, are done for every value: v is
        replaced by v + 2^32·n, which equals v modulo n and has the length of 2^32·n, whether v is positive, negative or 0.
        With v itself, an encryption of 0 would take half the time.

        Args:
            values: any integers in range, numpy's included.
            label: a name for these ciphertexts, unique among all that this randomness ever makes.

        Raises:
            TypeError: a value is not an integer.
            ValueError: a value is too large for the key, or noise was prepared for another count.
            RuntimeError: the label was used before.
        """
        n = mpz(self.public.n)
        numbers = [mpz(index(value)) for value in values]
        if any(2 * abs(number) >= n for number in numbers):
            raise ValueError(f"a number is too large for a Paillier key of {self.public.bits} bits")
        zero = n << _MULTIPLE
        return self._multiply([(number + zero) * n + 1 for number in numbers], self._noise(label, len(numbers)))

    def rerandomise(self, ciphertexts: Ciphertexts, label: str) -> Ciphertexts:
        """Other ciphertexts of the same numbers; without the private key they cannot be linked.

        Args:
            ciphertexts: uint8[count, width], checked.
            label: as for :meth:`encrypt`; noise prepared under it is used.

        Raises:
            ValueError: noise was prepared for another count.
            RuntimeError: the label was used before.
        """
        return self._multiply(self.public.integers(ciphertexts), self._noise(label, len(ciphertexts)))

    def blind(self, ciphertexts: Ciphertexts, label: str) -> Ciphertexts:
        """Uniform ciphertexts of the same numbers: even the owner of the key learns nothing but the numbers.

        This holds for every key that passed :func:`vfl_node.crypto.paillier.keys.verify`.

        Cost: one exponentiation mod n² for each: 8 ms at 2048 bits, 26 at 3072, 43 at 4096.

        Args:
            ciphertexts: uint8[count, width], checked.
            label: as for :meth:`encrypt`.

        Raises:
            RuntimeError: the label was used before.
        """
        stream = self._stream(label)
        units = [self._unit(stream) for _ in range(len(ciphertexts))]
        size = block_size(len(units), self._engine, kernel().lanes, _MOST_BLIND)
        blocks = (units[start : start + size] for start in range(0, len(units), size))
        return self._multiply(self.public.integers(ciphertexts), self._engine.map(_powers_of_n, blocks, self.public))

    def _noise(self, label: str, count: int) -> Iterator[bytes]:
        """The noise prepared under ``label``, or else new noise, in blocks of rows."""
        if label not in self._prepared:
            return self._draw(label, count)
        prepared, noise = self._prepared.pop(label)
        if prepared != count:
            raise ValueError(f"noise {label!r} was prepared for {prepared} ciphertexts, not for {count}")
        return noise

    def _draw(self, label: str, count: int, *, background: bool = False) -> Iterator[bytes]:
        exponents = self._stream(label).bytes(count * self._exponent_bytes)
        # The table is sized for all draws so far, in powers of two, so that it is rarely made again.
        self._drawn += count
        uses = 1 << (self._drawn // self._engine.workers).bit_length()
        comb = choose_comb(self._exponent_bytes, uses, self.public.width)
        size = block_size(count, self._engine, _LEAST, _MOST) * self._exponent_bytes
        blocks = (exponents[start : start + size] for start in range(0, len(exponents), size))
        key = NoiseKey(self._base, self._moduli, comb, self.public.width)
        return self._engine.map(_powers_of_base, blocks, key, background=background)

    def _stream(self, label: str) -> Randomness:
        if label in self._used:
            raise RuntimeError(f"noise {label!r} was drawn before")
        self._used.add(label)
        return self._randomness.derive(f"noise/{label}")

    def _unit(self, stream: Randomness) -> mpz:
        """Uniform in Z_n*."""
        while gmpy2.gcd(unit := mpz(stream.draw_below(self.public.n)), self.public.n) != 1:
            pass
        return unit

    def _multiply(self, numbers: Iterable[mpz], noise: Iterator[bytes]) -> Ciphertexts:
        factors = chain.from_iterable(integers(block, self.public.width) for block in noise)
        return self.public.rows(x * y % self.public.square for x, y in zip(numbers, factors, strict=True))


def _exponent_bits(bits: int, *, short: bool) -> int:
    half = (bits + 1) // 2
    return min([half, *(exponent for limit, exponent in _SHORT_EXPONENTS if bits <= limit)]) if short else half


@dataclass(frozen=True, repr=False)
class NoiseKey:
    """The key of :func:`_powers_of_base`; it may hold the squares of the private primes, and shows none.

    Attributes:
        base: h_s.
        moduli: n², or p² and q².
        comb: layout of the exponents.
        width: bytes a row.
    """

    base: mpz
    moduli: Moduli
    comb: Comb
    width: int


def _powers_of_base(key: NoiseKey, exponents: bytes) -> bytes:
    """In a worker: h_s^α for every exponent, as rows."""
    return b"".join(number.to_bytes(key.width, "big") for number in powers(key.base, key.moduli, key.comb, exponents))


def _powers_of_n(public: PublicKey, units: list[mpz]) -> bytes:
    """In a worker: r^n mod n² for every r, as rows. The exponent is public."""
    return public.rows(kernel().powers(units, mpz(public.n), public.square, secret=False)).tobytes()
