"""A policy decides by its own words and by nothing else, and what is loosened refuses no more."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfl_node.configuration.models import parse
from vfl_node.errors import DataError, PolicyError, UsageError
from vfl_node.execution.allowed import check_allowed
from vfl_node.job import Job
from vfl_node.settings.bounds import Bound
from vfl_node.settings.limits import Limits, Tighter, tightest
from vfl_node.settings.node import Settings
from vfl_node.settings.policy import PRESETS, SAYS_YES, Asked, Policy
from vfl_node.settings.policy_view import describe, digest_of, list_differences, list_unknown

EXAMPLE = """
preset: careful
zone: Europe/Zurich
everyone: {attacks: {labels: 0.65}}
partners:
  lab: {coordinators: [notary], budgets: {trainings: 2}, hours: ["mon-fri 18:00-06:00"]}
  insurer: {protocols: [apsi], min_own_rows: 5000}
never: [{name: no hidden training with the insurer, when: {partners: [insurer], trainers: [hidden]}}]
approve:
  - {name: weekly churn, when: {partners: [lab], purposes: [churn], same_as_approved: true, until: 2027-06-30}, by: rule}
  - {name: with a coordinator, when: {trainers: [hidden, logistic, linear]}, by: two}
"""

HIDDEN = {"train": {"algorithm": "hidden"}}


SPLIT = {"train": {"epochs": 1}}


def job(passive: str | list[str] = "lab", protocol: str = "psu", coordinator: str | None = None, **keys: Any) -> Job:
    parties = {"active": "clinic", "passive": passive} | ({"coordinator": coordinator} if coordinator else {})
    align = {"protocol": protocol} | ({"obfuscation": {"fraction": 0.5}} if protocol == "apsi" else {})
    return Job.model_validate({"name": "trial", "parties": parties, "align": align, **keys})


def policy(text: str = EXAMPLE) -> Policy:
    return parse(text, Policy, source="policy.yaml")


def at(day: int, hour: int) -> datetime:
    """A day of November 2026, half past this hour, UTC; the 27th is a Friday."""
    return datetime(2026, 11, day, hour, 30, tzinfo=timezone.utc)


def decide(asked: Job, submitter: str = "lab", *, known: bool = False, when: datetime | None = None) -> tuple[str, str]:
    decision = policy().decide(Asked(asked, "clinic", (submitter,), known=known), when or at(27, 20))
    return decision.by, decision.line


def node(document: dict[str, Any], name: str = "clinic", role: str = "active", **more: Any) -> Settings:
    peers = {other: {"address": "127.0.0.1:1"} for other in ("clinic", "lab", "insurer", "notary", "eve") if other != name}
    return Settings.model_validate(
        {
            "name": name,
            "role": role,
            "insecure_loopback": True,
            "listen": "127.0.0.1:0",
            "peers": peers,
            "policy": document,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("asked", "known", "by", "line"),
    [
        (job(purpose="churn", **SPLIT), False, "one", "preset: careful"),
        (job(purpose="churn", **SPLIT), True, "rule", "approve: weekly churn"),
        (job(purpose="churn"), True, "rule", "approve: weekly churn"),  # it trains nothing
        (job(), True, "one", "preset: careful"),  # without a purpose
        (job("insurer", purpose="churn"), True, "one", "preset: careful"),
        (job(["lab", "insurer"], purpose="churn"), True, "one", "preset: careful"),  # not all partners are named
        (job("insurer", "apsi", "notary", **HIDDEN), False, "nobody", "never: no hidden training with the insurer"),
        (
            job(["lab", "insurer"], coordinator="notary", **HIDDEN),
            False,
            "nobody",
            "never: no hidden training with the insurer",
        ),
        (job(coordinator="notary", **HIDDEN), False, "two", "approve: with a coordinator"),
        (job(), False, "one", "preset: careful"),  # it trains nothing, so by none of the named
    ],
)
def test_lines_are_decided_in_their_order(asked: Job, known: bool, by: str, line: str) -> None:
    assert decide(asked, known=known) == (by, line)


def test_a_line_ends_with_its_last_day_in_its_zone() -> None:
    asked = job(purpose="churn")
    last = datetime(2027, 6, 30, 21, 59, tzinfo=timezone.utc)  # 23:59 in Zurich
    assert decide(asked, known=True, when=last)[0] == "rule"
    assert decide(asked, known=True, when=last.replace(hour=22))[0] == "one"


@pytest.mark.parametrize("preset", list(PRESETS))
def test_the_preset_has_the_last_word(preset: str) -> None:
    assert policy(f"preset: {preset}").decide(Asked(job(), "clinic", ("lab",))).by == SAYS_YES[preset]


@pytest.mark.parametrize(
    ("day", "hour", "is_open"),
    [(27, 20, True), (27, 11, False), (28, 2, True), (28, 20, False), (30, 4, False), (30, 18, True)],
    ids=["friday evening", "friday noon", "friday's night", "saturday evening", "sunday's night", "monday evening"],
)
def test_hours_past_midnight_are_of_the_evening(day: int, hour: int, is_open: bool) -> None:
    assert policy().is_open(["lab"], at(day, hour)) is is_open
    assert policy().is_open(["insurer"], at(day, hour))
    assert policy().is_open(["lab", "insurer"], at(day, hour)) is is_open


@pytest.mark.parametrize(
    ("day", "hour", "opens"),
    [(27, 11, "18:00"), (28, 20, "mon 18:00"), (30, 4, "18:00")],
    ids=["friday noon", "saturday evening", "sunday's night"],
)
def test_a_job_outside_hours_is_told_when_they_begin(day: int, hour: int, opens: str) -> None:
    assert policy().opens(["lab"], at(day, hour)) == opens
    assert policy().opens(["lab", "insurer"], at(day, hour)) == opens


def test_hours_of_partners_that_never_meet_have_no_beginning() -> None:
    never = policy("partners: {lab: {hours: [mon 08:00-09:00]}, insurer: {hours: [tue 08:00-09:00]}}")
    assert never.opens(["lab", "insurer"], at(27, 11)) == ""
    assert never.opens(["insurer"], at(27, 11)) == "tue 08:00"


def test_layers_go_over_each_other_key_by_key() -> None:
    limits = policy().limits_of("lab")
    assert (limits.budgets.trainings, limits.budgets.alignments, limits.attacks.labels) == (2, 20, 0.65)
    assert policy().limits_of("somebody").coordinators == ()
    both = policy().limits_for(["lab", "insurer"])
    assert (both.coordinators, both.protocols, both.min_own_rows, both.budgets.trainings) == ((), ("apsi",), 5000, 2)


def test_the_smallest_number_of_each_period_holds_for_several_partners() -> None:
    several = policy(
        """
