"""What a node counts with a partner over all jobs, because a partner could learn by comparing jobs; its owner allows so much.

What stands for it are digests and names of jobs, no identifier. What is counted once is free from then on, also where the
limit is lowered later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from vfl_node.errors import PolicyError
from vfl_node.settings.bounds import Bound, Limit, Use, count_recent, rates_of, total_of
from vfl_node.settings.refusals import tell_why

LOSS = "loss "
"""Before the number of an accepted loss among linkages and changes: what is drawn after it counts as drawn anew."""

ANY_SET = b"any set"
"""In place of a set where linkages on different terms are counted: noise of pairs that did not change is drawn once on each."""

OF_A_TABLE, OF_A_SET = "@", "#"
"""Before the name of a table, and the digest of a set, among trainings. Earlier versions wrote digests without a mark."""

BUDGETS = {
    "alignments": "inputs",
    "changes": "changes",
    "trainings": "trainings",
    "trainings_in_clear": "clear",
    "models_served": "models",
    "linkages": "linkages",
}
"""Budget of the policy → what is counted towards it."""


@dataclass(frozen=True)
class Counted:
    """One thing that is counted.

    Attributes:
        kind: what it is counted among.
        line: what stands for it there.
        limit: how many there may be. Bounds with a period are about all new ones of its kind, over whatever set or table.
        error: the text of a refusal, with ``{peer}``, ``{count}`` and ``{limit}`` in it.
        hint: of that, with ``{more}`` for the smallest limit that would allow it.
        what: of the job is not allowed, for peers.
        over: how the lines begin to which the same limit applies. So it does to all of one word, of before tables were counted
            apart.
        free: how many of these come before the first that counts.
        begins: whether it counts where nothing but losses has counted towards that limit yet; else its number is then 0.
        earlier: what stood for it in an earlier version.
        table: whose name the first of ``over`` has, if one has.
    """

    kind: str
    line: str
    limit: Limit
    error: str
    hint: str
    what: str = "alignment"
    over: tuple[str, ...] = ("",)
    free: int = 0
    begins: bool = True
    earlier: str = ""
    table: str = ""

    def spread_over(self, names: Sequence[str]) -> Counted:
        """The same under the first of ``names``, with what stands there under all of them: tables about the same records."""
        begins = [self.over[0].replace(self.table, name, 1) for name in names]
        return replace(self, line=begins[0] + self.line.removeprefix(self.over[0]), over=(*begins, *self.over[1:]))

    def number(self, lines: Mapping[str, str], peer: str, now: str, released: Collection[str] = ()) -> int:
        """Which one it is of those that count towards the same limit, from 1; 0: it does not count.

        Args:
            lines: of what was counted with ``peer`` before, and of what was set aside → since when.
            peer: a partner.
            now: the time.
            released: those of them that do not count any more, since their jobs have not begun to use them.

        Raises:
            PolicyError: it would be one too many (``E_BUDGET``).
        """
        before = [line for line in lines if line.startswith(self.over) or " " not in line]
        known = self._known.intersection(before)
        if known - set(released):
            return min(map(before.index, known)) + 1
        if not self.begins and all(line.startswith(LOSS) for line in before):
            return 0
        count = sum(line not in released for line in before) - self.free
        limit = total_of(self.limit)
        if limit is not None and count >= limit:
            raise PolicyError(
                self.error.format(peer=peer, count=count, limit=limit),
                code="E_BUDGET",
                hint=self.hint.format(more=count + 1),
                for_peer=tell_why("budget"),
            )
        self._check_rates({line: at for line, at in lines.items() if line not in released}, peer, now)
        return (min(map(before.index, known)) if known else len(before)) + 1

    def is_known(self, lines: Sequence[str]) -> bool:
        """Whether it is counted already."""
        return not self._known.isdisjoint(lines)

    def _check_rates(self, counting: Mapping[str, str], peer: str, now: str) -> None:
        """Raise PolicyError (``E_BUDGET``) if it would be one new one too many within a period."""
        if self.line.rpartition(" ")[2] in _list_new(counting):
            return
        uses = [count_new(rate, counting, now) for rate in rates_of(self.limit)]
        if full := [use for use in uses if use.left < 1]:
            use = max(full, key=lambda use: str(use.free))
            budget = next(name for name, kind in BUDGETS.items() if kind == self.kind)
            raise PolicyError(
                f"{peer}.budgets.{budget}: {use.used} of {use.most} per {use.per} are used; the next is free on {use.free}",
                code="E_BUDGET",
                hint=f"wait until then, or raise budgets.{budget} in the policy",
                for_peer=tell_why("budget"),
            )

    @property
    def _known(self) -> frozenset[str]:
        """It, and as it was written in an earlier version, or before tables were counted apart."""
        what = self.line.removeprefix(self.over[0])
        begins = (begin for begin in self.over if begin.endswith(" "))
        return frozenset(
            (self.line, self.line.rpartition(" ")[2], self.earlier or self.line, *(f"{begin}{what}" for begin in begins))
        )


def count_new(rate: Bound, counting: Mapping[str, str], now: str) -> Use:
    """How much of a bound with a period is used by lines of one kind that count → since when."""
    return count_recent(rate, _list_new(counting).values(), now)


def _list_new(counting: Mapping[str, str]) -> dict[str, str]:
    """What the lines of one kind stand for, whatever set or table it is over → since when; a linkage has several lines."""
    new: dict[str, str] = {}
    for line, at in counting.items():
        over, _, what = line.rpartition(" ")
        if over != ANY_SET.hex():
            new[what] = min(at, new.get(what, at))
    return new


def aligned_sets(digest: bytes, limit: Limit) -> Counted:
    """A pair of sets of ids, ours and the peer's, before any list of an alignment leaves.

    Sets that differ in one identifier tell by their sizes whether the other party has it: an alignment in which either set
    differs by one id from an earlier one is a differencing attack on that id.

    Args:
        digest: of both sets, of which the peer's is only claimed.
        limit: how many different pairs this node's owner allows.
    """
    return Counted(
        "inputs",
        digest.hex(),
        limit,
        "{count} different pairs of sets have been aligned with {peer}, and this node allows {limit} (budgets.alignments)",
        "align one of the earlier sets again, or raise budgets.alignments in the policy: "
        "from sets that differ in a few ids both parties may learn about those",
    )


def changed_sets(table: str, digest: bytes, limit: int | None, *, hides: bool = True) -> Counted:
    """A pair of sets for an alignment that hides how many ids are shared, or for any other one behind such an alignment.

    What hides it (the number of dummies, the obfuscated set) is drawn anew whenever either set changes, or the peer claims
    that its set has changed. Each draw over almost the same sets narrows the number down. A promise to hide it lapses when
    this party's set changes, by one record as by many: an alignment that hides nothing then tells it.

    Args:
        table: this party's, by its name in the settings: another record in it begins no new count, nor does another set of the
            peer. An accepted loss counts for every table.
        digest: of both sets.
        limit: how many changes of the first pair this node's owner allows.
        hides: whether this alignment hides it. If not, it counts only behind one that did.
    """
    over = f"{table}: "  # no name has a colon, so none is taken for a loss
    return Counted(
        "changes",
        over + digest.hex(),
        limit,
        f"sets have changed {{count}} times between alignments of table {table!r} with {{peer}}, of which at least one hid how "
        "many are shared, and this node allows {limit} changes (budgets.changes)",
        "align one of the earlier sets again. Where a table grows between jobs, each of them is a change: "
        "budgets.changes: {more} in the policy allows one more. Know that c changes leave about 2/(c + 2) of what dummies hide "
        "and of the records among which an obfuscated set hides the shared ones at most its share of the table, to the power "
        "of c; an alignment that hides nothing tells all (docs/explanations/alignment/apsi.md, An obfuscated set drawn again)",
        over=(over, LOSS),
        free=1,
        begins=hides,
        table=table,
    )


def telling_training(table: str, digest: bytes, job_id: str, limit: Limit) -> Counted:
    """A training with synthetic rows over a table of our own, before anything of it leaves; a job is counted once.

    It counts over the set of records, too (:func:`telling_training_of_set`): a table may have a second name.

    Synthetic rows are drawn anew with each alignment: they could only stay the same if the shared positions of the other
    party's records did, and these are blinded anew. Real rows stay the same, so a peer that compares trainings can tell
    synthetic rows from real ones. Trainings over one alignment have the same ones and count all the same: whether they have
    depends also on cells, strategy and scaling, and a refusal must not depend on cells.

    Args:
        table: its name in this node's settings: neither another record in it begins a new count, nor does another set of the
            peer.
        digest: of our own set.
        job_id: of the training.
        limit: how many of them this node's owner allows over one table.
    """
    return replace(_telling_training(f"{OF_A_TABLE}{table} ", f"table {table!r}", digest, job_id, limit), table=table)


def telling_training_of_set(digest: bytes, job_id: str, limit: Limit) -> Counted:
    """The same over our own set, under whatever name. Arguments as of :func:`telling_training`."""
    return _telling_training(f"{OF_A_SET}{digest.hex()} ", "the same records", digest, job_id, limit)


def _telling_training(over: str, words: str, digest: bytes, job_id: str, limit: Limit) -> Counted:
    """What earlier versions counted for a set goes on to count for every table and set: nobody knows which table it was of."""
    return Counted(
        "trainings",
        over + job_id,
        limit,
        f"there were {{count}} trainings with {{peer}} over {words} in which rows were made up for those that a party "
        "lacks, weights or sums opened without noise, or halves handed over, and this node allows {limit} (budgets.trainings)",
        "align by psi, where no row is made up; say train.epsilon, with which hidden training is bounded otherwise; leave out "
        "export, which hands halves over; or raise budgets.trainings in the policy: such rows are drawn anew with each "
        "alignment, first weights and the records held out in each training, and whoever compares trainings sees through them",
        "training",
        (over, *"0123456789abcdef"),
        earlier=f"{digest.hex()} {job_id}",
    )


def clear_training(table: str, digest: bytes, job_id: str, limit: Limit) -> tuple[Counted, Counted]:
    """A training that sends something in the clear that depends on a single row, over a table of our own and over its set.

    Embeddings and gradients of the same rows come anew in each training: their mean over many tells more of columns and labels
    than those of one. Arguments as of :func:`telling_training`.
    """

    def counted(over: str, words: str, table: str = "") -> Counted:
        return Counted(
            "clear",
            over + job_id,
            limit,
            f"there were {{count}} trainings with {{peer}} over {words} that sent embeddings, gradients or scores of its "
            "rows, and this node allows {limit} (budgets.trainings_in_clear)",
            "train hidden, or raise budgets.trainings_in_clear in the policy, {more} for this one: each training tells more of "
            "the columns and labels of the same rows",
            "training",
            (over,),
            table=table,
        )

    name, same = f"{OF_A_TABLE}{table} ", f"{OF_A_SET}{digest.hex()} "
    return counted(name, f"table {table!r}", table), counted(same, "the same records")


def served_model(table: str, model: str, limit: Limit) -> Counted:
    """A model that answers a partner, before anything of an answer leaves.

    Each model over a table gives the partner another equation for the columns of a record that it asks for. A table counts by
    its name: another record in it begins no new count.

    Args:
        table: its name in this node's settings.
        model: the job that trained the model.
        limit: how many of them this node's owner allows over one table.
    """
    over = f"{table} "
    return Counted(
        "models",
        over + model,
        limit,
        "{count} models over this table have answered {peer}, and this node allows {limit} (budgets.models_served)",
        "ask an earlier model, or raise budgets.models_served in the policy: each model gives another equation for the "
        "columns of a record, and from as many as it has columns they follow",
        "prediction",
        (over,),
        table=table,
    )


def linked_sets(records: bytes, linkage: bytes, limit: Limit) -> Counted:
    """A linkage over a set of records, before anything of it leaves.

    Noise on similarities is the same in every job on the same terms, and drawn anew on others. Another set of the peer asks
    for similarities of other pairs.

    Args:
        records: stand for the set, so that a peer cannot begin a new count by changing its own.
        linkage: stands for the other set and the terms.
        limit: how many of them this node's owner allows over one set.
    """
    over = f"{records.hex()} "
    return Counted(
        "linkages",
        over + linkage.hex(),
        total_of(limit) if records == ANY_SET else limit,
        "this node's records were linked with those of {peer} in {count} different ways (other terms, or another set), "
        "and this node allows {limit} (budgets.linkages)",
        "link the same sets on the terms of an earlier job, or raise budgets.linkages in the policy: noise is drawn anew on "
        "other terms, and the mean of several similarities of a pair tells its distance",
        "linkage",
        (over, LOSS),
    )
