"""Distributions: moments and shapes against closed forms.

Moments: with n independent draws of variance v and fourth central moment m4, the mean has standard error sqrt(v / n) and the sample variance
sqrt((m4 - v^2) / n) (n large). Seeds are fixed; four standard errors are asked for, which a right sampler misses once in 16,000 seeds.
Shapes: Kolmogorov-Smirnov against scipy's law; with fixed seeds a p-value above 0.001 is asked for.
"""

import math

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from simkit.rng import Streams
from simkit.trace.distributions import DurationLaw, NumberLaw, weibull_shape

N = 200_000
S = 1e9


def sigma_of(cv: float) -> float:
    return math.sqrt(math.log1p(cv**2))


def weibull(mean: float, cv: float):
    shape = weibull_shape(cv)
    return stats.weibull_min(shape, scale=mean / math.gamma(1 + 1 / shape))


LAWS = {
    # document (numbers of mean 3 unless said otherwise) -> the same law in scipy
    "exp": ({"exp": {"mean": 3}}, stats.expon(scale=3)),
    "lognormal mean cv": (
        {"lognormal": {"mean": 3, "cv": 0.8}},
        stats.lognorm(sigma_of(0.8), scale=3 * math.exp(-(sigma_of(0.8) ** 2) / 2)),
    ),
    "lognormal median cv": ({"lognormal": {"median": 3, "cv": 0.8}}, stats.lognorm(sigma_of(0.8), scale=3)),
    # p95 = median exp(z sigma) with z = 1.644854: sigma = ln 2 / z
    "lognormal median p95": (
        {"lognormal": {"median": 3, "p95": 6}},
        stats.lognorm(math.log(2) / stats.norm.ppf(0.95), scale=3),
    ),
    "gamma smooth": ({"gamma": {"mean": 3, "cv": 0.5}}, stats.gamma(4, scale=3 / 4)),
    "gamma bursty": ({"gamma": {"mean": 3, "cv": 2}}, stats.gamma(0.25, scale=12)),
    "weibull smooth": ({"weibull": {"mean": 3, "cv": 0.5}}, weibull(3, 0.5)),
    "weibull bursty": ({"weibull": {"mean": 3, "cv": 1.5}}, weibull(3, 1.5)),
    "uniform": ({"uniform": {"low": 0, "high": 6}}, stats.uniform(0, 6)),
}


def draws(document, size: int = N, name: str = "x") -> np.ndarray:
    return NumberLaw.model_validate(document).sample(Streams(11).of(name), size)


def assert_moments(sample: np.ndarray, mean: float, variance: float, fourth: float) -> None:
    """`fourth` is the fourth central moment."""
    assert abs(sample.mean() - mean) < 4 * math.sqrt(variance / len(sample))
    assert abs(sample.var() - variance) < 4 * math.sqrt((fourth - variance**2) / len(sample))


@pytest.mark.parametrize("name", LAWS)
def test_mean_and_variance_are_those_of_the_law(name):
    document, law = LAWS[name]
    mean, variance, _, excess = (float(moment) for moment in law.stats("mvsk"))
    assert_moments(draws(document), mean, variance, (excess + 3) * variance**2)
    assert NumberLaw.model_validate(document).average == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("name", LAWS)
def test_the_shape_is_that_of_the_law(name):
    document, law = LAWS[name]
    assert stats.kstest(draws(document, 50_000), law.cdf).pvalue > 0.001


def test_hyperexponential_branches_have_balanced_means():
    # cv 2: p = (1 + sqrt(3/5)) / 2; branch means 3/(2p) and 3/(2(1-p)). E X^2 = 2 (p m1^2 + q m2^2) = mean^2 (cv^2 + 1) = 45.
    p = (1 + math.sqrt(3 / 5)) / 2
    first, second = 3 / (2 * p), 3 / (2 * (1 - p))
    assert p * first == pytest.approx((1 - p) * second)
    assert 2 * (p * first**2 + (1 - p) * second**2) == pytest.approx(45)
    raw = [math.factorial(k) * (p * first**k + (1 - p) * second**k) for k in range(5)]
    fourth = raw[4] - 4 * raw[3] * 3 + 6 * raw[2] * 9 - 3 * 81
    sample = draws({"hyperexp": {"mean": 3, "cv": 2}})
    assert_moments(sample, 3, 36, fourth)
    cdf = lambda x: 1 - p * np.exp(-x / first) - (1 - p) * np.exp(-x / second)  # noqa: E731
    assert stats.kstest(sample[:50_000], cdf).pvalue > 0.001


