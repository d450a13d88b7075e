"""Estimates, paired differences, verdicts, the ladder, the recommendation and the JSON document of a comparison."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from comparison_harness import FakeJudgement, Made

from simkit.catalogue import digits, direction, shown, split_key, with_unit, words
from simkit.compare import BETTER, OPEN, SAME, WORSE, Comparison, needs_more
from simkit.model import UsageError
from simkit.stats import estimate, holm, judged, paired, paired_p, ratio_interval, replications_for, t_interval

NAN, INF = math.nan, math.inf


# --- estimates ---------------------------------------------------------------------------------------------


def test_the_t_interval_of_one_to_five_is_the_one_of_the_tables():
    # mean 3, sd sqrt(2.5); t(0.975, 4 df) = 2.776445 (printed tables): half-width 2.776445 * sqrt(2.5 / 5) = 1.963243
    found = estimate([1, 2, 3, 4, 5])
    assert found.mean == 3
    assert found.ci95 == pytest.approx((3 - 1.963243, 3 + 1.963243), abs=1e-5)


def test_one_value_has_no_interval():
    found = estimate([4.0])
    assert (found.mean, found.ci95) == (4.0, None)
    assert math.isnan(found.half_width)


def test_equal_values_have_an_interval_of_width_zero_at_exactly_their_value():
    found = estimate([0.1] * 10)  # the float mean of ten 0.1 need not be 0.1
    assert (found.mean, found.ci95) == (0.1, (0.1, 0.1))


def test_undefined_values_are_counted_and_kept_in_the_list():
    found = estimate([1.0, NAN, 3.0])
    assert (found.mean, found.undefined, len(found.values)) == (2.0, 1, 3)


def test_a_metric_that_is_undefined_everywhere_has_neither_mean_nor_interval():
    found = estimate([NAN, NAN])
    assert math.isnan(found.mean)
    assert (found.ci95, found.undefined) == (None, 2)


def test_an_infinite_value_leaves_no_interval():
    assert estimate([1.0, INF]).ci95 is None


def test_the_t_interval_covers_95_percent_of_normal_samples_of_ten():
    rng = np.random.default_rng(20261201)
    samples = rng.normal(3.0, 2.0, size=(4000, 10))
    hits = [low <= 3.0 <= high for low, high in (t_interval(sample) for sample in samples)]
    error = math.sqrt(0.95 * 0.05 / 4000)  # 0.0034, of a proportion over 4000 samples
    assert np.mean(hits) == pytest.approx(0.95, abs=3 * error)


def test_the_t_interval_of_skewed_differences_loses_little_coverage():
    # Differences of two exponentials with a common half: symmetric but heavy-tailed; measured in the literature within 2 points of nominal.
    rng = np.random.default_rng(20261202)
    gaps = rng.exponential(1.0, size=(4000, 10)) - rng.exponential(1.0, size=(4000, 10))
    hits = [low <= 0.0 <= high for low, high in (t_interval(gap) for gap in gaps)]
    assert 0.93 <= np.mean(hits) <= 0.975


# --- Holm --------------------------------------------------------------------------------------------------


def test_holm_multiplies_the_smallest_by_the_count_and_never_descends():
    # by hand, sorted: 0.005*4 = 0.02, 0.01*3 = 0.03, 0.03*2 = 0.06, then max(0.06, 0.04*1)
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_leaves_out_what_has_no_p():
    assert holm([NAN, 0.02, 0.03])[1:] == pytest.approx([0.04, 0.04])
    assert math.isnan(holm([NAN, 0.02, 0.03])[0])
    assert holm([]) == []


def test_holm_is_capped_at_one():
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_under_the_null_a_table_shows_any_difference_in_at_most_5_percent_of_cases():
    rng = np.random.default_rng(20261203)
    tables, metrics, alarms = 500, 20, 0
    for _ in range(tables):
        shared = rng.normal(size=(1, 10))  # the metrics of one experiment move together
        ours, theirs = (rng.normal(size=(metrics, 10)) + shared for _ in range(2))
        rows = [paired(a, b, margin=0.0, ratio=False) for a, b in zip(ours, theirs, strict=True)]
        alarms += any(row.verdict in (BETTER, WORSE) for row in judged(rows, {"metric": 1}))
    error = math.sqrt(0.05 * 0.95 / tables)  # 0.0097
    assert alarms / tables <= 0.05 + 3 * error


def test_pairing_shows_what_independent_runs_cannot():
    # A common component of sd 1 and own noise of sd 0.1: paired differences have sd 0.14, unpaired ones 1.42; the effect is 0.25.
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(20261204)
    with_pairs = without = 0
    for _ in range(200):
        demand = rng.normal(10.0, 1.0, size=10)
        ours, theirs = (demand + shift + rng.normal(0, 0.1, size=10) for shift in (0.25, 0.0))
        with_pairs += paired(ours, theirs, ratio=False).p < 0.05
        without += ttest_ind(ours, theirs, equal_var=False).pvalue < 0.05
    # noncentrality 0.25 / (0.1414 / sqrt(10)) = 5.6 at 9 df: power above 0.99. Unpaired: 0.25 / (1.42 / sqrt(10)) = 0.56, power about 0.08
    assert with_pairs / 200 > 0.97
    assert without / 200 < 0.15


# --- one difference ----------------------------------------------------------------------------------------


def one(ours, theirs, *, way=1, margin=0.02):
    return judged([paired(ours, theirs, margin=margin)], {"metric": way})[0]


def test_the_p_is_that_of_the_paired_t_test():
    from scipy.stats import ttest_rel

    ours, theirs = np.array([4.1, 5.0, 6.2, 4.4]), np.array([4.0, 4.6, 6.0, 4.5])
    assert paired_p(ours - theirs) == pytest.approx(ttest_rel(ours, theirs).pvalue, rel=1e-9)


def test_a_clear_gain_is_better_and_the_same_gain_is_worse_where_less_is_better():
    base = np.linspace(9.0, 11.0, 10)
    gain = base + np.linspace(0.9, 1.1, 10)
    assert one(gain, base).verdict == BETTER
    assert one(gain, base, way=-1).verdict == WORSE
    assert one(gain, base, way=0).verdict == "higher"


def test_exactly_equal_values_show_no_difference_even_in_one_replication():
    found = one([3.0, 4.0], [3.0, 4.0])
    assert (found.verdict, found.p, found.note.split(";")[0]) == (SAME, 1.0, "identical in every replication")
    assert one([3.0], [3.0]).verdict == SAME


def test_an_interval_within_the_margin_shows_no_difference_though_it_is_significant():
    base = np.full(10, 100.0)
    found = one(base + np.linspace(0.9, 1.1, 10), base)  # 1 % +- 0.05 %, margin 2 %
    assert found.p_holm < 1e-6
    assert found.verdict == SAME


def test_a_significant_difference_whose_interval_reaches_over_the_margin_but_whose_mean_does_not_is_inconclusive():
    # gaps 0.4 .. 3.4: mean 1.9 < margin 2, interval beyond 2, p < 0.001
    found = one(np.full(10, 100.0) + np.linspace(0.4, 3.4, 10), np.full(10, 100.0))
    assert found.p_holm < 0.05
    assert found.mean < found.margin < found.ci95[1]
    assert found.verdict == OPEN


def test_noise_without_effect_and_without_narrow_interval_is_inconclusive():
    assert one([1, 9, 2, 8], [5, 5, 5, 5]).verdict == OPEN


def test_one_replication_that_differs_is_inconclusive_and_says_why():
    found = one([5.0], [3.0])
    assert (found.verdict, found.ci95, found.note) == (OPEN, None, "one replication: no interval")
    assert math.isnan(found.p)


def test_a_constant_difference_counts_from_five_pairs_on():
    assert one([4.0] * 5, [3.0] * 5).verdict == BETTER
    few = one([4.0] * 4, [3.0] * 4)
    assert few.verdict == OPEN
    assert few.note == "the same difference in all 4 replications, too few to rely on"


def test_replications_undefined_under_one_policy_only_forbid_a_verdict_and_are_told():
    found = one([1.0, NAN, *[1.0] * 8], [2.0] * 10)
    assert found.verdict == OPEN
    assert found.pairs == 9
    assert "undefined in 1 of 10 replications, not the same ones under both policies" in found.note


def test_replications_undefined_under_both_alike_are_left_out_and_told():
    found = one([5.0, NAN, 5.5, 5.2, 5.1, 5.3], [3.0, NAN, 3.4, 3.3, 3.1, 3.2])
    assert (found.verdict, found.pairs) == (BETTER, 5)
    assert "undefined in 1 of 6 replications" in found.note


def test_an_infinite_value_is_no_pair():
    assert one([1.0, INF], [1.0, 2.0]).pairs == 1


def test_nothing_in_common_gives_a_difference_that_says_nothing():
    found = one([NAN, NAN], [1.0, 2.0])
    assert (found.pairs, found.verdict, found.ci95) == (0, OPEN, None)
    assert math.isnan(found.mean)


def test_a_baseline_of_zero_has_no_ratio_and_a_margin_of_zero():
    found = one([1.0, 2.0, 1.5], [0.0, 0.0, 0.0], way=-1)
    assert (found.margin, found.ratio_ci95) == (0.0, None)
    assert math.isnan(found.ratio)


def test_values_of_different_replications_are_refused():
    with pytest.raises(ValueError, match="same replications"):
        paired([1.0], [1.0, 2.0])


# --- ratios ------------------------------------------------------------------------------------------------


def test_the_bootstrap_of_a_ratio_is_the_same_every_time_and_holds_the_ratio():
    rng = np.random.default_rng(1)
    base = rng.gamma(4, 1, size=12)
    ours = base * rng.normal(1.5, 0.05, size=12)
    (low, high), note = ratio_interval(ours, base, "a/b/latency")
    assert ((low, high), note) == ratio_interval(ours, base, "a/b/latency")
    assert low < ours.mean() / base.mean() < high
    assert 1.4 < low < high < 1.6
    assert note == ""


def test_with_few_pairs_the_ratio_has_a_t_interval_and_says_so():
    ours, base = np.array([2.2, 2.0, 2.4]), np.array([1.0, 1.0, 1.0])
    found, note = ratio_interval(ours, base, "x")
    # mean difference 1.2, sd 0.2, t(0.975, 2 df) = 4.302653: half-width 4.302653 * 0.2 / sqrt(3) = 0.496828, over a baseline of 1
    assert found == pytest.approx((2.2 - 0.496828, 2.2 + 0.496828), abs=1e-5)
    assert note == "interval of the ratio from t, not bootstrap"


def test_a_constant_ratio_is_exact():
    base = np.linspace(1, 2, 10)
    found, _ = ratio_interval(3 * base, base, "x")
    assert found == pytest.approx((3.0, 3.0), rel=1e-12)


def test_the_bootstrap_of_ten_pairs_covers_about_nine_in_ten():
    # A BCa interval of ten pairs covers less than its nominal 95 %; 0.91 measured. Binomial error over 300: 0.017.
    rng = np.random.default_rng(20261205)
    hits = 0
    for k in range(300):
        demand = rng.gamma(4, 1, size=10)
        base, ours = demand * rng.gamma(20, 1 / 20, size=10), 1.2 * demand * rng.gamma(20, 1 / 20, size=10)
        (low, high), _ = ratio_interval(ours, base, f"case {k}")
        hits += low <= 1.2 <= high
    assert 0.85 <= hits / 300 <= 0.97


# --- precision ---------------------------------------------------------------------------------------------


def test_the_replications_for_a_precision_grow_with_the_square_of_the_width():
    found = estimate([1, 2, 3, 4, 5])  # half-width 1.963, mean 3: to 10 % (0.3) it takes 5 * (1.963 / 0.3)^2 = 214.1
    assert replications_for(found, 0.10) == 215
    assert replications_for(found, 1.0) == 0
    assert replications_for(estimate([1.0]), 0.1) == 10


def test_needs_more_asks_for_the_worst_policy():
    made = Made().policy("steady", {"goodput_per_s": [10.0, 10.0, 10.0, 10.0, 10.0]})
    made.policy("noisy", {"goodput_per_s": [1, 2, 3, 4, 5]})
    assert needs_more(made.compared(), 0.10) == 210
    assert needs_more(made.compared(), 1.0) == 0


# --- numbers as written ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "half_width", "text"),
    [
        (3.14159, 0.05, "3.14"),
        (3.14159, 0.5, "3.1"),
        (1234.5, 10, "1,230"),
        (1234.5, 1.0, "1,234"),
        (0.001234, 0.0001, "0.0012"),
        (-0.001, 0.5, "0.0"),
        (12.0, 0.0, "12"),
        (12345.0, None, "12,345"),
        (12345.6, None, "12,350"),
        (0.0456789, None, "0.04568"),
        (3.5, 1e-14, "3.5"),
        (0.0, 0.02, "0.00"),
        (0.0, None, "0"),
        (NAN, 1.0, "-"),
        (INF, None, "∞"),
        (99.999, 0.9, "100.0"),
    ],
)
def test_no_more_digits_are_written_than_the_interval_supports(value, half_width, text):
    assert digits(value, half_width) == text


@pytest.mark.parametrize("half_width", [0.0004, 0.02, 0.7, 3.0, 40.0])
def test_the_last_digit_written_is_of_the_size_of_the_half_width(half_width):
    step = 10 ** math.floor(math.log10(half_width))
    assert float(digits(512.34567, half_width).replace(",", "")) == pytest.approx(512.34567, abs=step / 2 * 1.0001)


def test_fractions_are_written_as_percent_and_money_with_its_sign():
    assert shown("success_rate", 0.98765, 0.002) == "98.8%"
    assert shown("cost_usd", 12.345, 0.1) == "$12.3"
    assert shown("stable", 1.0, 0.0) == "yes"
    assert shown("utilisation.gpu", NAN) == "-"
    assert with_unit("latency_s.p95", 12.345, 0.1) == "12.3 s"
    assert with_unit("goodput_per_s", 2.0) == "2/s"
    assert with_unit("starved", 3.0) == "3"


def test_metrics_have_directions_and_words():
    assert [direction(name) for name in ("goodput_per_s", "latency_s.p95", "utilisation.gpu", "my_own")] == [
        1,
        -1,
        0,
        0,
    ]
    assert words("latency_s.p95", {"class": "interactive"}) == "latency p95 of class interactive"


def test_a_metric_key_splits_into_metric_and_place():
    assert split_key("latency_s.p95[class=a b]") == ("latency_s.p95", {"class": "a b"})
    assert split_key("goodput_per_s") == ("goodput_per_s", {})
    with pytest.raises(UsageError, match="names no metric"):
        split_key("latency_s[class]")


# --- the comparison ----------------------------------------------------------------------------------------

BASE = [4.0, 4.1, 3.9, 4.2, 4.0, 4.1, 3.9, 4.0, 4.1, 4.0]
ZERO, TEN = [0.0] * 10, [10.0, 11, 9, 10, 12, 10, 9, 11, 10, 10]


def moved(factor, wobble=0.001):
    return [value * factor + wobble * (-1) ** k for k, value in enumerate(BASE)]


def ladder(**options):
    made = Made().policy("plain", {"goodput_per_s": BASE, "starved": TEN})
    made.policy("fair", {"goodput_per_s": moved(1.001), "starved": ZERO})
    made.policy("rich", {"goodput_per_s": moved(1.002), "starved": ZERO})
    return made.compared(**options)


def test_the_recommended_policy_is_the_simplest_that_is_level_and_loses_no_guard():
    found = ladder().recommendation
    assert (found.policy, found.tied) == ("fair", ("plain", "fair", "rich"))
    assert "starved tasks" in found.dropped["plain"]
    assert "no advantage of rich over it is shown" in found.sentence


def test_a_policy_that_is_clearly_behind_on_the_primary_metric_is_not_recommended_however_simple():
    made = Made().policy("plain", {"goodput_per_s": moved(0.6)}).policy("rich", {"goodput_per_s": BASE})
    found = made.compared().recommendation
    assert (found.policy, found.tied) == ("rich", ("rich",))
    assert found.dropped["plain"] == "goodput (2.42/s against 4.03/s under rich)"


def test_a_policy_that_fails_what_the_scenario_expects_is_not_recommended():
    failed = [FakeJudgement("x at most 1", False, "fair")]
    assert ladder(expectations=failed).recommendation.policy == "rich"
    control = [FakeJudgement("control plain fails", True, "plain", "control")]
    assert "plain" in ladder(expectations=control).recommendation.dropped


def test_when_all_policies_fail_their_expectations_the_recommendation_says_so():
    failed = [FakeJudgement("x", False, name) for name in ("plain", "fair", "rich")]
    found = ladder(expectations=failed).recommendation
    assert found.policy == "fair"
    assert "No policy here does what the scenario expects" in found.caution


@pytest.mark.parametrize("count", [1, 4])
def test_few_replications_recommend_by_the_margin_and_say_that_they_show_little(count):
    made = Made().policy("plain", {"goodput_per_s": [4.0] * count}).policy("rich", {"goodput_per_s": [4.05] * count})
    level = made.compared().recommendation
    assert level.policy == "plain"  # 1.2 % behind, margin 2 %
    assert "a first impression: run ten" in level.caution
    made.policy("richer", {"goodput_per_s": [5.0] * (count - 1) + [6.0]})  # far ahead, but four pairs prove little
    assert made.compared().recommendation.policy == "richer"


def test_a_recording_replayed_again_is_not_taken_for_evidence():
    made = Made().policy("plain", {"goodput_per_s": [4.0] * 10}).policy("rich", {"goodput_per_s": [5.0] * 10})
    often, once = made.compared(), made.compared()
    often.details["is_recorded"] = once.details["is_recorded"] = True
    once.replications = 1
    assert "All 10 replications are the same replay of one recording" in often.recommendation.caution
    assert once.recommendation.caution == "This is one recording: try others before you decide."
    assert "recording" not in made.compared().recommendation.caution


def test_a_tie_that_is_not_settled_is_called_so():
    noisy = [value + 0.4 * (-1) ** k for k, value in enumerate(BASE)]
    made = (
        Made()
        .policy("plain", {"goodput_per_s": BASE})
        .policy("rich", {"goodput_per_s": [value + 0.1 for value in noisy]})
    )
    found = made.compared().recommendation
    assert found.policy == "plain"
    assert "not shown to be behind that of rich" in found.reason
    assert "10 replications leave open how plain would compare with rich: more would tell." in found.caution


def test_the_recommendation_is_corrected_over_policies_and_not_over_the_whole_table():
    # scipy.stats.ttest_1samp of the gaps: p = 0.0445; alone that is shown, as one of six lines of a table (x 6) it is not
    gaps = [0.5, -0.1, 0.5, -0.2, 0.4, 0.2, 0.6, -0.1, 0.2, 0.1]
    values = {
        "goodput_per_s": BASE,
        **dict.fromkeys(("latency_s.p50", "latency_s.p95", "latency_s.p99", "wait_s.p95", "api_429"), BASE),
    }
    more = {
        name: [a + b for a, b in zip(BASE, gaps, strict=True)] if name == "goodput_per_s" else BASE for name in values
    }
    made = Made().policy("plain", values).policy("rich", more)
    table = {item.metric: item for item in made.compared().differences()}
    assert (len(table), table["goodput_per_s"].p) == (6, pytest.approx(0.0445, abs=0.0001))
    assert table["goodput_per_s"].verdict == OPEN
    assert made.compared().recommendation.policy == "rich"


def test_a_primary_metric_of_one_class_decides():
    def of(latency):
        return {"interactive": {"latency_s.p95": latency}, "batch": {"latency_s.p95": TEN}}

    made = Made().policy("plain", {"goodput_per_s": BASE}, by_class=of([v * 3 for v in BASE]))
    made.policy("fair", {"goodput_per_s": moved(0.9)}, by_class=of(BASE))
    found = made.compared(primary="latency_s.p95[class=interactive]").recommendation
    assert found.policy == "fair"
    assert "goodput" not in found.reason
    assert made.compared().recommendation.policy == "plain"


def test_the_price_of_a_recommendation_is_named():
    made = Made().policy("plain", {"goodput_per_s": moved(0.8), "false_completions": ZERO})
    made.policy("fast", {"goodput_per_s": BASE, "false_completions": TEN})
    found = made.compared().recommendation
    assert found.policy == "fast"
    assert found.caution == "Weigh what others do better: plain on false completions."


def test_unknown_names_are_refused_with_the_nearest():
    made = Made().policy("plain", {"goodput_per_s": BASE})
    with pytest.raises(UsageError, match="did you mean 'goodput_per_s'"):
        made.compared(primary="goodput_per_sec")
    with pytest.raises(UsageError, match="no policy 'fifo'"):
        made.compared(baseline="fifo")
    with pytest.raises(UsageError, match="no class 'x'"):
        made.compared(primary="goodput_per_s[class=x]")
    with pytest.raises(UsageError, match="no policy 'fifo'"):
        made.compared().differences("fifo")
    with pytest.raises(UsageError, match="nothing to compare"):
        Comparison("s", 1, 0, {}, "plain")


def test_each_rung_of_the_ladder_is_judged_against_the_one_below():
    rungs = ladder().ladder()
    assert [(rung.policy, rung.below, rung.earned) for rung in rungs] == [
        ("fair", "plain", "yes"),
        ("rich", "fair", "no"),
    ]
    assert rungs[0].gains == ("starved",)
    assert rungs[0].primary.verdict == SAME


def test_a_rung_that_gains_and_loses_is_mixed_and_a_noisy_one_not_shown():
    made = Made().policy("a", {"goodput_per_s": BASE, "starved": ZERO})
    made.policy("b", {"goodput_per_s": moved(1.5), "starved": TEN})
    made.policy("c", {"goodput_per_s": [value + (-2) ** (k % 3) for k, value in enumerate(moved(1.5))], "starved": TEN})
    assert [rung.earned for rung in made.compared().ladder()] == ["mixed", "not shown"]


def test_both_tables_are_corrected_as_a_whole_each():
    rng = np.random.default_rng(5)
    metrics = ("goodput_per_s", "success_rate", "starved")

    def values(shift):
        return {name: [4 + shift + x for x in rng.normal(0, 0.2, 10)] for name in metrics}

    def classes(shift):
        return {name: {"starved": [4 + shift + x for x in rng.normal(0, 0.2, 10)]} for name in ("a", "b")}

    made = Made().policy("base", values(0), by_class=classes(0))
    for name, shift in (("one", 0.1), ("two", 0.2)):
        made.policy(name, values(shift), by_class=classes(shift))
    table = made.compared().differences()
    overall, by_class = [item for item in table if not item.where], [item for item in table if item.where]
    assert (len(overall), len(by_class)) == (6, 4)  # 2 policies x 3 metrics; 2 policies x 2 classes x 1 metric
    for part in (overall, by_class):
        assert [item.p_holm for item in part] == pytest.approx(holm([item.p for item in part]))


def test_metrics_that_nobody_has_are_no_line_of_the_table():
    made = Made().policy("a", {"goodput_per_s": BASE, "latency_s.p95": [NAN] * 10})
    made.policy("b", {"goodput_per_s": BASE, "latency_s.p95": [NAN] * 10})
    assert [item.metric for item in made.compared().differences()] == ["goodput_per_s"]


def test_a_comparison_with_one_policy_has_no_differences_and_still_a_recommendation():
    only = Made().policy("a", {"goodput_per_s": BASE}).compared()
    assert (only.differences(), only.ladder()) == ([], [])
    assert only.recommendation.sentence == "Choose a: it is the only policy here, goodput (4.03/s)."


def test_the_tables_hold_every_policy_metric_and_group():
    frame = ladder().table()
    assert len(frame) == 6  # 3 policies x 2 metrics
    assert list(frame.columns) == ["policy", "metric", "mean", "ci95_low", "ci95_high", "undefined"]
    row = frame[(frame.policy == "plain") & (frame.metric == "starved")].iloc[0]
    assert row["mean"] == pytest.approx(10.2)  # (10+11+9+10+12+10+9+11+10+10) / 10
    assert len(ladder().differences_table()) == 4
    with pytest.raises(UsageError, match="expected class, tenant or pool"):
        ladder().table(by="planet")


# --- the document ------------------------------------------------------------------------------------------


def test_the_document_is_strict_json_of_the_stated_shape():
    made = Made().policy("a", {"goodput_per_s": [1.0, NAN], "latency_s.p95": [NAN, NAN], "recovery_s": [INF, 3.0]},
                         by_class={"x": {"starved": [0, 1]}}, by_tenant={"t": {"offered": [5, 5]}}, pools={"gpu": {"utilisation": [0.5, 0.7]}})  # fmt: skip
    found = json.loads(json.dumps(made.compared().to_json(), allow_nan=False))
    wanted = {"scenario", "seed", "replications", "versions", "policies", "differences", "expectations", "report"}
    assert wanted <= set(found)
    policy = found["policies"]["a"]
    assert set(policy) == {"metrics", "by_class", "by_tenant", "pools"}
    assert policy["metrics"]["goodput_per_s"] == {"mean": 1.0, "ci95": None, "values": [1.0, None]}
    assert policy["metrics"]["latency_s.p95"] == {"mean": None, "ci95": None, "values": [None, None]}
    assert policy["metrics"]["recovery_s"]["values"] == [None, 3.0]
    assert policy["by_class"]["x"]["starved"]["mean"] == 0.5
    assert policy["pools"]["gpu"]["utilisation"]["mean"] == pytest.approx(0.6)


def test_the_document_lists_the_largest_tenants_and_counts_the_rest():
    tenants = {f"t{k:03}": {"offered": [k]} for k in range(150)}
    found = Made().policy("a", {"goodput_per_s": [1.0]}, by_tenant=tenants).compared().to_json()["policies"]["a"]
    assert min(found["by_tenant"]) == "t050"  # the hundred with most runs are t050 .. t149
    assert found["by_tenant_left_out"] == 50


def test_the_document_is_the_same_twice():
    assert json.dumps(ladder().to_json(), sort_keys=True) == json.dumps(ladder().to_json(), sort_keys=True)
