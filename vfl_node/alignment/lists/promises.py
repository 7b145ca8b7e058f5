"""Promises to a partner: what one job hid of a set stays hidden in every later job over the same records, 0 included.

A job says how many records take part, how announced sizes are padded, and by how many dummies the size of the intersection
is hidden; and a peer may submit jobs. After a job with ``dummies: 100`` a job with ``dummies: 0`` would reveal all that the
first one hid, and one with 50 half of it. So would another protocol, or another part of the records. Therefore the first job
over a set of records decides for all later ones with this partner, whatever form of identifier they name. This is checked
before anything of the set leaves. A set that changes, by one record as by many, is another set, for which the promise has
lapsed: the change is counted (``budgets.alignments``), and once the number of shared records was hidden also among
``budgets.changes`` over this table, whether the later job hides it or not.
"""

from __future__ import annotations

import hashlib
import json

from vfl_node.alignment.sizes import pads
from vfl_node.errors import PolicyError
from vfl_node.job import Align
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.roles import OTHER_ROLE, Role
from vfl_node.session.memory import Memory


def hides_intersection(terms: Align, role: Role) -> bool:
    """Whether a party with this role hides from its peer how many records are shared."""
    return terms.dummies > 0 or OTHER_ROLE[role] in terms.spec.intersection_hidden_from


def hold_part(memory: Memory, identity: bytes, records: int) -> None:
    """Keep to one part of a set. Parts of other sizes lie within each other, and their difference would reveal few records.

    Args:
        memory: of the partner.
        identity: of the set.
        records: how many of its records are to take part.

    Raises:
        PolicyError: an earlier job had another part (``E_PROMISE``).
    """
    first = memory.keep(_name("part", identity), b"%d" % records).decode()
    if first != str(records):
        raise _promise_error(
            f"{first} records of this table took part in an earlier job with this partner, and {records} would in this one",
            f"set align.at_most: {first}",
        )


def part_seed(memory: Memory, identity: bytes) -> bytes:
    """The secret by which a part of a set is chosen: always the same, also in jobs with further partners. 32 bytes.

    Each partner's memory has the seed of the first job with it, so that a set with one record more has almost the same part. A
    job with several partners takes the seed that one of them has.

    Args:
        memory: of the partner, or of all of them.
        identity: of the set.

    Raises:
        PolicyError: the partners of this job had different parts in earlier jobs (``E_PROMISE``).
    """
    first = memory.keep("part-seed", memory.secret.derive("down-sampling").bytes(32))
    memory.keep("part-seed", first)  # with partners that have none
    name = _name("part-seed", identity)
    seed = memory.keep(name, first)
    if memory.keep(name, seed) != seed:
        raise _promise_error(
            "the partners of this job had different parts of this table in earlier jobs, and would compare them",
            "align all records of it (no align.at_most), if those jobs allow it, or with fewer partners",
        )
    return seed


def hold(memory: Memory, identity: bytes, terms: Align, role: Role, *, binding: bool) -> None:
    """Keep to what the first jobs over a set promised a partner, 0 included.

    Args:
        memory: of the partner.
        identity: of the set.
        terms: of this job.
        role: of this party.
        binding: whether this job's own promises count from here on: its sizes are about to leave.

    Raises:
        PolicyError: this job would reveal what an earlier one hid, or hide what it revealed (``E_PROMISE``).
    """
    hides, padded = hides_intersection(terms, role), pads(terms, role)
    fields: dict[str, object] = {"padding": terms.padding}
    if "dummies" in terms.spec.options:
        fields["dummies"] = terms.dummies
    if hides:  # what hides it is drawn for the sets, and a mark is held to its list in one form and group
        fields |= {"id_form": terms.model_dump(mode="json")["id_form"], "group": terms.group}
    for field, value in fields.items():
        what, text = field.replace("_", "-"), json.dumps(value).encode()
        earlier = of_every_set = memory.recall(what)  # since an upgrade that does not know of which
        if earlier in (None, text):
            name = _name(what, identity)
            earlier = memory.keep(name, text) if binding else memory.recall(name)
        if earlier not in (None, text):
            raise _promise_error(
                f"an earlier job over the same records had align.{field}: {earlier.decode()}, and this one has {text.decode()}",
                f"set align.{field}: {earlier.decode()}; another one would tell what that job hid, or hide what it told",
                every_set=of_every_set is not None,
            )
    for what, now, did, protocols in (
        ("padded", padded, "padded how many records there are", _padding_protocols),
        ("hidden", hides, "hid how many records are shared", _hiding_protocols),
    ):
        if now and binding:
            memory.keep(_name(what, identity), b"")
        every_set = memory.recall(what) is not None
        if not now and (every_set or memory.recall(_name(what, identity)) is not None):
            raise _promise_error(
                f"an earlier job over the same records {did}; this one would tell",
                f"align by {protocols(role)}, as before",
                every_set=every_set,
            )


def _padding_protocols(role: Role) -> str:
    """Names of the protocols in which the party with this role pads its set."""
    return " or ".join(name for name, spec in ALIGNMENTS.usable() if role in spec.padded_roles and spec.allowed_by_default)


def _hiding_protocols(role: Role) -> str:
    """Names of the protocols by which the party with this role can hide how many records are shared."""
    specs = [spec for _, spec in ALIGNMENTS.usable()]
    by_dummies = [f"{spec.name} with dummies" for spec in specs if "dummies" in spec.options]
    return ", or ".join(by_dummies + [spec.name for spec in specs if OTHER_ROLE[role] in spec.intersection_hidden_from])


def _name(what: str, identity: bytes) -> str:
    return f"{what}-{hashlib.sha256(identity).hexdigest()[:40]}"


def _promise_error(message: str, hint: str, *, every_set: bool = False) -> PolicyError:
    remedy = f"{hint}. A table with other records is another set, and its change counts"
    if every_set:
        remedy = f"{hint}. It was of an earlier vfl-node, which did not keep over which records, so this holds for all tables"
    return PolicyError(
        message,
        code="E_PROMISE",
        hint=remedy,
        for_peer="an earlier job over the same records was agreed otherwise",
    )
