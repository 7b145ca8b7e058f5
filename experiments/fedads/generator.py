"""Made-up clicks on advertisements, with the columns of the public FedAds table and any share of positives.

==================  =======================  ========================  ===========================================
columns             what                     party                     tells of the label
==================  =======================  ========================  ===========================================
l_i_fea_1 to 3      item, its kind, price    label                     price
l_i_fea_4 to 6      shop, its rating, size   label                     rating
l_i_fea_7 to 10     counts of the item       label                     all
l_u_fea_1           the user                 label and non-label       only over many rows of the user
l_u_fea_2 to 4      age, city, level         label                     age and level
l_u_fea_5 and 6     counts of the user       label                     the first
f_u_fea_1 and 2     what the user browses    non-label                 both
f_uc_fea_1 and 2    user and advertisement   non-label                 both, and with the item's columns more
l_c_fea, f_c        hour, place on the page  non-label                 little
==================  =======================  ========================  ===========================================

The public table has 16 columns at the label party and 7 at the other, and the user is in both, so 22 in all. Every value is a
number that stands for an id or for one of 16 bins of equal frequency. A row's label follows from hidden properties of its user,
item and shop and of the moment, of which the columns are noisy bins; no column says the label by itself.

What is hidden of a user, an item or a shop is a hash of its number. So a block of rows needs nothing but its own number, and
any number of rows takes the memory of one block.

Source of the columns: README of FedAds (alibaba/Elastic-Federated-Learning-Solution, branch FedAds), section 2.2. What they
contain is made up: the public table has hashed values alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BLOCK = 65_536
"""Rows that are made at a time."""

BINS = 16

USER = "l_u_fea_1"

LABEL_PARTY = (*(f"l_i_fea_{k}" for k in range(1, 11)), *(f"l_u_fea_{k}" for k in range(1, 7)))
OTHER_PARTY = (USER, "f_u_fea_1", "f_u_fea_2", "f_uc_fea_1", "f_uc_fea_2", "l_c_fea", "f_c")
"""The columns of the party with labels, and of the other one."""

IDS = ("l_i_fea_1", "l_i_fea_2", "l_i_fea_4", USER, "l_u_fea_3", "f_c")
"""Columns whose numbers have no order."""

KINDS, CITIES, PLACES, HOURS, ITEMS_A_SHOP = 40, 30, 6, 24, 20

PILOT = 2**32 - 1
"""Number of the block from which the base rate is set; no table reaches it."""


@dataclass(frozen=True, eq=False)
class Clicks:
    """n rows.

    Attributes:
        columns: name → int64[n].
        labels: float32[n], 1: the item was bought.
    """

    columns: dict[str, Ints]
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Market:
    """Users, items and shops, and the rows that they give.

    Attributes:
        positives: expected share of rows with label 1, between 0 and 1. FedAds has .006.
        users: how many there are; those with small numbers come more often.
        items: likewise.
        seed: of everything.
    """

    positives: float = 0.006
    users: int = 4_000_000
    items: int = 1_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse shares that no table can have."""
        if not 0 < self.positives < 1:
            raise ValueError(f"a share of positives of {self.positives:g} is not between 0 and 1")

    def blocks(self, rows: int) -> Iterator[Clicks]:
        """The first ``rows`` rows, at most :data:`BLOCK` at a time. They do not depend on how many are asked for."""
        for number, start in enumerate(range(0, rows, BLOCK)):
            columns, score, chance = self._block(number)
            labels = (chance < _sigmoid(score + self._base)).astype(np.float32)
            some = slice(0, min(BLOCK, rows - start))
            yield Clicks({name: column[some] for name, column in columns.items()}, labels[some])

    def table(self, rows: int) -> Clicks:
        """The same rows in one piece."""
        parts = list(self.blocks(rows))
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
        return Clicks(columns, np.concatenate([part.labels for part in parts]))

    @cached_property
    def _base(self) -> float:
        """What is added to a score, so that the share of positives is as wanted (bisection)."""
        _, score, _ = self._block(PILOT)
        low, high = -40.0, 40.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if _sigmoid(score + middle).mean() < self.positives else (low, middle)
        return (low + high) / 2

    def _block(self, number: int) -> tuple[dict[str, Ints], Floats, Floats]:
        """Columns of a block, int64[BLOCK] each, the score of each row, and the chance that decides its label."""
        rng = np.random.default_rng([self.seed, number])
        user = (self.users * rng.random(BLOCK) ** 2).astype(np.int64)
        item = (self.items * rng.random(BLOCK) ** 2).astype(np.int64)
        shop = self._integers(item, "shop of an item", max(2, self.items // ITEMS_A_SHOP))
        hour, place = rng.integers(0, HOURS, BLOCK), rng.integers(0, PLACES, BLOCK)
        taste, browsing = (self._normal(user, label) for label in ("taste", "browsing"))
        appeal, trust = self._normal(item, "appeal"), self._normal(shop, "trust")
        urge = rng.normal(size=BLOCK)

        def seen(hidden: Floats, weight: float, ids: Ints | None, column: str) -> Ints:
            """Bins of something hidden, behind noise that stays with an id, or is new in each row."""
            noise = rng.normal(size=BLOCK) if ids is None else self._normal(ids, column)
            return _bins(weight * hidden + np.sqrt(1 - weight**2) * noise)

        columns = {
            "l_i_fea_1": item,
            "l_i_fea_2": self._integers(item, "kind", KINDS),
            "l_i_fea_3": seen(appeal, -0.5, item, "price"),
            "l_i_fea_4": shop,
            "l_i_fea_5": seen(trust, 0.8, shop, "rating"),
            "l_i_fea_6": seen(trust, 0.0, shop, "size"),
            "l_i_fea_7": seen(appeal, 0.4, item, "clicks"),
            "l_i_fea_8": seen(appeal, 0.8, item, "purchases"),
            "l_i_fea_9": seen(appeal, 0.6, item, "favourites"),
            "l_i_fea_10": seen(appeal, 0.6, item, "carts"),
            USER: user,
            "l_u_fea_2": seen(taste, 0.3, user, "age"),
            "l_u_fea_3": self._integers(user, "city", CITIES),
            "l_u_fea_4": seen(taste, 0.6, user, "level"),
            "l_u_fea_5": seen(taste, 0.85, user, "bought"),
            "l_u_fea_6": seen(taste, 0.0, None, "last"),
            "f_u_fea_1": seen(browsing, 0.9, user, "interest"),
            "f_u_fea_2": seen(browsing, 0.6, user, "visits"),
            "f_uc_fea_1": seen(urge, 0.9, None, "shown"),
            "f_uc_fea_2": seen(urge, -0.6, None, "since"),
            "l_c_fea": hour,
            "f_c": place,
        }
        score = 0.9 * taste + 0.7 * appeal + 0.5 * trust + 1.1 * browsing + 1.1 * urge
        score += 0.4 * taste * browsing + 0.4 * appeal * urge + 0.2 * np.sin(2 * np.pi * hour / HOURS) + 0.2 * (place == 0)
        return columns, score, rng.random(BLOCK)

    def _words(self, ids: Ints, label: str) -> NDArray[np.uint64]:
        """64 random bits for each id, the same wherever it comes up."""
        salt = np.frombuffer(label.encode().ljust(8 * -(-len(label) // 8), b"\0"), "<u8").astype(np.uint64)
        words = ids.astype(np.uint64)
        for part in (np.uint64(self.seed), *salt):
            words = _mixed(words + part)
        return words

    def _integers(self, ids: Ints, label: str, count: int) -> Ints:
        """One of ``count`` numbers for each id."""
        return (self._words(ids, label) % np.uint64(count)).astype(np.int64)

    def _normal(self, ids: Ints, label: str) -> Floats:
        """A standard normal number for each id (Box and Muller, of two halves of 64 bits)."""
        words = self._words(ids, label)
        radius = np.sqrt(-2 * np.log(((words >> np.uint64(32)).astype(np.float64) + 1) / 2.0**32))
        return radius * np.cos(2 * np.pi * (words & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2.0**32)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A step of splitmix64: equal words stay equal, others have nothing to do with each other."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _bins(values: Floats) -> Ints:
    """Which of :data:`BINS` equally frequent bins of a standard normal number."""
    return np.searchsorted(_edges(), values).astype(np.int64)


@cache
def _edges() -> Floats:
    return np.array([NormalDist().inv_cdf(k / BINS) for k in range(1, BINS)])


def _sigmoid(values: Floats) -> Floats:
    return 1 / (1 + np.exp(-values))
