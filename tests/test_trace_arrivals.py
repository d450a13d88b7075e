"""Arrival processes against their closed forms.

A Poisson process of rate r(t) with integral L(t): counts in disjoint bins are independent Poisson with mean = the integral over the bin
(tested by chi-square), and L(arrival) of those before T are uniform on [0, L(T)] (tested by Kolmogorov-Smirnov). Seeds are fixed; p > 0.001.
"""

import math

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from simkit.model import NEVER_NS, UsageError
from simkit.rng import Streams
from simkit.trace.arrivals import Arrivals
from simkit.trace.build import single_task
from simkit.trace.jsonl import write

S = 1_000_000_000


def times(document, *, start=0, until=NEVER_NS, count=None, folder=None, name="x") -> np.ndarray:
    """ns"""
    process = Arrivals.model_validate(document)
    return process.times_ns(Streams(5).of(name), start_ns=start, until_ns=until, count=count, folder=folder)


def assert_intensity(arrivals_s: np.ndarray, integral, end: float, bins: int = 40) -> None:
    """`arrivals_s` before `end` come at the rate whose integral from 0 is `integral`."""
    inside = arrivals_s[arrivals_s < end]
    assert stats.kstest(integral(inside) / integral(end), "uniform").pvalue > 0.001
    edges = np.linspace(0, end, bins + 1)
    expected = np.diff([integral(edge) for edge in edges])
    counts = np.histogram(inside, edges)[0]
    busy = expected > 0
    assert counts[~busy].sum() == 0
    chi_square = float(((counts - expected)[busy] ** 2 / expected[busy]).sum())
    assert (
        stats.chi2.sf(chi_square, int(busy.sum())) > 0.001
    )  # not conditioned on the total: no degree of freedom is lost


# --- renewal processes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "gap"),
    [
        ({"poisson": {"rate": "4/s"}}, stats.expon(scale=0.25)),
        ({"gamma": {"rate": "4/s", "cv": 2}}, stats.gamma(0.25, scale=1.0)),  # shape 1/cv^2, scale mean cv^2
        ({"gamma": {"rate": "240/min", "cv": 0.5}}, stats.gamma(4, scale=1 / 16)),
        # cv 2 is the Weibull law of shape 0.5426696: G(1 + 2/k) / G(1 + 1/k)^2 = 5
        ({"weibull": {"rate": "4/s", "cv": 2}}, stats.weibull_min(0.5426696, scale=0.25 / math.gamma(1 + 1 / 0.5426696))),
    ],
    ids=["poisson", "gamma bursty", "gamma smooth", "weibull"],
)  # fmt: skip
def test_gaps_follow_the_law_of_the_process(document, gap):
    n = 100_000
    gaps = np.diff(times(document, count=n), prepend=0) / S
    mean, variance = (float(moment) for moment in gap.stats("mv"))
    assert abs(gaps.mean() - mean) < 4 * math.sqrt(variance / n)
    assert stats.kstest(gaps[:50_000], gap.cdf).pvalue > 0.001
    # neighbours are independent: the lag-1 autocorrelation has standard error 1/sqrt(n)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / math.sqrt(n)


def test_poisson_counts_are_poisson():
    assert_intensity(times({"poisson": {"rate": "20/s"}}, until=500 * S) / S, lambda t: 20 * t, 500.0)


# --- changing rates ----------------------------------------------------------------------------------------


def test_on_off_arrivals_follow_the_integral_of_the_rate():
    def integral(t):
        cycles, rest = np.divmod(t, 40.0)
        return cycles * (30 * 10 + 5 * 30) + np.where(rest < 10, 30 * rest, 300 + 5 * (rest - 10))

    arrivals = times({"on_off": {"rate": "30/s", "on": "10s", "off": "30s", "off_rate": "5/s"}}, until=400 * S) / S
    assert_intensity(arrivals, integral, 400.0)


def test_without_an_off_rate_nothing_arrives_while_off():
    def integral(t):
        cycles, rest = np.divmod(t, 40.0)
        return cycles * 300 + 30 * np.minimum(rest, 10)

    arrivals = times({"on_off": {"rate": "30/s", "on": "10s", "off": "30s"}}, until=400 * S) / S
    assert_intensity(arrivals, integral, 400.0)
    assert (arrivals % 40 <= 10).all()


@pytest.mark.parametrize("peak_to_mean", [1.0, 1.5, 2.0])
def test_diurnal_arrivals_follow_the_integral_of_the_rate(peak_to_mean):
    def integral(t):  # of 20 (1 + a sin(2 pi t / 100))
        swing = peak_to_mean - 1
        return 20 * (t + swing * 100 / (2 * math.pi) * (1 - np.cos(2 * math.pi * t / 100)))

    document = {"diurnal": {"rate": "20/s", "peak_to_mean": peak_to_mean, "period": "100s"}}
    assert_intensity(times(document, until=400 * S) / S, integral, 400.0)


