"""What hidden trainings over one table spend with a partner of what noise allows, and how much this node's owner allows.

Amounts are μ (:mod:`vfl_node.gdp`), which add up as the root of the sum of squares. What stands for a table is its name in the
owner's settings, and no digest of its records: one record more must not begin a new count. Tables about the same records
(:mod:`vfl_node.node.lineages`) count together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from vfl_node.errors import PolicyError
from vfl_node.gdp import compose, epsilon_of, mu_of
from vfl_node.settings.refusals import tell_why

TELLS = "whether one record is shared, or its label,"
"""What those who have all that was opened may still not tell well, where nothing more exact is known."""

SCALED = "-scaled"
"""At the end of :attr:`Expense.about`: single targets are not covered, as the table says how all are scaled."""

_SLACK = 1e-9  # relative, of an ε that was computed by way of μ


@dataclass(frozen=True)
class Spent:
    """What was spent over one table.

    Attributes:
        mu: of all jobs together.
        unbounded: so many of them opened something without a bound, which μ leaves out.
        about: what each μ is about, as :attr:`Expense.about`. Of one thing alone the sum says how well it is told.
        limit: ε that was allowed when it was spent; None: any, or not known here.
    """

    mu: float = 0.0
    unbounded: int = 0
    about: frozenset[str] = field(default=frozenset(), compare=False)
    limit: float | None = field(default=None, compare=False)

    @classmethod
    def from_expenses(cls, expenses: Sequence[Expense]) -> Spent:
        """What they come to."""
        about = frozenset(each.about for each in expenses if not each.unbounded)
        return cls(compose(each.mu for each in expenses), sum(1 for each in expenses if each.unbounded), about)

    @classmethod
    def largest(cls, each: Iterable[Spent]) -> Spent:
        """What was spent with the partner with whom most was spent."""
        every = list(each)
        about = frozenset[str]().union(*(spent.about for spent in every))
        limit = min((spent.limit for spent in every if spent.limit is not None), default=None)
        return cls(max(spent.mu for spent in every), max(spent.unbounded for spent in every), about, limit)


@dataclass(frozen=True)
class Expense:
    """What one job spends.

    Attributes:
        table: its name in the owner's settings.
        job_id: of the job. An attempt of the same job is the same expense.
        mu: of all that it opens with noise.
        unbounded: what kind of model it opens without a bound, as ``unbounded_models`` has it; empty: none.
        limit: ε that the owner allows; None: any.
        about: what μ is about: the alignment, which says which worlds are compared, and whether labels are covered.
        also: under which other names tables about the same records are counted.
    """

    table: str
    job_id: str
    mu: float
    unbounded: str = ""
    limit: float | None = field(default=None, compare=False)
    about: str = "-"
    also: tuple[str, ...] = field(default=(), compare=False)

    @property
    def line(self) -> str:
        """What stands for it in a :class:`Account`."""
        return f"{self.job_id} {self.table} {self.mu!r} {self.unbounded or '-'} {self.about}"

    def total_with(self, account: Account, peer: str) -> Spent:
        """What is spent over its table once it is counted. What is counted already is free.

        Raises:
            PolicyError: it would be more than the owner allows, or nobody knows what was spent (``E_BUDGET``).
        """
        counted = self.line in account.lines
        before = account.expenses(self.table, *self.also)
        spent = replace(Spent.from_expenses(before if self in before else [*before, self]), limit=self.limit)
        if counted or self.limit is None:
            return spent
        if account.losses:
            raise self._refusal(
                f"what this node had counted of trainings with {peer} was lost, so what they spent is not known, and "
                "budgets.epsilon bounds it",
                f"put the newest copy of state/partners/{peer} back; if there is none and a new count may begin: vfl-node "
                f"budget --forget {peer}",
            )
        if epsilon_of(spent.mu) > self.limit * (1 + _SLACK):
            already = epsilon_of(Spent.from_expenses(before).mu)
            raise self._refusal(
                f"trainings with {peer} over table {self.table!r} would have spent ε {epsilon_of(spent.mu):.2f} with this job, "
                f"{already:.2f} without it, and this node allows {self.limit:g} (budgets.epsilon)",
                f"vfl-node budget {peer} shows what fits: say a smaller train.epsilon and evaluate.epsilon, or raise "
                "budgets.epsilon in the policy; what was opened stays opened",
            )
        return spent

    @staticmethod
    def _refusal(message: str, hint: str) -> PolicyError:
        return PolicyError(message, code="E_BUDGET", hint=hint, for_peer=tell_why("budget"))


@dataclass(frozen=True)
class Account:
    """All expenses with one partner.

    Attributes:
        lines: of each, as :attr:`Expense.line`, and of each accepted loss of this memory, as :func:`loss_line`.
        forgotten: those of them that the owner counts no more.
    """

    lines: Sequence[str] = ()
    forgotten: Sequence[str] = ()

    @property
    def losses(self) -> int:
        """Accepted losses of what was counted, after which no new count was begun."""
        return sum(_is_loss(line) for line in self._counting())

    @property
    def tables(self) -> list[str]:
        """All tables over which anything was ever spent, by name."""
        return sorted({expense.table for expense in map(_read, self.lines) if expense})

    def expenses(self, *tables: str, forgotten: bool = False) -> list[Expense]:
        """Those over one table, or over several about the same records, that count or do not any more; without a limit."""
        lines = self.forgotten if forgotten else self._counting()
        return [expense for expense in map(_read, lines) if expense and expense.table in tables]

    def total(self, *tables: str, forgotten: bool = False) -> Spent:
        """What they come to."""
        return Spent.from_expenses(self.expenses(*tables, forgotten=forgotten))

    def remainder(self, limit: float, *tables: str) -> float:
        """μ that may still be spent over them under a limit of ε; 0 after a loss."""
        rest = mu_of(limit) ** 2 - self.total(*tables).mu ** 2
        return math.sqrt(rest) if rest > 0 and not self.losses else 0.0

    def _counting(self) -> Iterator[str]:
        gone = set(self.forgotten)
        return (line for line in self.lines if line not in gone)


def epsilon_text(epsilon: float) -> str:
    """An ε for people: 4.0, 0.5, 0.05."""
    return f"{epsilon:.1f}" if epsilon == 0 or epsilon >= 0.1 else f"{epsilon:.2g}"


def auc_text(auc: float) -> str:
    """A :func:`vfl_node.gdp.auc_bound` for people, rounded up, as it is a bound: .57."""
    return f"{math.ceil(auc * 100 - _SLACK) / 100:.2f}".removeprefix("0")


def loss_line(entries: int, link: str = "") -> str:
    """What stands for an accepted loss of what was counted: with what the peer has seen, how many entries and their digest."""
    return f"loss {entries}-{link[:16]}" if link else f"loss {entries}"


def _is_loss(line: str) -> bool:
    return line.count(" ") == 1


def _read(line: str) -> Expense | None:
    """An expense of its line; None of a loss."""
    if _is_loss(line):
        return None
    job_id, table, mu, unbounded, about = line.split(" ")
    return Expense(table, job_id, float(mu), "" if unbounded == "-" else unbounded, about=about)
