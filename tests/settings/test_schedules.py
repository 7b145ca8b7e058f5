"""When jobs come by a clock: lines of cron, days with another length, jitter, and what settings refuse."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import UsageError
from vfl_node.settings.clock_times import ClockTimes
from vfl_node.settings.node import Settings
from vfl_node.settings.reading import load_settings
from vfl_node.settings.schedules import JobSchedule
from vfl_node.settings.zones import zone_named

SETTINGS = "name: clinic\nrole: {role}\ninsecure_loopback: true\nlisten: 127.0.0.1:0\n"


def planned(line: str, begin: str, count: int, zone: str = "UTC") -> list[str]:
    """The next times of the clock of a zone."""
    place = zone_named(zone)
    moment = datetime.fromisoformat(begin).replace(tzinfo=place).astimezone(timezone.utc)
    found = islice(ClockTimes(line).list_after(moment, place), count)
    return [f"{at.astimezone(place):%Y-%m-%d %H:%M}" for at in found]


def schedule(**keys: Any) -> JobSchedule:
    return JobSchedule(**{"name": "weekly", "job": "job.yaml", "at": "0 3 * * *", **keys})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 3 * * 1", ["2026-11-30 03:00", "2026-12-07 03:00", "2026-12-14 03:00"]),
        ("0 3 * * mon", ["2026-11-30 03:00", "2026-12-07 03:00", "2026-12-14 03:00"]),
        ("0 3 * * 0", ["2026-11-29 03:00", "2026-12-06 03:00", "2026-12-13 03:00"]),
        ("0 3 * * 7", ["2026-11-29 03:00", "2026-12-06 03:00", "2026-12-13 03:00"]),
        ("*/30 9-10 * * *", ["2026-11-28 09:00", "2026-11-28 09:30", "2026-11-28 10:00"]),
        ("15,5 22 * * fri-sun", ["2026-11-28 22:05", "2026-11-28 22:15", "2026-11-29 22:05"]),
        ("0 0 31 * *", ["2026-12-31 00:00", "2027-01-31 00:00", "2027-03-31 00:00"]),
        ("0 0 29 feb *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
        ("0 0 1 * mon", ["2026-11-30 00:00", "2026-12-01 00:00", "2026-12-07 00:00"]),
        ("0 0 */10 * mon", ["2026-12-21 00:00", "2027-01-11 00:00", "2027-02-01 00:00"]),
        ("10/25 6 1 */6 *", ["2027-01-01 06:10", "2027-01-01 06:35", "2027-07-01 06:10"]),
        ("59 23 31 12 *", ["2026-12-31 23:59", "2027-12-31 23:59", "2028-12-31 23:59"]),
    ],
)
def test_lines_mean_what_they_mean_to_cron(line: str, expected: list[str]) -> None:
    assert planned(line, "2026-11-28 08:00", 3) == expected


def test_29_february_is_waited_for_over_a_century_without_one() -> None:
    assert planned("0 0 29 2 *", "2096-03-01 00:00", 1) == ["2104-02-29 00:00"]


@pytest.mark.parametrize(
    "line",
    [
        *(
            "0 3 * *",
            "0 3 * * * *",
            "60 3 * * *",
            "0 24 * * *",
            "0 0 0 * *",
            "0 0 * 13 *",
            "0 0 * * 8",
            "5-1 0 * * *",
            "*/0 0 * * *",
        ),
        *(
            "@daily",
            "a 3 * * *",
            "0 3 * * mondays",
            "1-2-3 0 * * *",
            "-1 0 * * *",
            "1,,2 0 * * *",
            "*/5/5 0 * * *",
            "² 0 * * *",
        ),
        *("", "0 0 30 2 *", "0 0 31 4,6 *"),
    ],
)
def test_what_is_no_line_or_never_comes_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"fields|is no|never comes"):
        ClockTimes(line)


def test_an_hour_that_a_day_does_not_have_comes_an_hour_later_and_once() -> None:
    # On 28 March 2027 clocks in Zurich go from 02:00 to 03:00.
    days = ["2027-03-27 02:30", "2027-03-28 03:30", "2027-03-29 02:30"]
    assert planned("30 2 * * *", "2027-03-27 00:00", 3, "Europe/Zurich") == days
    each_half = planned("0,30 * * * *", "2027-03-28 01:15", 4, "Europe/Zurich")
    assert each_half == ["2027-03-28 01:30", "2027-03-28 03:00", "2027-03-28 03:30", "2027-03-28 04:00"]


def test_an_hour_that_comes_twice_counts_once() -> None:
    # On 31 October 2027 clocks in Zurich go from 03:00 to 02:00.
    found = list(
        islice(ClockTimes("30 2 * * *").list_after(datetime(2027, 10, 30, tzinfo=timezone.utc), zone_named("Europe/Zurich")), 3)
    )
    assert [f"{at:%d %H:%M}" for at in found] == ["30 00:30", "31 00:30", "01 01:30"]
    halves = list(islice(ClockTimes("*/30 * * * *").list_after(found[0], zone_named("Europe/Zurich")), 60))
    assert all(later > earlier for earlier, later in pairwise(halves))
    local = [f"{at.astimezone(zone_named('Europe/Zurich')):%d %H:%M}" for at in halves]
    assert len(set(local)) == len(local)
    assert local.count("31 02:30") == 1


def test_a_day_that_a_zone_left_out_brings_nothing_twice() -> None:
    found = planned("0 3 * * *", "2011-12-29 00:00", 3, "Pacific/Apia")  # without 30 December
    assert found == ["2011-12-29 03:00", "2011-12-31 03:00", "2012-01-01 03:00"]


def test_an_id_says_the_planned_time_and_no_two_have_the_same() -> None:
    monday = datetime(2026, 11, 30, 3, tzinfo=timezone.utc)
    assert schedule().job_id(monday) == "weekly-20261130"
    assert schedule().job_id(monday, by_hand=True) == "weekly-20261130-0300"
    assert schedule(zone="America/New_York").job_id(monday) == "weekly-20261129"
    often = schedule(name="often", at="*/30 * * * *", zone="Europe/Zurich")
    assert often.job_id(monday) == "often-20261130-0400"
    for begin in (datetime(2027, 3, 27, tzinfo=timezone.utc), datetime(2027, 10, 30, tzinfo=timezone.utc)):
        ids = [often.job_id(at) for at in islice(often.list_after(begin), 150)]
        assert len(set(ids)) == 150


def test_a_time_that_is_put_forward_over_midnight_has_the_id_of_its_own_day() -> None:
    # On Saturday, 28 March 2026, clocks in Nuuk go from 23:00 to 00:00.
    late = schedule(at="30 23 * * *", zone="America/Nuuk")
    times = list(islice(late.list_after(datetime(2026, 3, 28, 12, tzinfo=timezone.utc)), 3))
    assert [f"{at.astimezone(zone_named(late.zone)):%d %H:%M}" for at in times] == ["29 00:30", "29 23:30", "30 23:30"]
    assert [late.job_id(at) for at in times] == ["weekly-20260328", "weekly-20260329", "weekly-20260330"]


def test_the_last_time_is_found_however_long_ago() -> None:
    now = datetime(2026, 11, 28, 8, tzinfo=timezone.utc)
    for at, days, expected in (
        ("*/5 * * * *", 1000, now),
        ("0 3 * * *", 3, now.replace(hour=3)),
        ("0 3 1 * *", 400, datetime(2026, 11, 1, 3, tzinfo=timezone.utc)),
        ("0 3 29 2 *", 3000, datetime(2024, 2, 29, 3, tzinfo=timezone.utc)),
    ):
        assert schedule(at=at).find_last(now - timedelta(days=days), now) == expected
    assert schedule().find_last(now, now + timedelta(hours=3)) is None
    assert schedule(until="2026-11-25").find_last(now - timedelta(days=9), now) == datetime(
        2026, 11, 25, 3, tzinfo=timezone.utc
    )


def test_until_is_the_last_day_in_the_zone() -> None:
    auckland = schedule(at="0 1 * * *", zone="Pacific/Auckland", until="2026-11-30")
    found = list(auckland.list_after(datetime(2026, 11, 27, 13, tzinfo=timezone.utc)))
    assert [f"{at:%d %H:%M}" for at in found] == ["28 12:00", "29 12:00"]


def test_jitter_is_the_same_at_each_start_and_spreads_parties() -> None:
    each = schedule(jitter_s=600)
    days = list(islice(each.list_after(datetime(2026, 11, 28, tzinfo=timezone.utc)), 50))
    delays = [(each.draw_out(day, "clinic") - day).total_seconds() for day in days]
    assert delays == [(schedule(jitter_s=600).draw_out(day, "clinic") - day).total_seconds() for day in days]
    assert all(0 <= delay <= 600 for delay in delays)
    assert len(set(delays)) > 30
    assert delays != [(each.draw_out(day, "lab") - day).total_seconds() for day in days]
    assert schedule().draw_out(days[0], "clinic") == days[0]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("name: Weekly, job: j.yaml, at: 0 3 * * *", "schedules.0.name"),
        (f"name: {'a' * 41}, job: j.yaml, at: 0 3 * * *", "1 to 40 small letters"),
        ("name: weekly, job: j.yaml, at: 0 3 30 2 *", "never comes"),
        ("name: weekly, job: j.yaml, at: daily", "5: minute, hour"),
        ("name: weekly, job: j.yaml, at: '*/5 * * * *', jitter_s: 300", "0:05:00"),
        ("name: weekly, job: j.yaml, at: 0 3 * * *, zone: Mars", "no time zone"),
        ("name: weekly, job: j.yaml, at: 0 3 * * *, least_new: -1", "least_new"),
        ("name: weekly, job: j.yaml, at: 0 3 * * *, if_running: kill", "'skip', 'submit'|skip, submit"),
    ],
)
def test_mistakes_are_named_with_their_place(keys: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse(SETTINGS.format(role="active") + f"schedules:\n- {{{keys}}}\n", Settings, source="node.yaml")


def test_only_nodes_that_may_submit_have_schedules_and_each_has_its_name() -> None:
    line = "- {name: weekly, job: j.yaml, at: 0 3 * * *}\n"
    for role in ("active", "passive"):
        assert (
            parse(SETTINGS.format(role=role) + "schedules:\n" + line, Settings, source="node.yaml").schedules[0].name
            == "weekly"
        )
    with pytest.raises(UsageError, match="which may submit jobs"):
        parse(SETTINGS.format(role="coordinator") + "schedules:\n" + line, Settings, source="node.yaml")
    with pytest.raises(UsageError, match="'weekly' twice"):
        parse(SETTINGS.format(role="active") + "schedules:\n" + 2 * line, Settings, source="node.yaml")


def test_the_job_file_lies_beside_the_settings(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(SETTINGS.format(role="active") + "schedules: [{name: a, job: j.yaml, at: 0 3 * * *}]\n")
    assert load_settings(tmp_path / "node.yaml").schedules[0].job == tmp_path / "j.yaml"