def test_a_flood_follows_the_integral_of_the_rate():
    def integral(t):
        return 10 * t + 90 * np.clip(t - 20, 0, 5)

    document = {"flood": {"base_rate": "10/s", "peak_rate": "100/s", "from": "20s", "for": "5s"}}
    assert_intensity(times(document, until=50 * S) / S, integral, 50.0, bins=20)


# --- lists -------------------------------------------------------------------------------------------------


def test_even_arrivals_begin_at_the_start_and_do_not_drift():
    assert times({"even": {"every": "250ms"}}, start=S, until=2 * S).tolist() == [
        S,
        1250 * 10**6,
        1500 * 10**6,
        1750 * 10**6,
    ]
    # 3 a second: arrival k at round(k / 3 s), each rounded by itself
    third = times({"even": {"rate": "3/s"}}, count=3_000_001)
    assert third[[1, 2, 3, 3_000_000]].tolist() == [333_333_333, 666_666_667, S, 1_000_000 * S]


def test_bursts_come_at_one_instant_each():
    assert times({"burst": {"at": "2s", "count": 3}}, start=S).tolist() == [3 * S] * 3
    document = {"burst": [{"at": "2s", "count": 1}, {"at": "1s", "count": 2}]}
    assert times(document).tolist() == [S, S, 2 * S]


def test_listed_times_are_sorted_and_count_from_the_start():
    assert times({"at": ["2s", "1s", 0]}, start=5 * S).tolist() == [5 * S, 6 * S, 7 * S]


def test_recorded_arrivals_are_those_of_the_trace(tmp_path):
    write(single_task([S, 4 * S, 4 * S], [1, 1, 1]), tmp_path / "past.jsonl.gz")
    document = {"empirical": {"file": "past.jsonl.gz"}}
    assert times(document, start=10 * S, folder=tmp_path).tolist() == [11 * S, 14 * S, 14 * S]
    assert times(document, count=2, folder=tmp_path).tolist() == [S, 4 * S]
    with pytest.raises(UsageError, match=r"past\.jsonl"):
        times({"empirical": {"file": "other_past.jsonl"}}, folder=tmp_path)


# --- bounds ------------------------------------------------------------------------------------------------

EVERY = [
    {"poisson": {"rate": "10/s"}},
    {"gamma": {"rate": "10/s", "cv": 3}},
    {"weibull": {"rate": "10/s", "cv": 3}},
    {"even": {"rate": "10/s"}},
    {"on_off": {"rate": "100/s", "on": "1s", "off": "9s"}},
    {"diurnal": {"rate": "10/s", "peak_to_mean": 1.8, "period": "1h"}},
    {"flood": {"base_rate": "10/s", "peak_rate": "50/s", "from": "10s", "for": "10s"}},
]


@pytest.mark.parametrize("document", EVERY, ids=lambda document: next(iter(document)))
def test_the_bounds_only_cut(document):
    all_of_them = times(document, start=3 * S, count=10_000)
    assert len(all_of_them) == 10_000
    assert (np.diff(all_of_them) >= 0).all()
    assert all_of_them[0] >= 3 * S
    assert times(document, start=3 * S, count=17).tolist() == all_of_them[:17].tolist()
    until = int(all_of_them[500])
    assert times(document, start=3 * S, until=until).tolist() == [t for t in all_of_them.tolist() if t < until]
    assert times(document, start=3 * S, until=until, count=20).tolist() == all_of_them[:20].tolist()


def test_a_rate_beyond_reason_is_an_error_not_a_hang():
    with pytest.raises(ValueError, match="more than 20000000 arrivals"):
        times({"even": {"every": "1ns"}}, until=3600 * S)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "found 0 arrival processes"),
        ({"poisson": {"rate": "1/s"}, "even": {"rate": "1/s"}}, "found 2 arrival processes"),
        ({"poison": {"rate": "1/s"}}, "Extra inputs are not permitted"),
        ({"poisson": {"rate": "0/s"}}, "rate above 0"),
        ({"poisson": {"rate": 2}}, "expected a rate"),
        ({"gamma": {"rate": "1/s", "cv": 0}}, "above 0"),
        ({"weibull": {"rate": "1/s", "cv": 1e9}}, "found cv"),
        ({"even": {}}, "exactly one of every and rate"),
        ({"even": {"every": "1s", "rate": "1/s"}}, "exactly one of every and rate"),
        ({"burst": {"at": "1s", "count": 0}}, "1 or more"),
        ({"burst": []}, "the list is empty"),
        ({"at": []}, "the list is empty"),
        ({"at": ["-1s"]}, "cannot be negative"),
        ({"on_off": {"rate": "1/s", "on": "0s", "off": "1s"}}, "above 0"),
        ({"diurnal": {"rate": "1/s", "peak_to_mean": 2.5}}, "expected 1 to 2"),
        ({"flood": {"base_rate": "1/s", "peak_rate": "2/s", "from": "1s"}}, "Field required"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_process_that_cannot_be_is_refused(document, message):
    with pytest.raises(ValidationError) as caught:
        Arrivals.model_validate(document)
    assert message in str(caught.value)
