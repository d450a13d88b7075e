"""Metrics of groups: tables of columns, and the age of the oldest waiting task of many queues at once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from log_builder import LogBuilder, one_pool_log

from simkit.log import RowTable, RunLog, RunTable, columns_of
from simkit.metrics import GroupTable, Window, summarise
from simkit.metrics.ages import exceeded_ns, queue_ages
from simkit.model import NS_PER_S, UsageError


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def random_queue(size: int = 400, groups: int = 5, seed: int = 2) -> RunLog:
    """One server at load 1.1, first come first served; tenants and classes at random."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / 1.1, size) * NS_PER_S).astype(np.int64)
    service = (rng.exponential(1, size) * NS_PER_S).astype(np.int64)
    start, free = np.zeros(size, dtype=np.int64), 0
    for number in range(size):
        start[number] = free = max(free, int(arrival[number]))
        free += int(service[number])
    return one_pool_log(
        arrival, start, start + service, tenant=rng.integers(0, groups, size), cls=rng.integers(0, 3, size)
    )


def only(log: RunLog, flags: np.ndarray) -> RunLog:
    """The log as if nothing but some one-task runs had been in it."""
    runs = RunTable(*(np.asarray(column)[flags] for column in columns_of(log.runs).values()))
    rows = columns_of(log.rows)
    kept = RowTable(
        **{
            **{name: column[flags] for name, column in rows.items()},
            "run": np.arange(flags.sum()),
            "task": np.arange(flags.sum()),
        }
    )
    return RunLog(
        log.header, log.names, log.reasons, runs, kept, log.attempts, log.holds, log.events, log.samples, log.capacity
    )


def test_each_groups_queue_age_is_that_of_a_log_with_nothing_else_in_it() -> None:
    log = random_queue()
    for attribute, table in (("tenant", summarise(log).by_tenant), ("cls", summarise(log).by_class)):
        codes = getattr(log.runs, attribute)
        for code, name in enumerate(log.names["tenant" if attribute == "tenant" else "class"]):
            alone = summarise(only(log, codes == code)).metrics
            for metric in (
                "queue_age_s.p95",
                "queue_age_s.max",
                "latency_s.p95",
                "wait_s.mean",
                "goodput_per_s",
                "offered",
            ):
                assert table[name][metric] == pytest.approx(alone[metric], abs=2e-9), (name, metric)


def test_queue_age_by_hand() -> None:
    builder = LogBuilder(pools={"pool": 1}, horizon=100.0)
    builder.one("x", 0.0, 0.0, 50.0, tenant="x")
    builder.one("a1", 10.0, 50.0, 60.0, tenant="a")  # ages 0 to 40 from 10 to 50
    builder.one("a2", 20.0, 60.0, 61.0, tenant="a")  # then 30 to 40 from 50 to 60
    builder.one("b", 90.0, None, None, tenant="b")  # 0 to 10 up to the end
    found = summarise(builder.build()).by_tenant
    # a: above age y (y > 30) for (40 - y) + (40 - y) s; 5 s of 100: y = 37.5. b: above y for 10 - y: y = 5
    assert found["a"]["queue_age_s.max"] == 40.0
    assert found["a"]["queue_age_s.p95"] == 37.5
    assert (found["b"]["queue_age_s.p95"], found["b"]["queue_age_s.max"]) == (5.0, 10.0)
    assert (found["x"]["queue_age_s.p95"], found["x"]["queue_age_s.max"]) == (0.0, 0.0)


def test_ages_exceeded_are_found_to_the_nanosecond() -> None:
    # one interval from 0 to 100: the age exceeded during 30 ns is 70; of two equal ones during 30 ns in all it is 85
    assert exceeded_ns(ints(0), ints(100), ints(0), 1, 30).tolist() == [70]
    assert exceeded_ns(ints(0, 0), ints(100, 100), ints(0, 0), 1, 30).tolist() == [85]
    # groups do not mix; an empty one has 0; intervals that lie wholly above count in full
    assert exceeded_ns(ints(0, 50, 90), ints(100, 60, 100), ints(0, 2, 2), 3, 12).tolist() == [88, 0, 58]
    assert exceeded_ns(ints(), ints(), ints(), 2, 5).tolist() == [0, 0]


def test_ages_exceeded_agree_with_counting_every_nanosecond() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        low = rng.integers(0, 60, 20)
        high, group = low + rng.integers(1, 40, 20), rng.integers(0, 3, 20)
        allowed = int(rng.integers(1, 60))
        found = exceeded_ns(low, high, group, 3, allowed)
        for number in range(3):
            ages = np.concatenate(
                [np.arange(a, b) for a, b, g in zip(low, high, group, strict=True) if g == number] or [ints()]
            )
            # time above an age y: nanoseconds [k, k + 1) with k >= y
            smallest = next(age for age in range(101) if int((ages >= age).sum()) <= allowed)
            assert found[number] == smallest


def test_a_log_without_waiting_has_age_zero() -> None:
    builder = LogBuilder()
    builder.one("r", 0.0, 0.0, 1.0)
    p95, most = queue_ages(Window(builder.build()), ints(0), 1)
    assert (p95.tolist(), most.tolist()) == ([0.0], [0.0])


def test_a_group_table_is_a_mapping_of_plain_numbers() -> None:
    table = GroupTable(("a", "b"), {"offered": np.array([1, 2]), "latency_s.p95": np.array([0.5, np.nan])})
    assert list(table) == ["a", "b"]
    assert table["a"] == {"offered": 1.0, "latency_s.p95": 0.5}
    assert type(table["a"]["offered"]) is float
    assert table.get("c", {}) == {}
    assert table.value("b", "offered", -1.0) == 2.0
    assert (table.value("c", "offered", -1.0), table.value("a", "nothing", -1.0)) == (-1.0, -1.0)
    assert repr(GroupTable(("a",), {"offered": np.array([1])})) == "{'a': {'offered': 1.0}}"
    assert GroupTable(("a",), {"offered": np.array([1])}) == {"a": {"offered": 1.0}}
    assert pickle.loads(pickle.dumps(table))["b"]["offered"] == 2.0


def test_ten_thousand_tenants_travel_in_a_few_megabytes() -> None:
    size = 10_000
    start = np.arange(size) * NS_PER_S
    summary = summarise(one_pool_log(start, start, start + NS_PER_S, tenant=np.arange(size)))
    # by hand: fewer than 45 metrics x 10,000 tenants x 8 bytes, and their names
    assert len(pickle.dumps(summary)) < 4_000_000
    assert summary.get("latency_s.mean", {"tenant": "t9999"}) == 1.0


def test_where_names_one_kind_of_group() -> None:
    summary = summarise(random_queue())
    assert summary.get("offered") == 400.0
    assert np.isnan(summary.get("offered", {"tenant": "nobody"}))
    with pytest.raises(UsageError, match="expected one of class, tenant, pool"):
        summary.get("offered", {"tenant": "t0", "class": "c0"})
    with pytest.raises(UsageError, match="expected one of class, tenant, pool"):
        summary.get("offered", {"team": "t0"})


def test_429s_are_counted_for_whom_they_hit() -> None:
    builder = LogBuilder()
    for tenant, count in (("a", 2), ("b", 1)):
        run = builder.one(tenant, 0.0, 0.0, 1.0, tenant=tenant)
        for _ in range(count):
            builder.event(0.5, "throttled", run=run, reason="api")
    summary = summarise(builder.build())
    assert [summary.get("api_429", where) for where in ({}, {"tenant": "a"}, {"tenant": "b"}, {"class": "c"})] == [
        3,
        2,
        1,
        3,
    ]
