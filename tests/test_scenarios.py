"""The shipped scenarios: they load, their expectations hold for the good policies, and their controls fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from simkit.api import compare
from simkit.compare import Comparison
from simkit.policy import load_policy
from simkit.scenario import Scenario, load_scenario
from simkit.trace import jsonl
from simkit.trace.importers.azure_llm import import_azure_llm

ROOT = Path(__file__).resolve().parent.parent
SCENARIOS = sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml"))
POLICIES = sorted(path.stem for path in (ROOT / "policies").glob("*.yaml"))
LOAD_TESTS = ("noisy_neighbor", "verification_saturation", "external_rate_limit", "priority_flood", "retry_storm")
LADDER = ("fifo", "strict_priority", "weighted_fair", "weighted_fair_admission", "backpressure")
AZURE = ROOT.parent / "shared" / "traces" / "azure-llm-2023"


def bad(comparison: Comparison, kind: str) -> list[str]:
    """Texts of the judgements of a kind that did not come out as they must."""
    return [f"{line.text}: {line.shown}" for line in comparison.expectations if line.kind == kind and not line.ok]


def judged(scenario: Scenario | str, replications: int, policies: list[str] | None = None) -> Comparison:
    return compare(scenario, policies, replications, jobs=1)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_loads_and_makes_a_trace(name: str) -> None:
    scenario = load_scenario(ROOT / "scenarios" / f"{name}.yaml")
    assert scenario.name == name
    assert len(scenario.trace(0)) > 0
    first = (ROOT / "scenarios" / f"{name}.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=scenario.schema.json"


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_loads_and_says_what_it_is_for(name: str) -> None:
    policy = load_policy(name)
    assert (policy.name, policy.version >= 1) == (name, True)
    assert policy.about
    first = (ROOT / "policies" / f"{name}.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=policy.schema.json"


@pytest.mark.parametrize("name", LOAD_TESTS)
def test_the_load_tests_compare_the_whole_ladder_and_have_a_control(name: str) -> None:
    scenario = load_scenario(name)
    names = [policy.name for policy in scenario.policies]
    assert [policy for policy in names if policy in LADDER] == list(LADDER)
    assert scenario.control
    assert scenario.expect
    assert {line.policy for line in scenario.expect}.isdisjoint(scenario.control)


@pytest.mark.parametrize(
    ("name", "replications"),
    # few, but enough for the intervals of the "better than" lines: with two the t quantile is 12.7, with three 4.3
    [("noisy_neighbor", 2), ("verification_saturation", 3), ("external_rate_limit", 3), ("priority_flood", 3), ("retry_storm", 3)],
)  # fmt: skip
def test_good_policies_meet_the_expectations_and_controls_do_not(name: str, replications: int) -> None:
    comparison = judged(name, replications)
    assert bad(comparison, "expectation") == []
    assert bad(comparison, "control") == []
    assert all(line.value >= 2 for line in comparison.expectations if line.kind == "control")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_runs_on_every_kind_of_platform(policy: str) -> None:
    """General: no policy names a pool, an API or a tier that some platform lacks, except the tier `small`, which is a convention."""
    for name in ("quickstart", "external_rate_limit", "priority_flood"):
        scenario = load_scenario(name, overrides=["seed=3", "workload.0.count=20"])
        assert judged(scenario, 1, [policy]).metric(policy, "offered").mean > 0


# --- noisy neighbour ---------------------------------------------------------------------------------------


def b_waits(policy: str, backlog: int) -> float:
    scenario = load_scenario(
        "noisy_neighbor", overrides=[f"workload.0.arrivals={{burst: {{at: 0s, count: {backlog}}}}}"]
    )
    return judged(scenario, 1, [policy]).metric(policy, "wait_s.max", {"tenant": "b"}).mean


def test_the_neighbours_backlog_is_felt_under_fifo_and_not_under_fair_shares() -> None:
    # 2000 and 4000 runs of 2 s on 16 slots, 1.1 times each: 275 and 550 s; b's first run (at 30 s) waits for all but what is done by then.
    # Backlogs that outlast b's first runs only: the difference of the waits is that of the backlogs, 275 s.
    short, long = b_waits("fifo", 2000), b_waits("fifo", 4000)
    assert long - short == pytest.approx(275, rel=0.15)
    fair = [b_waits("weighted_fair", backlog) for backlog in (2000, 4000)]
    assert abs(fair[1] - fair[0]) <= 2.0  # one service time of a


# --- retry storm: both sides of lambda = C / (1 + k) -------------------------------------------------------


def storm(factor: float) -> Comparison:
    """The storm with all arrival rates times `factor`."""
    rates = {0: 6, 1: 3, 2: 1}
    overrides = [f"workload.{number}.arrivals.poisson.rate={rate * factor:g}/s" for number, rate in rates.items()]
    return judged(load_scenario("retry_storm", overrides=overrides), 2, ["fifo", "backpressure"])


def test_naive_retries_recover_below_the_edge_and_stay_down_above() -> None:
    # C = 40 / 2 s = 20/s and k = 3, so the edge is at 5/s: 0.4 x 10 = 4/s lies below it, 10/s above
    below, above = storm(0.4), storm(1.0)
    # below: 30 of 420 s are lost (7 %), and nothing else
    assert below.metric("fifo", "success_rate").mean > 0.9
    assert max(below.values("fifo", "recovery_s")) <= 10
    assert above.metric("fifo", "success_rate").mean < 0.4  # 120 s before of 420 s, and little more
    assert all(value != value for value in above.values("fifo", "recovery_s"))  # never


def test_the_queue_of_a_storm_is_bounded_under_backpressure_only() -> None:
    above = storm(1.0)
    # (40 - 20)/s for the 30 s of the outage and the 270 s after it: 6000 sessions, less those given up by clients without retries left
    assert min(above.values("fifo", "queue_depth_max.sandbox")) > 3000
    assert max(above.values("backpressure", "queue_depth_max.sandbox")) < 400


# --- scenarios with textbook answers, and the small ones ---------------------------------------------------


@pytest.mark.parametrize("name", ["mm1", "mmc"])
def test_queues_of_the_textbook_come_out_within_three_standard_errors(name: str) -> None:
    comparison = judged(name, 10, ["fifo", "lifo"])
    assert len(comparison.expectations) == 3
    assert bad(comparison, "expectation") == []


@pytest.mark.parametrize("name", ["mm1", "mmc"])
def test_a_throttled_textbook_queue_is_noticed(name: str) -> None:
    scenario = load_scenario(name, overrides=["horizon=6000s"])
    comparison = judged(scenario, 1)
    assert bad(comparison, "control") == []


def test_quickstart_shows_what_it_claims() -> None:
    comparison = judged("quickstart", 5)
    assert [line.text for line in comparison.expectations if not line.ok] == []


# --- replay ------------------------------------------------------------------------------------------------


def test_replay_runs_the_ladder_on_its_sample() -> None:
    comparison = judged("replay", 1)
    waits = {policy: comparison.metric(policy, "wait_s.p95", {"tenant": "code"}).mean for policy in comparison.policies}
    # fair shares keep the small tenant (8 % of the work, due half) out of the large one's queue; one class and no priorities make strict priority fifo
    assert waits["strict_priority"] == waits["fifo"] > 5
    assert waits["weighted_fair"] < waits["fifo"] / 5
    assert waits["drr"] < waits["fifo"] / 2


@pytest.mark.skipif(not AZURE.is_dir(), reason="the recorded Azure traces are not here")
def test_replay_runs_the_recorded_azure_traffic(tmp_path: Path) -> None:
    trace = import_azure_llm([AZURE / f"AzureLLMInferenceTrace_{name}.csv" for name in ("code", "conv")])
    jsonl.write(trace, tmp_path / "azure.jsonl.gz")
    comparison = judged(load_scenario("replay", trace=tmp_path / "azure.jsonl.gz"), 1)
    assert comparison.metric("fifo", "offered").mean == 28_185  # 8,819 + 19,366 rows of the files
    assert comparison.policies == [*LADDER, "drr"]
    fifo = comparison.metric("fifo", "wait_s.p95", {"tenant": "code"}).mean
    assert comparison.metric("weighted_fair", "wait_s.p95", {"tenant": "code"}).mean < fifo / 5
