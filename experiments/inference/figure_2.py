"""Figure 2: attacks by epoch, and by the share of rows that the attacker knows, without a defence."""

from __future__ import annotations

from experiments.florist.figures import Curve, Panel, drawing
from experiments.inference.attacker import ADAPTIVE, REPLAY, STATIC
from experiments.inference.experiment import Expectation, Found, Plan, Work, cell, interval, mean, table, trial

TITLE = "Figure 2: attack by epoch and by the share of known rows, no defence, B = 128"

SEEDS = 3
DATA = ("adult", "location30")
ATTACKS = (STATIC, ADAPTIVE, REPLAY)
EPOCHS = {False: (1, 2, 3, 5, 8, 11, 14, 17, 20), True: (1, 3, 6)}
SHARES = {False: (0.005, 0.01, 0.02, 0.05, 0.1, 0.2), True: (0.02, 0.2)}
LOOKS = {False: (5, 12, 20), True: (3, 6)}
"""Epochs, of which the worst counts, by share."""

RISE = 0.02
"""The success with the most known rows is larger than with the fewest by so much."""

NAMES = {"adult": "adult, occupation: accuracy", "location30": "location30, 223 flags: mean AUC"}


def _trial_by_epoch(plan: Plan, data: str, seed: int) -> Work:
    return trial(plan.data(data), seed, epochs=EPOCHS[plan.small], attacks=ATTACKS)


def _trial_by_share(plan: Plan, data: str, seed: int) -> Work:
    return trial(plan.data(data), seed, shares=SHARES[plan.small], epochs=LOOKS[plan.small], attacks=ATTACKS)


def works(plan: Plan) -> list[Work]:
    """Two for each table and seed."""
    return [
        works(plan, data, seed) for data in DATA for works in (_trial_by_epoch, _trial_by_share) for seed in plan.few(SEEDS)
    ]


def _read_epoch(plan: Plan, found: Found, data: str, line: str, epoch: int) -> list[float]:
    outcomes = [found[_trial_by_epoch(plan, data, seed).name]["victims"]["victim"]["0.05"] for seed in plan.few(SEEDS)]
    return [
        outcome[line]["by epoch"][str(epoch)]["success"] if line in ATTACKS else outcome[line]["success"]
        for outcome in outcomes
    ]


def _read_share(plan: Plan, found: Found, data: str, line: str, share: float) -> list[float]:
    outcomes = [found[_trial_by_share(plan, data, seed).name]["victims"]["victim"] for seed in plan.few(SEEDS)]
    return [outcome[f"{share:g}"][line]["success"] for outcome in outcomes]


def page(plan: Plan, found: Found) -> list[str]:
    """The picture, and what it shows by share as a table."""
    lines = [f"![Attacks by epoch and by share of known rows]({PICTURE})", "", ABOUT_PICTURE, ""]
    for data in DATA:
        rows = [
            [line, *(cell(_read_share(plan, found, data, line, share)) for share in SHARES[plan.small])]
            for line in ("constant", "imputation", *ATTACKS)
        ]
        rows += [
            [f"{line} − {STATIC}", *(interval(_gap(plan, found, data, line, share)) for share in SHARES[plan.small])]
            for line in (ADAPTIVE, REPLAY)
        ]
        lines += [f"**{NAMES[data]}**", "", *table(["known", *(f"{share:.1%}" for share in SHARES[plan.small])], rows), ""]
    return [*lines, PAPER]


def _gap(plan: Plan, found: Found, data: str, line: str, share: float) -> list[float]:
    one, other = (_read_share(plan, found, data, name, share) for name in (line, STATIC))
    return [a - b for a, b in zip(one, other, strict=True)]


PICTURE = "inference-figure-2.svg"


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """Success by epoch above, by share below; a column for each table."""
    columns = []
    for data in DATA:
        epochs = [
            Curve(
                line, [(epoch, *_mean_and_spread(_read_epoch(plan, found, data, line, epoch))) for epoch in EPOCHS[plan.small]]
            )
            for line in ATTACKS
        ]
        shares = [
            Curve(
                line,
                [(100 * share, *_mean_and_spread(_read_share(plan, found, data, line, share))) for share in SHARES[plan.small]],
            )
            for line in ATTACKS
        ]
        epochs.append(_flat(found, plan, data, [float(epoch) for epoch in EPOCHS[plan.small]]))
        imputed = [
            (100 * share, *_mean_and_spread(_read_share(plan, found, data, "imputation", share)))
            for share in SHARES[plan.small]
        ]
        shares.append(Curve("imputation", imputed, baseline=True))
        columns.append([Panel(NAMES[data], "epoch, 5 % known", epochs), Panel(NAMES[data], "known rows, per cent", shares)])
    return {PICTURE: drawing(columns)}


def _flat(found: Found, plan: Plan, data: str, at: list[float]) -> Curve:
    level = mean(_read_epoch(plan, found, data, "imputation", EPOCHS[plan.small][0]))
    return Curve("imputation", [(x, level, 0.0) for x in at], baseline=True)


def _mean_and_spread(values: list[float]) -> tuple[float, float]:
    return mean(values), float(max(values) - min(values)) / 2


def check(plan: Plan, found: Found) -> list[Expectation]:
    """Success rises with the share of known rows; the gap between adaptive and static shrinks."""
    least, *_, most = SHARES[plan.small]
    expected = []
    for data in DATA:
        for line in (STATIC, ADAPTIVE):
            rise = mean(_read_share(plan, found, data, line, most)) - mean(_read_share(plan, found, data, line, least))
            expected.append(Expectation(f"`{data}`: success of {line} at α = {most:.1%} − at {least:.1%}", rise, RISE))
        gaps = [mean(_gap(plan, found, data, ADAPTIVE, share)) for share in (least, most)]
        what = f"`{data}`: size of adaptive − static-epoch at α = {least:.1%} − its size at {most:.1%}"
        expected.append(Expectation(what, abs(gaps[0]) - abs(gaps[1]), 0.0))
    return expected


ABOUT_PICTURE = """\
The upper panels have the success after each epoch, as an attack of its own (static-epoch) or of one decoder that goes on
(adaptive, replay). The lower ones have that of the worst of three epochs by the share of known rows. Whiskers up and down are
half of the way from the smallest to the largest of three seeds."""

PAPER = """\
The paper has this figure for Purchase100 and COCO-QA without numbers. Its text says: With less than 1 % of the rows known
recall is above .9 on Purchase100. Success rises with α. With a small α adaptive is better than static, and the gap shrinks as
α grows."""
