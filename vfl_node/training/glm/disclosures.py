"""What each party learns from a regression under encryption, with a job's numbers, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from vfl_node.job import Evaluate, Parties
from vfl_node.ledger import Disclosure
from vfl_node.training.class_weight import BALANCED
from vfl_node.training.glm.blind_loss import PRODUCTS, SQUARES, loss_tensor
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.scales import Scales


@dataclass(frozen=True)
class Numbers:
    """How much was exchanged.

    Attributes:
        rows: shared rows of an iteration, dummies included; None at a coordinator, which does not know.
        rounds: iterations.
        features: party → columns of its side, where known.
        held_out: shared rows of the evaluation; None at a coordinator.
        returned_bits: sender → bits of its decrypted values that it got back, repeated answers included; only for senders for
            which this party counted them.
    """

    rows: int | None
    rounds: int
    features: dict[str, int]
    held_out: int | None
    returned_bits: Mapping[str, int] = field(default_factory=dict)


def learns(
    parties: Parties, train: GeneralisedLinear, evaluate: Evaluate, numbers: Numbers
) -> dict[str, tuple[Disclosure, ...]]:
    """Party → what it learnt, as far as a party with these ``numbers`` can know."""
    disclosures = {parties.active: _active_disclosures(parties, train, numbers)}
    disclosures |= {passive: _passive_disclosures(parties, passive, train, evaluate, numbers) for passive in parties.passive}
    if parties.coordinator:
        disclosures[parties.coordinator] = _coordinator_disclosures(parties, train, numbers)
    return disclosures


def _active_disclosures(parties: Parties, train: GeneralisedLinear, numbers: Numbers) -> tuple[Disclosure, ...]:
    disclosures = [_rounds(numbers)]
    for passive in parties.passive:
        disclosures += _sender_disclosures(passive, parties, train, numbers)
    if train.flow == "coordinator":
        labels = "targets" if train.task == "regression" else "labels"
        what = labels if train.labels == "passive" else "scores"
        disclosures.append(
            Disclosure(
                "gradient",
                _entries(parties.active, train, numbers),
                "its own gradient in each iteration, in clear: sums over its records in which "
                f"{' and '.join(parties.passive)}'s {what} stand",
            )
        )
    if train.labels == "active" and (train.flow != "coordinator" or train.tolerance > 0):
        disclosures.append(Disclosure("loss", numbers.rounds, "the loss of each iteration, over its own records"))
    for passive in parties.passive:
        if width := numbers.features.get(passive):
            disclosures.append(Disclosure("features", width, f"how many columns {passive} has"))
    return tuple(disclosures)


def _sender_disclosures(passive: str, parties: Parties, train: GeneralisedLinear, numbers: Numbers) -> Iterator[Disclosure]:
    """What the active party gets from one passive party."""
    if train.flow != "coordinator":
        width = numbers.features.get(passive)
        enough = f"{width} of them" if width else "as many of them as there are columns"
        yield Disclosure(
            "scores",
            _times(numbers),
            f"from {passive} its linear score of each shared row in each of {numbers.rounds} iterations, in clear: from "
            f"{enough} all of {passive}'s columns follow but for a linear map, which as many known rows give, and "
            "columns of 0 and 1 without any (see docs/explanations/privacy/index.md)",
        )
    elif train.labels == "active":
        beside = {
            None: "",
            SQUARES: " and their squares",
            PRODUCTS: ", and one number an iteration, its weights times its gradient,",
        }[loss_tensor(train, len(parties.passive))]
        text = f"from {passive} its scores{beside} under the coordinator's key"
        yield Disclosure("encrypted scores", _times(numbers), text)
    if train.flow == "two-party":
        yield _masked_gradient(passive, parties, train, numbers)
    if train.labels == "passive":
        text = f"from {passive} the residuals of the shared rows under the coordinator's key"
        yield Disclosure("residuals", _times(numbers), text)
    else:
        text = f"from {passive} its score of each row measured on, once, in clear"
        yield Disclosure("held-out scores", numbers.held_out, text)


def _passive_disclosures(
    parties: Parties, passive: str, train: GeneralisedLinear, evaluate: Evaluate, numbers: Numbers
) -> tuple[Disclosure, ...]:
    disclosures, active = [_rounds(numbers)], parties.active
    if train.labels == "active":
        key = "its key" if train.flow == "two-party" else "the coordinator's key"
        disclosures.append(
            Disclosure("residuals", _times(numbers), f"from {active} a residual of each shared row under {key}, 0 for a dummy")
        )
    else:
        squares = " and its square" if train.tolerance > 0 else ""
        disclosures.append(
            Disclosure(
                "encrypted weights",
                _times(numbers),
                f"from {active} whether each shared row counts, and its score{squares}, under the coordinator's key",
            )
        )
    width = numbers.features.get(passive)
    few = width is not None and numbers.rows is not None and numbers.rows < 20 * width
    warned = (
        "; there are fewer than 20 shared rows a column, and it tells more (see docs/explanations/privacy/index.md)"
        if few
        else ""
    )
    disclosures.append(
        Disclosure(
            "gradient",
            _entries(passive, train, numbers),
            f"its own gradient in each iteration, in clear: a linear image of {active}'s residuals{_mixture(parties, passive)}"
            f". Which rows are dummies shows in it a little{warned}; how many are genuine, roughly{_weight_words(train)}",
        )
    )
    if train.labels == "passive" and train.tolerance > 0:
        disclosures.append(Disclosure("loss", numbers.rounds, f"the loss of each iteration over {active}'s genuine rows"))
    if train.labels == "passive" and (theirs := numbers.features.get(active)):
        disclosures.append(Disclosure("features", theirs, f"how many columns {active} has"))
    if evaluate.share_with_passive:
        spread = "; from R² and an error in the target's unit follows how far the targets spread"
        text = f"from {active} the loss of each iteration and the metrics, as the job says"
        disclosures.append(Disclosure("figures", numbers.rounds, text + (spread if train.task == "regression" else "")))
    return tuple(disclosures)


def _mixture(parties: Parties, passive: str) -> str:
    """What residuals tell a passive party of the other ones."""
    others = [party for party in parties.passive if party != passive]
    return f", in which {' and '.join(others)}'s scores stand, too" if others else ""


def _weight_words(train: GeneralisedLinear) -> str:
    """What class weights tell."""
    if train.weights is None:
        return ""
    how = ", by how frequent it is among the labels," if train.weights == BALANCED else ""
    return f". Residuals are weighted by class{how} (train.class_weight)"


def _coordinator_disclosures(parties: Parties, train: GeneralisedLinear, numbers: Numbers) -> tuple[Disclosure, ...]:
    disclosures = [_rounds(numbers), *(_masked_gradient(passive, parties, train, numbers) for passive in parties.passive)]
    if train.flow == "coordinator":
        disclosures.append(_masked_gradient(parties.active, parties, train, numbers))
        if train.tolerance > 0:
            labelled = parties.active if train.labels == "active" else parties.pair["passive"]
            disclosures.append(Disclosure("masked loss", numbers.rounds, f"from {labelled} the loss, masked: noise"))
    return tuple(disclosures)


def _masked_gradient(sender: str, parties: Parties, train: GeneralisedLinear, numbers: Numbers) -> Disclosure:
    how = (
        "masked by noise 64 bits wider than they are"
        if train.mask == "additive"
        else "each times a secret factor: an entry that is 0 shows, and factoring a product leaves few values for another"
    )
    entries, bits = _entries(sender, train, numbers), Scales.from_config(train, len(parties.passive)).returned_bits
    total = numbers.returned_bits.get(sender, bits * (entries or 0))
    amount = f"{bits} bits an entry" + (f", {total} in all" if total else "")
    return Disclosure(
        "masked gradient",
        entries,
        f"from {sender} the entries of its gradients, {how}. It cannot tell them from other values that {sender} might have "
        f"had decrypted instead, such as residuals; of those it would have told {sender} {amount}",
    )


def _rounds(numbers: Numbers) -> Disclosure:
    rows = "" if numbers.rows is None else f" over {numbers.rows} shared rows, dummies included"
    return Disclosure("rounds", numbers.rounds, f"that training took {numbers.rounds} iterations{rows}")


def _entries(party: str, train: GeneralisedLinear, numbers: Numbers) -> int | None:
    """Gradient entries of ``party`` in all iterations."""
    width = numbers.features.get(party)
    return None if width is None else width * train.outputs * numbers.rounds


def _times(numbers: Numbers) -> int | None:
    return None if numbers.rows is None else numbers.rows * numbers.rounds