def test_empirical_values_come_in_proportion_to_their_weights():
    sample = draws({"empirical": {"values": [1, 2, 5], "weights": [1, 2, 1]}})
    for value, share in ((1, 0.25), (2, 0.5), (5, 0.25)):
        # binomial: standard error sqrt(p q / n)
        assert abs((sample == value).mean() - share) < 4 * math.sqrt(share * (1 - share) / N)
    assert NumberLaw.model_validate({"empirical": {"values": [1, 2, 5], "weights": [1, 2, 1]}}).average == 2.5


@pytest.mark.parametrize("cv", [0.02, 0.5, 1.0, 2.0, 20.0])
def test_the_weibull_shape_gives_the_cv_asked_for(cv):
    shape = weibull_shape(cv)
    square = math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1
    assert math.sqrt(square) == pytest.approx(cv, rel=1e-6)
    assert weibull_shape(1.0) == pytest.approx(1.0)  # the exponential law


def test_a_lognormal_law_by_mean_and_p95_has_both():
    law = NumberLaw.model_validate({"lognormal": {"mean": 3, "p95": 8}})
    assert law.average == pytest.approx(3)
    # share below p95: binomial with p = 0.95
    assert abs((law.sample(Streams(1).of("x"), N) < 8).mean() - 0.95) < 4 * math.sqrt(0.95 * 0.05 / N)


def test_a_bare_value_is_that_value():
    assert DurationLaw.model_validate("1500ms").sample(Streams(1).of("x"), 3).tolist() == [1.5 * S] * 3
    assert DurationLaw.model_validate({"deterministic": "3s"}).average == 3 * S


@pytest.mark.parametrize("name", [*LAWS, "hyperexp", "empirical"])
def test_a_longer_sample_begins_with_the_shorter_one(name):
    more = {"hyperexp": {"hyperexp": {"mean": 3, "cv": 2}}, "empirical": {"empirical": {"values": [1, 2, 3]}}}
    document = LAWS[name][0] if name in LAWS else more[name]
    assert draws(document, 1000)[:10].tolist() == draws(document, 10).tolist()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"exp": {"mean": "1s"}, "gamma": {"mean": "1s", "cv": 1}}, "found 2 distributions"),
        ({}, "found 0 distributions"),
        ("0s", "mean above 0"),
        ({"exp": {"mean": 0}}, "mean above 0"),
        ({"exp": {"mean": -1}}, "without a unit"),
        ({"exp": {"mean": "-1s"}}, "cannot be negative"),
        ({"exp": {"rate": "1s"}}, "Extra inputs are not permitted"),
        ({"lognormal": {"mean": "1s"}}, "expected mean or median, and cv or p95"),
        ({"lognormal": {"mean": "1s", "median": "1s", "cv": 1}}, "expected mean or median"),
        ({"lognormal": {"median": "2s", "p95": "1s"}}, "p95 must lie above"),
        ({"lognormal": {"mean": "1s", "p95": "4s"}}, "at most 3.87 times its mean"),
        ({"lognormal": {"mean": 0, "cv": 1}}, "must lie above 0"),
        ({"gamma": {"mean": "1s", "cv": 0}}, "expected a number above 0"),
        ({"gamma": {"mean": "1s", "cv": float("nan")}}, "finite"),
        ({"gamma": {"mean": "1s", "cv": True}}, "expected a number"),
        ({"hyperexp": {"mean": "1s", "cv": 0.9}}, "expected 1 or more"),
        ({"weibull": {"mean": "1s", "cv": 1e9}}, "found cv"),
        ({"uniform": {"low": "2s", "high": "1s"}}, "low must not lie above high"),
        ({"uniform": {"low": 0, "high": 0}}, "mean above 0"),
        ({"empirical": {"values": []}}, "values is empty"),
        ({"empirical": {"values": ["1s"], "weights": [1, 2]}}, "1 values and 2 weights"),
        ({"lognormal": {"median": "1s", "cv": 1e18}}, "below 146 years"),  # mean = sqrt(1 + cv^2) x median
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_law_that_cannot_be_is_refused(document, message):
    with pytest.raises(ValidationError) as caught:
        DurationLaw.model_validate(document)
    assert message in str(caught.value)