everyone: {budgets: {trainings: [{most: 2, per: week}, {most: 20}], linkages: [{most: 1, per: year}]}}
partners:
  lab: {budgets: {trainings: [{most: 3, per: week}, {most: 8, per: year}, {most: 10}], linkages: null}}
  shop: {budgets: {trainings: 4}}
"""
    )
    week, year = Bound(most=2, per="week"), Bound(most=8, per="year")
    assert several.limits_of("lab").budgets.trainings == (Bound(most=3, per="week"), year, Bound(most=10))  # a whole list
    for names, trainings, linkages in (
        (["lab", "bank"], (week, year, Bound(most=10)), (Bound(most=1, per="year"),)),
        (["bank", "shop"], (week, Bound(most=4)), (Bound(most=1, per="year"),)),
        (["lab"], (Bound(most=3, per="week"), year, Bound(most=10)), None),
    ):
        budgets = several.limits_for(names).budgets
        assert (budgets.trainings, budgets.linkages) == (trainings, linkages)


def test_a_preset_is_what_a_node_without_a_word_of_its_own_has() -> None:
    assert policy("preset: careful").limits_of("lab") == Limits() == PRESETS["careful"]
    strict = policy("preset: strict\neveryone: {size: {steps: 5}}").limits_of("lab")
    assert strict.size == PRESETS["strict"].size.model_copy(update={"steps": 5})


LIMITS = {
    "protocols": [["psu"], ["psu", "psi"], ["psu", "psi", "apsi"], "any"],
    "trainers": [["split"], ["split", "hidden"], "any"],
    "coordinators": [[], ["notary"], "any"],
    "unbounded_models": [[], ["taylor"], "any"],
    "reveal": [[], ["matched"], "any"],
    "size": [{"steps": 10, "parameters": 10}, {"steps": 10**5, "parameters": 10**5}, {"steps": 10**12, "parameters": 10**12}],
}
"""Values of limits, each looser than the one before."""

JOBS = [
    job(protocol=protocol, coordinator=coordinator, **train)
    for protocol in ("psu", "psi", "apsi")
    for coordinator, train in (
        (None, {"train": {"epochs": 1, "bottom": [2], "active_bottom": [2], "top": [2]}}),
        (None, {"train": {"epochs": 50}}),
        ("notary", HIDDEN),
        ("eve", HIDDEN),
        ("notary", {"train": {"algorithm": "hidden", "loss": "taylor", "epsilon": None}}),
    )
] + [job(train={"epochs": 1}, evaluate={"matched": True})]


def allowed(document: dict[str, Any], asked: Job) -> bool:
    try:
        check_allowed(node({"everyone": document}), asked, by_peer=True, loading=False)
    except PolicyError:
        return False
    return True


@given(st.data())
def test_a_looser_limit_refuses_no_job_that_a_tighter_one_allows(data: st.DataObject) -> None:
    places = {key: data.draw(st.integers(0, len(values) - 1)) for key, values in LIMITS.items()}
    key = data.draw(st.sampled_from([key for key, place in places.items() if place + 1 < len(LIMITS[key])] or list(LIMITS)))
    tight = {name: LIMITS[name][place] for name, place in places.items()}
    loose = tight | {key: LIMITS[key][min(places[key] + 1, len(LIMITS[key]) - 1)]}
    asked = data.draw(st.sampled_from(JOBS))
    assert allowed(loose, asked) >= allowed(tight, asked)


@pytest.mark.parametrize("key", LIMITS)
def test_each_of_these_limits_refuses_some_job(key: str) -> None:
    tightest_value, loosest = {key: LIMITS[key][0]}, {name: values[-1] for name, values in LIMITS.items()}
    assert all(allowed(loosest, asked) for asked in JOBS)
    assert not all(allowed(loosest | tightest_value, asked) for asked in JOBS)


def test_the_tightest_of_several_allows_what_each_of_them_allows() -> None:
    both = tightest([PRESETS["careful"], PRESETS["strict"]])
    assert both.model_copy(update={"hours": PRESETS["strict"].hours}) == PRESETS["strict"].model_copy(
        update={"trainers": ("split", "hidden")}
    )
    assert tightest([PRESETS["trial"], PRESETS["careful"]]) == PRESETS["careful"]


def test_every_limit_says_which_of_two_values_is_tighter() -> None:
    def unmarked(model: Any) -> list[str]:
        found = []
        for name, field in model.model_fields.items():
            inner = field.default if hasattr(type(field.default), "model_fields") else None
            marked = any(isinstance(each, Tighter) for each in field.metadata)
            found += unmarked(type(inner)) if inner is not None else [] if marked else [name]
        return found

    assert unmarked(Limits) == ["hours"]  # each partner's bind by themselves


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("preset: lax", "1:9: 'preset' cannot be 'lax'; it is one of trial, careful, strict"),
        ("zone: Mars", "'Mars' is no time zone"),
        ("everyone: {hours: [nights]}", "days and hours"),
        ("everyone: {protocol: [psi]}", "did you mean 'protocols'?"),
        ("partners: {lab: {budgets: {trainings: -1}}}", "0 or more"),
        ("everyone: {budgets: {trainings: [{most: 2, per: day}]}}", "trainings.0.per' cannot be 'day'"),
        ("everyone: {budgets: {trainings: [{most: -2, per: week}]}}", "0 or more"),
        ("everyone: {budgets: {trainings: [{most: 0, per: week}]}}", "1 or more"),
        ("everyone: {budgets: {trainings: []}}", "trainings"),
        ("everyone: {budgets: {trainings: [{most: 2}, {most: 3}]}}", "may have one number"),
        ("everyone: {budgets: {changes: [{most: 2, per: week}]}}", "changes"),
        ("approve: [{name: x, by: all}]", "rule, one, two, nobody"),
        ("never: [{name: x}]", "when"),
        ("everyone: {min_peer_rows: 500}\npartners: {lab: {size: {rows: 100}}}", "partners.lab.min_peer_rows is above"),
        ('approve: [{name: "a\\nb", by: one}]', "one line"),
    ],
)
def test_a_wrong_word_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        policy(text)
    assert said in str(raised.value), raised.value


def test_limits_of_attacks_need_the_attacks() -> None:
    for document, more, said in (
        (
            {"everyone": {"attacks": {"rows": 0.6}}},
            {"audit": {"membership": False}},
            "policy.everyone.attacks.rows needs audit.membership",
        ),
        (
            {"preset": "strict"},
            {"audit": {"labels": False}},
            "policy.preset: strict says attacks.labels and needs audit.labels",
        ),
        ({"everyone": {"attacks": {"columns": 0.1}}}, {}, "policy.everyone.attacks.columns is for a passive node"),
    ):
        with pytest.raises(ValueError, match=said):
            node(document, **more)
    with pytest.raises(ValueError, match=r"attacks.columns and needs audit.features"):
        node({"preset": "strict"}, "lab", "passive")
    with pytest.raises(ValueError, match=r"policy.partners.clinic.attacks.labels is for an active node"):
        node({"partners": {"clinic": {"attacks": {"labels": 0.6}}}}, "lab", "passive")
    assert node({"preset": "strict"}).protection.max_label_auc == 0.65
    watched = node({"preset": "strict"}, "lab", "passive", audit={"features": {"columns": "all"}})
    assert (watched.protection.max_feature_gain, watched.protection.max_label_auc) == (0.1, None)


def test_what_another_policy_changes_is_listed() -> None:
    settings = node({"partners": {"lab": {"budgets": {"trainings": 2}}}})
    changes = list_differences(
        settings, settings.policy, policy("everyone: {budgets: {trainings: 3}}\nnever: [{name: x, when: {}}]")
    )
    assert [(each["partner"], each["key"], each["before"], each["now"]) for each in changes] == [
        ("everyone", "budgets.trainings", 20, 3),
        ("lab", "budgets.trainings", 2, 3),
        ("", "never", [], [{"name": "x", "when": {}}]),
    ]
    assert describe(settings, settings.policy)["limits"]["lab"]["budgets.trainings"] == 2


def test_a_partner_that_keeps_a_value_of_its_own_is_listed_with_everyones_change() -> None:
    settings = node({"partners": {"lab": {"budgets": {"trainings": 2, "changes": 1}}}})
    after = policy("everyone: {budgets: {trainings: 3}}\npartners: {lab: {budgets: {trainings: 2, changes: 1}}}")
    assert [
        (each["partner"], each["key"], each["before"], each["now"])
        for each in list_differences(settings, settings.policy, after)
    ] == [
        ("everyone", "budgets.trainings", 20, 3),
        ("lab", "budgets.trainings", 2, 2),
    ]


def test_who_passes_a_job_on_is_a_submitter_too() -> None:
    asked = Asked(job(["lab", "insurer"]), "lab", ("clinic", "insurer"))
    for line, by in (
        ("never: [{name: x, when: {submitters: [insurer]}}]", "nobody"),
        ("approve: [{name: x, when: {submitters: [clinic]}, by: rule}]", "one"),
        ("approve: [{name: x, when: {submitters: [clinic, insurer]}, by: rule}]", "rule"),
    ):
        assert policy(line).decide(asked).by == by


def test_a_table_is_barred_from_every_party_also_a_coordinator() -> None:
    tables = {"tables": {"clinic": "hearts"}, "train": HIDDEN["train"]}
    data = {"hearts": {"path": "a.csv"}, "lungs": {"path": "b.csv"}}
    allowed = {"unbounded_models": "any", "coordinators": ["notary"]}

    def ask(*names: str) -> None:
        partners = {name: {"tables": ["hearts"]} for name in names}
        check_allowed(node({"everyone": allowed, "partners": partners}, data=data), job(coordinator="notary", **tables))

    ask("lab", "notary")
    for name in ("lab", "notary"):
        with pytest.raises(DataError, match="is not for jobs with"):
            ask(name)


def test_the_digest_is_of_what_is_written() -> None:
    strict, looser = policy("preset: strict"), policy("preset: strict\neveryone: {min_own_rows: 50}")
    assert strict.limits_of("lab").min_own_rows != looser.limits_of("lab").min_own_rows
    assert digest_of(strict) != digest_of(looser)
    assert digest_of(policy("partners: {a: {}, b: {}}")) == digest_of(policy("partners: {b: {}, a: {}}  # the same"))
    assert digest_of(policy("{}")) == digest_of(policy("preset: careful"))


def test_names_of_no_peer_are_found() -> None:
    mistyped = policy("never: [{name: x, when: {partners: [insurrer, lab]}}]\neveryone: {coordinators: [notery]}")
    assert list_unknown(node({}), mistyped) == ["insurrer", "notery"]


def test_utc_needs_no_database_of_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr("vfl_node.settings.zones.ZoneInfo", missing)
    assert policy("preset: trial").is_open(["lab"])


def test_another_policy_holds_for_all_copies_of_the_settings() -> None:
    settings = node({})
    copy = settings.model_copy(update={"device": "cpu"})
    tried = settings.try_policy(policy("preset: strict"))
    settings.in_force.policy = policy("preset: trial")
    assert (copy.rules.preset, tried.rules.preset) == ("trial", "strict")
