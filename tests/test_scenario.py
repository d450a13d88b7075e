"""Scenario documents: every mistake refused at its place, all in one pass; and what a good one means."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from conftest import ROOT, TINY
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simkit.documents import DocumentErrors, load
from simkit.library import names
from simkit.model import NEVER_NS, NS_PER_S, BudgetSpec, FaultSpec, RetrySpec, UsageError
from simkit.policy import load_policy
from simkit.scenario import Scenario, load_scenario
from simkit.scenario.checks import Tenants
from simkit.trace.jsonl import write

RICH = """\
name: rich
about: Everything that a scenario can say.
seed: 7
horizon: 30m
warmup: 1m
replications: 4
primary: success_rate
margin: 5%
classes: {interactive: {starved_after: 10s}, background: {starved_after: 30m}}
platform:
  pools: {gpu: {slots: 8}, verifier: {slots: 2}, anything: {slots: unlimited}}
  apis:
    github:
      limits: [{requests: 60/min, burst: 10}, {tokens: 100_000/min, burst: 20000}]
      concurrency: 10
      latency: 200ms
      error_rate: 1%
      error_latency: 50ms
      hang_timeout: 60s
  budgets: {team: {usd: 50, per: day, for: {tenant: a}}, all: {usd: $5/10min}, once: {usd: 9}}
  tiers: {frontier: {pool: gpu, success: 0.98}, small: {pool: anything, speed: 2, price: 0.1, success: 0.9}}
workflows:
  coding:
    tasks:
      plan: {pool: gpu, service: {lognormal: {mean: 4s, cv: 1}}, tokens_in: 2000, tokens_out: 300, cost: $0.02, tier: frontier}
      search: {pool: anything, after: [plan], count: 8, optional: 5, service: {exp: {mean: 2s}}, demand: {github: 1}}
      verify: {pool: verifier, after: [search], verifies: true, service: 3s}
    defect: 10%
    detection: 95%
    max_rework: 2
workload:
  - {name: flood, tenant: a, class: background, workflow: coding, arrivals: {poisson: {rate: 2/min}}, until: 10m}
  - {name: people, tenants: {prefix: t, count: 100}, class: interactive, workflow: coding, arrivals: {even: {every: 60s}}, deadline: {factor: 3}}
  - {name: pings, class: interactive, task: {pool: github, service: 1s}, arrivals: {burst: {at: 5s, count: 3}}, deadline: 30s}
clients:
  - for: {class: interactive}
    patience: 10s
    retries: {attempts: 3, backoff: {base: 1s, cap: 30s, multiplier: 2, jitter: full}, budget: 10%}
    obey_retry_after: 90%
    sdk: {attempts: 2, base: 100ms}
  - {patience: 1h}
faults:
  - {at: 60s, for: 30s, what: {api: github, down: error}}
  - {at: 1m, for: 5m, what: {pool: verifier, slow: x10}}
  - {at: 1m, for: 5m, what: {pool: gpu, capacity: 4}}
  - {at: 60s, for: 10s, what: {pool: gpu, starts: nothing}}
  - {at: 0s, what: {api: github, allowance: 5%}}
  - {at: 100s, for: 10s, what: {reject: everything}}
policies:
  - fifo
  - {name: inline, order: {weighted_fair: {by: class, weights: {interactive: 5}}}, limits: [{share_cap: {fraction: 25%, pools: [gpu]}}]}
baseline: fifo
control: [fifo]
expect:
  - {metric: latency_s.p95, where: {tenant: a}, policy: inline, at_most: 500}
  - {metric: success_rate, policy: inline, better_than: fifo, by: 120%}
  - {metric: offered, policy: inline, equals: 5, tolerance: 2}
"""


def changed(before: str, after: str) -> str:
    """RICH with one piece of it changed; the piece must be there once."""
    assert RICH.count(before) == 1, before
    return RICH.replace(before, after)


def complaints(text: str, **options: Any) -> list[str]:
    """What is wrong with the text, without the file's name."""
    path = Path("s.yaml")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentErrors) as caught:
        load_scenario(path, **options)
    return [str(problem).removeprefix("s.yaml:") for problem in caught.value.problems]


# (piece, what it is changed to, complaints: "word -> message [dotted]", the word tells the place)
CASES: list[tuple[str, str, list[str]]] = [
    # the shape of the document
    ("seed: 7", "sed: 7", ["sed -> unknown key 'sed', did you mean 'seed'? [sed]"]),
    ("seed: 7", "seed: 7\nseed: 8", ["seed: 8 -> the key 'seed' is given twice (first at 3:1) [seed]"]),
    ("seed: 7", "seed: -7", ["-7 -> found -7, expected a whole number of 0 or more [seed]"]),
    ("seed: 7", "seed: 7.5", ["7.5 -> found 7.5, expected a whole number of 0 or more [seed]"]),
    ("name: rich", "name: true", ["true -> found True, expected a name (write it in quotes if it looks like a number or a truth value) [name]"]),
    ("name: rich", "name: 12", ["12 -> found 12, expected a name (write it in quotes if it looks like a number or a truth value) [name]"]),
    ("name: rich\n", "", ["about -> the key 'name' is missing [name]"]),
    ("horizon: 30m", "horizon:", ["horizon -> found nothing, expected a value (or no key) [horizon]"]),
    ("horizon: 30m", "horizon: 30", ["30\n -> found 30 without a unit, expected a duration such as 250ms, 30s, 5m or 1h30m [horizon]"]),
    ("warmup: 1m", "warmup: 5 parsecs", ["5 -> found '5 parsecs', expected a duration such as 250ms, 30s, 5m or 1h30m [warmup]"]),
    ("warmup: 1m", "warmup: -1m", ["-1m -> found '-1m', a duration cannot be negative [warmup]"]),
    ("warmup: 1m", "warmup: 30m", ["30m -> the warm-up must end before the horizon [warmup]"]),
    ("margin: 5%", "margin: .nan", [".nan -> found nan, expected a finite number [margin]"]),
    ("margin: 5%", "margin: 5", ["5\n -> found 5, expected a fraction from 0 to 1 such as 15% or 0.15 [margin]"]),
    ("replications: 4", "replications: 0", ["0 -> found 0, expected a whole number of 1 or more [replications]"]),
    ("background: {starved_after: 30m}", "backgrund: {starved_after: 30m}", ["backgrund -> there is no class 'backgrund', did you mean 'background'? [classes.backgrund]"]),
    ("primary: success_rate", "primary: goodput_pers", ["goodput_pers -> there is no metric 'goodput_pers', did you mean 'goodput_per_s'? [primary]"]),
    ("primary: success_rate", "primary: wait_s.p95[class=backgrund]", ["wait_s.p95[ -> there is no class 'backgrund', did you mean 'background'? [primary]"]),
    ("primary: success_rate", "primary: wait_s.p95[of=b]", ["wait_s.p95[ -> 'wait_s.p95[of=b]' names no metric: expected for example latency_s.p95 or latency_s.p95[class=interactive] [primary]"]),
    # the platform
    ("gpu: {slots: 8}", "gpu: {slot: 8}", ["gpu -> the key 'slots' is missing [platform.pools.gpu.slots]", "slot -> unknown key 'slot', did you mean 'slots'? [platform.pools.gpu.slot]"]),
    ("gpu: {slots: 8}", "gpu: {slots: yes}", ["yes -> found 'yes', expected a whole number of 1 or more, or unlimited [platform.pools.gpu.slots]"]),
    ("gpu: {slots: 8}", "gpu: {slots: true}", ["true -> found True, expected a whole number of 1 or more, or unlimited [platform.pools.gpu.slots]"]),
    ("gpu: {slots: 8}", "github: {slots: 8}, gpu: {slots: 8}", ["github:\n -> 'github' is a pool already: names must differ [platform.apis.github]"]),
    ("requests: 60/min, burst", "requests: 60, burst", ["60 -> found 60, expected a rate such as 10/s, 60/min or 2/h [platform.apis.github.limits.0.requests]"]),
    ("requests: 60/min, burst", "requests: 60/min, tokens: 5/s, burst", ["{requests -> expected exactly one of requests and tokens, such as {requests: 60/min, burst: 10} [platform.apis.github.limits.0]"]),
    ("concurrency: 10", "concurency: 10", ["concurency -> unknown key 'concurency', did you mean 'concurrency'? [platform.apis.github.concurency]"]),
    ("error_rate: 1%", "error_rate: 150%", ["150% -> found '150%', expected a fraction from 0 to 1 such as 15% or 0.15 [platform.apis.github.error_rate]"]),
    ("for: {tenant: a}}, all", "for: {tenant: aa}}, all", ["aa -> there is no tenant 'aa', did you mean 'a'? [platform.budgets.team.for.tenant]"]),
    ("for: {tenant: a}}, all", "for: {tenat: a}}, all", ["tenat -> found 'tenat', expected tenant or class, did you mean 'tenant'? [platform.budgets.team.for.tenat]"]),
    ("all: {usd: $5/10min}", "all: {usd: $5/10min, per: day}", ["day -> the window is given twice: in usd and here [platform.budgets.all.per]"]),
    ("once: {usd: 9}", "once: {usd: -9}", ["-9 -> found -9, expected an amount of dollars such as $50 or 0.02, or dollars per window such as $50/day or $5/h [platform.budgets.once.usd]"]),
    ("frontier: {pool: gpu", "frontier: {pool: gpus", ["gpus -> there is no pool or api 'gpus', did you mean 'gpu'? [platform.tiers.frontier.pool]"]),
    ("speed: 2, price: 0.1", "speed: 0, price: -1", ["0, -> found 0, expected a factor above 0 such as x10 or 0.5 [platform.tiers.small.speed]", "-1 -> found -1, expected a number of 0 or more [platform.tiers.small.price]"]),
    # workflows
    ("cv: 1}}, tokens_in", "cvv: 1}}, tokens_in", ["cvv -> unknown key 'cvv', did you mean 'cv'? [workflows.coding.tasks.plan.service.lognormal.cvv]"]),
    ("service: {exp: {mean: 2s}}", "service: {expo: {mean: 2s}}", ["expo -> unknown key 'expo', did you mean 'exp'? [workflows.coding.tasks.search.service.expo]"]),
    ("after: [plan]", "after: [paln]", ["paln -> after names 'paln', which the workflow does not have, did you mean 'plan'? [workflows.coding.tasks.search.after.0]"]),
    ("after: [plan]", "after: [verify]", ["coding:\n -> the tasks 'search', 'verify' wait for each other in a circle [workflows.coding]"]),
    ("optional: 5", "optional: 9", ["9 -> found 9 optional, but there are only 8 of the task [workflows.coding.tasks.search.optional]"]),
    ("plan: {pool: gpu", "plan: {pool: gpuu", ["gpuu -> there is no pool or api 'gpuu', did you mean 'gpu'? [workflows.coding.tasks.plan.pool]"]),
    ("plan: {pool: gpu", "plan: {slots: 9, pool: gpu", ["9 -> impossible demand: 9 slots of 'gpu', which has 8 [workflows.coding.tasks.plan.slots]"]),
    ("demand: {github: 1}", "demand: {github: 1, verifier: 3}", ["3}} -> impossible demand: 3 slots of 'verifier', which has 2 [workflows.coding.tasks.search.demand.verifier]"]),
    ("demand: {github: 1}", "demand: {github: 11}", ["11 -> impossible demand: 11 calls at once to 'github', which lets 10 through at once [workflows.coding.tasks.search.demand.github]"]),
    ("demand: {github: 1}", "demand: {githb: 1}", ["githb -> there is no pool or api 'githb', did you mean 'github'? [workflows.coding.tasks.search.demand.githb]"]),
    ("demand: {github: 1}", "demand: {github: 1}, tokens_in: 20001", ["20001 -> impossible demand: 20001 tokens a call to 'github', which lets 20000 through at once [workflows.coding.tasks.search.tokens_in]"]),
    ("tier: frontier}", "tier: frontir}", ["frontir -> there is no tier 'frontir', did you mean 'frontier'? [workflows.coding.tasks.plan.tier]"]),
    ("verifies: true", "verifies: yes", ["yes -> found 'yes', expected true or false [workflows.coding.tasks.verify.verifies]"]),
    ("workload:\n", "  spare: {tasks: {a: {pool: gpu, service: 1s}}}\nworkload:\n", ["spare -> no source uses the workflow 'spare' [workflows.spare]"]),
    # the workload
    ("class: background, workflow: coding", "class: background, workflow: codng", ["codng -> there is no workflow 'codng', did you mean 'coding'? [workload.0.workflow]"]),
    ("poisson: {rate: 2/min}", "poison: {rate: 2/min}", ["poison -> unknown key 'poison', did you mean 'poisson'? [workload.0.arrivals.poison]"]),
    ("rate: 2/min", "rate: -2/min", ["-2 -> found '-2/min', expected a rate such as 10/s, 60/min or 2/h [workload.0.arrivals.poisson.rate]"]),
    ("people, tenants", "flood, tenants", ["flood -> source 'flood' is there already: names must differ [workload.1.name]"]),
    ("deadline: 30s", "deadline: 30", ["30} -> found 30 without a unit, expected a duration such as 250ms, 30s, 5m or 1h30m, or a mapping [workload.2.deadline]"]),
    ("deadline: {factor: 3}", "deadline: {facto: 3}", ["deadline -> the key 'factor' is missing [workload.1.deadline.factor]", "facto -> unknown key 'facto', did you mean 'factor'? [workload.1.deadline.facto]"]),
    ("until: 10m", "start: 30m", ["30m -> source 'flood' starts after the horizon: it brings no run [workload.0.start]"]),
    ("until: 10m", "start: 11m, until: 10m", ["10m -> source 'flood': until must lie after start [workload.0.until]"]),
    ("task: {pool: github", "workflow: coding, task: {pool: github", ["{name: pings -> source 'pings': expected exactly one of workflow and task [workload.2]"]),
    ("  - {name: pings,", "  - {trace: x.jsonl}\n  - {name: pings,", ["workload: -> a recorded trace stands alone: it cannot be mixed with other sources [workload]"]),
    # clients
    ("for: {class: interactive}", "for: {class: [interactive, interactiv]}", ["interactiv] -> there is no class 'interactiv', did you mean 'interactive'? [clients.0.for.class.1]"]),
    ("for: {class: interactive}", "for: {}", ["{patience: 1h -> never used: clients.0 is for everybody, and the first that fits counts [clients.1]"]),
    ("attempts: 3, backoff", "attempts: 1, backoff", ["{base -> backoff has no effect with one attempt: set attempts to 2 or more [clients.0.retries.backoff]"]),
    ("base: 1s, cap: 30s", "cap: 30s", ["30s -> cap has no effect without base [clients.0.retries.backoff.cap]"]),
    ("base: 1s, cap: 30s", "base: 1m, cap: 30s", ["30s -> cap must not be below base [clients.0.retries.backoff.cap]"]),
    ("sdk: {attempts: 2, base", "sdk: {base", ["100ms -> base has no effect with one attempt: set attempts to 2 or more [clients.0.sdk.base]"]),
    # faults
    ("down: error", "down: eror", ["eror -> found 'eror', expected error or hang, did you mean 'error'? [faults.0.what.down]"]),
    ("api: github, down: error", "api: githb, down: error", ["githb -> there is no api 'githb', did you mean 'github'? [faults.0.what.api]"]),
    ("slow: x10", "slow: x0", ["x0 -> found 'x0', expected a factor above 0 such as x10 or 0.5 [faults.1.what.slow]"]),
    ("capacity: 4", "capacity: 4, slow: x2", ["{pool: gpu, capacity -> found 2 faults, expected exactly one of down, slow, capacity, starts, allowance, reject [faults.2.what]"]),
    ("pool: gpu, capacity: 4", "pool: anything, capacity: 4", ["4} -> pool 'anything' is unlimited [faults.2.what.capacity]"]),
    ("at: 100s", "at: 30m", ["30m -> the fault begins after the horizon: it has no effect [faults.5.at]"]),
    ("at: 100s, for: 10s", "at: 100s, for: 0s", ["0s, what -> found '0s', expected a duration above 0 [faults.5.for]"]),
    # policies and expectations
    ("  - fifo\n", "  - fifoo\n", ["fifoo -> there is no policy 'fifoo', did you mean 'fifo'? [policies.0]"]),
    ("  - fifo\n", "  - fifo\n  - fifo\n", ["fifo\n  - {name -> policy 'fifo' is there already: names must differ [policies.1]"]),
    ("  - fifo\n", "  - fifo\n  - 5\n", ["5 -> found 5, expected the name of a policy, a file or a policy [policies.1]"]),
    ("  - fifo\n", "  - fifo\n  - ../../../etc/passwd\n", ["../../../etc -> there is no policy '../../../etc/passwd' [policies.1]"]),
    ("by: class, weights", "by: clas, weights", ["clas -> found 'clas', expected tenant or class, or a list, did you mean 'class'? [policies.1.order.weighted_fair.by]"]),
    ("weights: {interactive: 5}", "weights: {interactve: 5}", ["interactve -> policy 'inline': there is no class 'interactve' in this scenario, did you mean 'interactive'? [policies.1.order.weighted_fair.weights.interactve]"]),
    ("pools: [gpu]}", "pools: [gpuu]}", ["gpuu -> policy 'inline': there is no pool or api 'gpuu' in this scenario, did you mean 'gpu'? [policies.1.limits.0.share_cap.pools.0]"]),
    ("baseline: fifo", "baseline: fifi", ["fifi -> there is no policy 'fifi', did you mean 'fifo'? [baseline]"]),
    ("control: [fifo]", "control: [lifo]", ["lifo -> there is no policy 'lifo', did you mean 'fifo'? [control.0]"]),
    ("where: {tenant: a}", "where: {tenant: t100}", ["t100 -> there is no tenant 't100', did you mean 't0'? [expect.0.where.tenant]"]),
    ("where: {tenant: a}", "where: {pool: gpuu}", ["gpuu -> there is no pool or api 'gpuu', did you mean 'gpu'? [expect.0.where.pool]"]),
    ("policy: inline, at_most", "policy: inlne, at_most", ["inlne -> there is no policy 'inlne', did you mean 'inline'? [expect.0.policy]"]),
    ("at_most: 500", "at_most: 500, at_least: 3", ["{metric: latency -> found 2 bounds, expected exactly one of at_most, at_least, equals, better_than [expect.0]"]),
    ("better_than: fifo", "better_than: inline", ["inline, by -> policy 'inline' cannot be better than itself [expect.1.better_than]"]),
    ("metric: latency_s.p95", "metric: latencys.p95", ["latencys -> there is no metric 'latencys.p95', did you mean 'latency_s'? [expect.0.metric]"]),
    ("metric: success_rate", "metric: offered", ["offered -> 'offered' has no better and worse: use at_least, at_most or equals [expect.1.metric]"]),
    ("at_most: 500", "at_most: 500, tolerance: 1", ["1} -> tolerance goes with equals [expect.0.tolerance]"]),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    inner = tmp_path / "project" / "scenarios"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)


@pytest.mark.parametrize(
    ("before", "after", "expected"), CASES, ids=[f"{after}"[:50].replace("\n", "; ") for _, after, _ in CASES]
)
def test_a_mistake_is_refused_at_its_place_with_what_was_expected(before, after, expected):
    found = complaints(changed(before, after))
    wanted = []
    for line in expected:
        word, _, message = line.partition(" -> ")
        wanted.append(f"{place_of(changed(before, after), after, word)}: {message}")
    assert [re.sub(r" \(looked at [^)]*\)| \(the library has [^)]*\)", "", line) for line in found] == wanted


def place_of(text: str, after: str, word: str) -> str:
    """line:column of `word`: where it begins in or around the changed piece."""
    start = text.index(after) if after else 0
    line_start = text.rfind("\n", 0, start) + 1
    for begin in (start, line_start, 0):
        place = text.find(word, begin)
        if place >= 0 and (begin == 0 or place <= text.find("\n", start + len(after))):
            return f"{text.count(chr(10), 0, place) + 1}:{place - text.rfind(chr(10), 0, place)}"
    raise AssertionError(word)


def test_there_are_many_cases():
    assert len(CASES) >= 70


def test_every_kind_of_mistake_is_told_in_one_pass():
    text = RICH
    for before, after in (
        ("seed: 7", "sed: 7"),  # unknown key
        ("margin: 5%", "margin: 5%\nmargin: 6%"),  # duplicate key
        ("name: rich", "name: true"),  # truth value by accident
        ("error_rate: 1%", "error_rate: .nan"),  # NaN
        ("warmup: 1m", "warmup: -1m"),  # negative duration
        ("plan: {pool: gpu", "plan: {slots: 9, pool: gpu"),  # impossible demand
        ("after: [plan]", "after: [paln]"),  # dangling task
        ("pool: verifier, after", "pool: verifer, after"),  # dangling pool
        ("class: background, workflow: coding", "class: background, workflow: codng"),  # dangling workflow
        ("tier: frontier}", "tier: frontir}"),  # dangling tier
        ("weights: {interactive: 5}", "weights: {interactve: 5}"),  # dangling class in a policy
        ("  - fifo\n", "  - fifoo\n"),  # dangling policy
        ("rate: 2/min", "rate: 2"),  # no unit
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    found = complaints(text)
    dotted = [re.search(r"\[([^\[\]]*)\]$", line)[1] for line in found]  # type: ignore[index]
    assert dotted == [
        "name", "sed", "warmup", "margin", "platform.apis.github.error_rate", "workflows.coding.tasks.plan.slots",
        "workflows.coding.tasks.plan.tier", "workflows.coding.tasks.search.after.0", "workflows.coding.tasks.verify.pool",
        "workload.0.workflow", "workload.0.arrivals.poisson.rate", "policies.0", "policies.1.order.weighted_fair.weights.interactve",
    ]  # fmt: skip
    assert all(re.match(r"\d+:\d+: ", line) for line in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", ["1:1: the key 'name' is missing [name]", "1:1: the key 'platform' is missing [platform]", "1:1: the key 'workload' is missing [workload]"]),
        ("name: x\nplatform: {}\nworkload: []\n", ["2:1: the platform has no pools and no apis [platform]", "3:1: the workload is empty [workload]"]),
        ("name: x\nplatform: {pools: {p: {slots: 1}}}\nworkload: 5\n", ["3:11: found 5, expected a list [workload]"]),
        ("name: x\nplatform: {pools: {p: {slots: 1}}}\nworkload: [5]\n", ["3:12: found 5, expected a mapping [workload.0]"]),
        ("name: x\nplatform: 5\nworkload: [{name: s}]\npolicies: []\nfaults: 3\n", [
            "2:11: found 5, expected a mapping [platform]",
            "3:12: the key 'arrivals' is missing [workload.0.arrivals]",
            "4:1: found no policy, expected at least one [policies]",
            "5:9: found 3, expected a list [faults]",
        ]),
        (TINY.replace("control: fifo", "control: lifo"), ["10:10: there is no policy 'lifo', did you mean 'fifo'? [control]"]),
        (TINY.replace("expect:", "faults:"), None),
        (TINY.replace("count: 20, ", ""), ["7:5: source 'people' never ends: give it until or count, or set horizon [workload.0]"]),
        (TINY[: TINY.index("expect:")], ["10:1: a control has no effect without expect lines [control]"]),
    ],
)  # fmt: skip
def test_documents_with_whole_parts_missing_or_wrong_are_refused_too(text, expected):
    found = complaints(text)
    assert expected is None or found == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("policies:\n", "policies: 5\nspare:\n", ["49:11: found 5, expected a list [policies]", "50:1: unknown key 'spare'"]),
        ("  pools: {gpu: {slots: 8}, verifier: {slots: 2}, anything: {slots: unlimited}}", "  pools: [gpu]", ["11:10: found ['gpu'], expected a mapping [platform.pools]"]),
    ],
)  # fmt: skip
def test_what_follows_from_an_unreadable_table_is_not_told(before, after, expected):
    found = complaints(changed(before, after))
    assert len(found) == len(expected)
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True))


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**20), st.floats(), st.text(max_size=3), st.sampled_from(["5s", "10%", "x2", "1/s", "gpu", "fifo"]),
    st.lists(st.integers(0, 3), max_size=2), st.dictionaries(st.sampled_from(["a", "gpu", "rate", "for", "pools"]), st.integers(0, 3), max_size=2),
)  # fmt: skip


def paths(node: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place for key, item in inner for place in ((*here, key), *paths(item, (*here, key)))]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_stands_in_a_document_it_is_a_scenario_or_a_list_of_problems(data):
    document = load(RICH).data
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(paths(document)))
        node = document
        for step in way:
            node = node[step]
        if data.draw(st.booleans()):
            del node[last]
        else:
            node[last] = data.draw(JUNK)
    loaded, problems = outcome(document)
    assert problems if loaded is None else re.fullmatch("[0-9a-f]{32}", loaded.digest)


def outcome(document: Any) -> tuple[Scenario | None, list[Any]]:
    """The scenario, or what is wrong with it. Nothing else may come of a document."""
    try:
        return load_scenario(document), []
    except DocumentErrors as error:
        return None, error.problems


def test_a_missing_scenario_is_told_with_the_nearest():
    with pytest.raises(UsageError, match=r"there is no scenario 'quickstrat', did you mean 'quickstart'\?"):
        load_scenario("quickstrat")


# --- policies that meet a scenario -------------------------------------------------------------------------


def scenario(text: str = RICH, **options: Any) -> Scenario:
    Path("s.yaml").write_text(text, encoding="utf-8")
    return load_scenario(Path("s.yaml"), **options)


@pytest.mark.parametrize("name", names("policies"))
def test_a_library_policy_goes_with_any_scenario(name):
    assert scenario().with_policies([load_policy(name)]).policies[0].name == name


def policy_file(text: str) -> Path:
    path = Path("mine.yaml")
    path.write_text(f"name: mine\n{text}\n")
    return path


def test_a_policy_file_may_name_classes_that_are_not_here_but_not_by_a_slip_of_the_pen():
    general = policy_file("order: {weighted_fair: {by: class, weights: {incident: 10, interactive: 5}}}")
    assert scenario().with_policies([load_policy(general)])
    slip = policy_file("order: {weighted_fair: {by: class, weights: {incident: 10, interactiv: 5}}}")
    with pytest.raises(DocumentErrors) as caught:
        scenario().with_policies([load_policy(slip)])
    assert str(caught.value) == (
        "mine.yaml:2:60: policy 'mine': there is no class 'interactiv' in this scenario, did you mean 'interactive'? "
        "[order.weighted_fair.weights.interactiv]"
    )


def test_two_similar_names_that_a_policy_both_has_are_no_slip():
    both = policy_file("order: {weighted_fair: {by: class, weights: {interactive: 5, interactive2: 3}}}")
    assert scenario().with_policies([load_policy(both)])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("order: {pools: {gpuu: lifo}}", "mine.yaml:2:17: policy 'mine': there is no pool or api 'gpuu' in this scenario, did you mean 'gpu'?"),
        ("limits: [{reserve: {pool: verify, for: {class: b}, slots: 1}}]", "mine.yaml:2:27: policy 'mine': there is no pool or api 'verify'"),
        ("overload: {hysteresis: {modes: {m: {enter: 2, leave: 1}}, do: {m: [{tier: smal}]}}}", "policy 'mine': there is no tier 'smal' in this scenario, did you mean 'small'?"),
    ],
)  # fmt: skip
def test_pools_and_tiers_that_a_policy_names_must_be_there(text, complaint):
    with pytest.raises(DocumentErrors, match=re.escape(complaint)):
        scenario().with_policies([load_policy(policy_file(text))])
    whole = RICH.replace("  - fifo\n", "  - fifo\n  - mine.yaml\n")
    assert complaint in complaints_with_file(whole)


def complaints_with_file(text: str) -> str:
    Path("s.yaml").write_text(text)
    with pytest.raises(DocumentErrors) as caught:
        load_scenario(Path("s.yaml"))
    return str(caught.value)


def test_a_tier_means_nothing_on_a_platform_without_tiers():
    text = TINY.replace("policies: [fifo, strict_priority]", "policies: [fifo, strict_priority, backpressure]")
    assert scenario(text).policies[-1].name == "backpressure"


def test_policies_can_be_replaced_with_what_follows_from_that():
    loaded = scenario()
    fewer = loaded.with_policies([load_policy("lifo.yaml", relative_to=other()), loaded.policy("inline")])
    assert ([policy.name for policy in fewer.policies], fewer.baseline, fewer.control) == (
        ["lifo", "inline"],
        "lifo",
        (),
    )
    assert [line.metric for line in fewer.expect] == ["latency_s.p95", "offered"]
    with pytest.raises(UsageError, match="two policies are called 'inline'"):
        loaded.with_policies([loaded.policy("inline"), loaded.policy("inline")])
    with pytest.raises(UsageError, match="found no policy, expected at least one"):
        loaded.with_policies([])


def other() -> Path:
    Path("lifo.yaml").write_text("name: lifo\norder: lifo\n")
    return Path.cwd()


def test_a_policy_of_a_scenario_is_found_by_name():
    with pytest.raises(
        UsageError, match=r"the scenario has no policy 'inlin', did you mean 'inline'\? \(it has fifo, inline\)"
    ):
        scenario().policy("inlin")


def test_policy_files_are_found_beside_the_scenario_and_in_the_folders_beside_it():
    policies = Path("../policies")
    policies.mkdir()
    (policies / "theirs.yaml").write_text("name: theirs\n")
    other()
    loaded = scenario(RICH.replace("  - fifo\n", "  - fifo\n  - lifo.yaml\n  - ../policies/theirs.yaml\n"))
    assert [policy.name for policy in loaded.policies] == ["fifo", "lifo", "theirs", "inline"]


def test_a_file_further_away_is_not_reached():
    Path("../../far.yaml").write_text("name: far\n")
    found = complaints(RICH.replace("  - fifo\n", "  - fifo\n  - ../../far.yaml\n"))
    assert "a document may name files below its own folder and the folders beside it" in found[0]


def test_code_in_an_inline_policy_is_loaded_only_when_that_is_allowed():
    code = "from dataclasses import dataclass\nfrom simkit.mechanisms import RankOrder, mechanism\n"
    code += "@mechanism('mine')\n@dataclass(eq=False)\nclass Mine(RankOrder):\n    def rank(self, task, now_s):\n        return 0\n"
    Path("mine.py").write_text(code)
    text = RICH.replace("  - fifo\n", "  - fifo\n  - {name: own, order: mine.py@Mine}\n")
    assert complaints(text) == [
        "51:24: 'mine.py@Mine' is Python code: run with --allow-code to load it [policies.1.order]"
    ]
    assert scenario(text, allow_code=True).policies[1].order.cls.__name__ == "Mine"


# --- what a scenario means ---------------------------------------------------------------------------------


def test_the_document_becomes_specs_in_base_units():
    loaded = scenario()
    platform = loaded.platform
    assert (loaded.seed, loaded.horizon_ns, loaded.warmup_ns, loaded.replications) == (
        7,
        1800 * NS_PER_S,
        60 * NS_PER_S,
        4,
    )
    assert (loaded.margin, loaded.primary, loaded.baseline, loaded.control) == (0.05, "success_rate", "fifo", ("fifo",))
    assert [(pool.name, pool.slots) for pool in platform.pools] == [("gpu", 8), ("verifier", 2), ("anything", None)]
    github = platform.apis[0]
    assert [(limit.unit, limit.per_s, limit.burst) for limit in github.limits] == [
        ("requests", 1.0, 10),
        ("tokens", 100_000 / 60, 20000),
    ]
    assert (github.concurrency, github.latency_ns, github.error_p, github.hang_timeout_ns) == (
        10,
        200 * 10**6,
        0.01,
        60 * NS_PER_S,
    )
    assert platform.budgets == (
        BudgetSpec("team", 50.0, 86400 * NS_PER_S, {"tenant": ("a",)}),
        BudgetSpec("all", 5.0, 600 * NS_PER_S, {}),
        BudgetSpec("once", 9.0, None, {}),
    )
    assert [(tier.name, tier.pool, tier.speed, tier.price, tier.success_p) for tier in platform.tiers] == [
        ("frontier", "gpu", 1.0, 1.0, 0.98), ("small", "anything", 2.0, 0.1, 0.9),
    ]  # fmt: skip
    client = loaded.clients[0]
    assert (client.for_, client.patience_ns, client.obey_retry_after) == (
        {"class": ("interactive",)},
        10 * NS_PER_S,
        0.9,
    )
    assert client.retry == RetrySpec(3, NS_PER_S, 30 * NS_PER_S, 2.0, "full", 0.1)
    assert client.sdk == RetrySpec(2, 10**8, 0, 2.0, "none", None)
    minute = 60 * NS_PER_S
    assert loaded.faults == (
        FaultSpec(minute, 30 * NS_PER_S, "github", "down", "error"),
        FaultSpec(minute, 5 * minute, "verifier", "slow", 10.0),
        FaultSpec(minute, 5 * minute, "gpu", "capacity", 4),
        FaultSpec(minute, 10 * NS_PER_S, "gpu", "stall", "nothing"),
        FaultSpec(0, NEVER_NS, "github", "allowance", 0.05),
        FaultSpec(100 * NS_PER_S, 10 * NS_PER_S, "", "reject_all", "everything"),
    )
    assert {name: spec.starved_after_ns for name, spec in loaded.classes.items()} == {
        "interactive": 10 * NS_PER_S, "background": 1800 * NS_PER_S,
    }  # fmt: skip


def test_expectations_read_as_sentences_and_know_their_lines():
    found = [(line.text, line.line) for line in scenario().expect]
    first = RICH.splitlines().index("expect:") + 2
    assert found == [
        ("latency_s.p95 of tenant a under inline at most 500", first),
        ("success_rate under inline better than under fifo by 120%", first + 1),
        ("offered under inline equals 5 within 2", first + 2),
    ]


def test_what_is_left_out_has_a_plain_default():
    loaded = scenario(
        "name: x\nplatform: {pools: {p: {slots: 1}}}\nworkload: [{name: s, task: {pool: p, service: 1s}, arrivals: {at: [0s]}}]\n"
    )
    assert (loaded.seed, loaded.replications, loaded.horizon_ns, loaded.warmup_ns) == (1, 10, NEVER_NS, 0)
    assert ([policy.name for policy in loaded.policies], loaded.baseline, loaded.margin, loaded.primary) == (
        ["fifo"],
        "fifo",
        0.02,
        "goodput_per_s",
    )


def test_the_trace_of_a_replication_depends_on_its_number_and_the_seed():
    loaded = scenario()
    assert loaded.trace(0).digest() == loaded.trace(0).digest()
    assert len({loaded.trace(0).digest(), loaded.trace(1).digest(), loaded.trace(0, seed=8).digest()}) == 3


def test_plain_data_in_python_is_a_scenario_too():
    data = load(RICH).data
    assert load_scenario(data).digest == scenario().digest
    with pytest.raises(DocumentErrors) as caught:
        load_scenario({**data, "sed": 1, "warmup": -1})
    assert str(caught.value) == (
        "<scenario>: found -1 without a unit, expected a duration such as 250ms, 30s, 5m or 1h30m [warmup]\n"
        "<scenario>: unknown key 'sed', did you mean 'seed'? [sed]"
    )


def test_a_scenario_reaches_another_process():
    loaded = scenario()
    again = pickle.loads(cloudpickle.dumps(loaded))  # as the workers get it
    assert (again.digest, again.trace().digest()) == (loaded.digest, loaded.trace().digest())
    assert again.with_policies([load_policy("edf")]).policies[0].name == "edf"


def test_tenants_of_a_range_are_asked_for_and_never_listed():
    tenants = Tenants()
    tenants.add({"name": "s", "tenants": {"prefix": "t", "count": 10**12}})
    tenants.add({"name": "alone"})
    assert [name in tenants for name in ("t0", "t999999999999", "t1000000000000", "t01", "t", "t-1", "alone")] == [
        True, True, False, False, False, False, True,
    ]  # fmt: skip
    assert list(tenants) == ["alone", "t0", "t999999999999"]


# --- digests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("horizon: 30m", "horizon: 1800s"),
        ("requests: 60/min", "requests: 1/s"),
        ("about: Everything that a scenario can say.", "about: Other words."),
        ("seed: 7", "seed: 8"),
        ("replications: 4", "replications: 5"),
        ("margin: 5%", "margin: 6%"),
        ("  - fifo\n", "  - fifo\n  - edf\n"),
        ("at_most: 500", "at_most: 501"),
        ("price: 0.1, success: 0.9", "success: 0.9, price: 0.1"),
        ("frontier: {pool: gpu", "frontier: {pool: gpu, speed: 1"),
        ("service: 3s", "service: {deterministic: 3s}"),
    ],
)
def test_the_digest_does_not_depend_on_words_layout_or_how_it_is_judged(before, after):
    assert scenario(changed(before, after)).digest == scenario(RICH).digest


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("horizon: 30m", "horizon: 31m"),
        ("gpu: {slots: 8}", "gpu: {slots: 7}"),
        ("cv: 1}", "cv: 2}"),
        ("rate: 2/min", "rate: 3/min"),
        ("slow: x10", "slow: x11"),
        ("obey_retry_after: 90%", "obey_retry_after: 91%"),
        ("background: {starved_after: 30m}", "background: {starved_after: 31m}"),
        ("warmup: 1m", "warmup: 2m"),
        ("defect: 10%", "defect: 11%"),
    ],
)
def test_the_digest_changes_with_what_the_scenario_does(before, after):
    assert scenario(changed(before, after)).digest != scenario(RICH).digest


# --- overrides and recorded traces -------------------------------------------------------------------------


def test_overrides_change_what_they_name():
    loaded = scenario(
        overrides=[
            "platform.pools.gpu.slots=4",
            "workload.flood.until=5m",
            "workflows.coding.tasks.search.count=9",
            "horizon=20m",
        ]
    )
    assert loaded.platform.pools[0].slots == 4
    assert loaded.workload is not None
    assert loaded.workload.sources[0].until == 300 * NS_PER_S
    assert loaded.workload.workflows["coding"].tasks["search"].count == 9
    assert loaded.digest != scenario().digest


def test_what_is_wrong_with_an_override_is_told_at_the_override():
    with pytest.raises(DocumentErrors) as caught:
        scenario(
            RICH.replace("margin: 5%", "margin: 5"), overrides=["platform.pools.gpu.slots=0", "seed=x", "baseline=fifi"]
        )
    assert str(caught.value).splitlines() == [
        "--set baseline=fifi: there is no policy 'fifi', did you mean 'fifo'? [baseline]",
        "--set platform.pools.gpu.slots=0: found 0, expected a whole number of 1 or more, or unlimited [platform.pools.gpu.slots]",
        "--set seed=x: found 'x', expected a whole number of 0 or more [seed]",
        "s.yaml:8:9: found 5, expected a fraction from 0 to 1 such as 15% or 0.15 [margin]",
    ]


def test_a_scenario_that_is_loaded_already_cannot_be_overridden():
    loaded = scenario()
    assert load_scenario(loaded) is loaded
    with pytest.raises(UsageError, match="overrides and a trace are for a scenario that is loaded now"):
        load_scenario(loaded, overrides=["seed=3"])


RECORDED = "name: r\nplatform: {pools: {gpu: {slots: 8}, verifier: {slots: 2}, anything: {slots: unlimited}}, apis: {github: {}}, tiers: {frontier: {pool: gpu}}}\nworkload: [{trace: x.jsonl.gz}]\n"


def test_a_recorded_trace_is_the_demand_of_every_replication():
    trace = scenario().trace()
    write(trace, "x.jsonl.gz")
    loaded = scenario(RECORDED)
    assert loaded.trace(0).digest() == loaded.trace(5).digest() == trace.digest()
    assert (loaded.replications, loaded.workload) == (1, None)
    assert scenario(RECORDED + "replications: 5\n").replications == 5  # as stated
    before = loaded.digest
    write(scenario().trace(1), "x.jsonl.gz")
    assert scenario(RECORDED).digest != before  # the digest is of what is in the file


def test_a_recorded_trace_must_be_there():
    assert complaints(RECORDED)[0].startswith("3:20: there is no trace 'x.jsonl.gz'")


def test_a_trace_can_be_given_instead_of_the_workload():
    write(scenario().trace(), "x.jsonl.gz")
    loaded = scenario(trace="x.jsonl.gz")
    assert loaded.trace().digest() == scenario().trace().digest()
    assert loaded.recorded == Path("x.jsonl.gz")
    with pytest.raises(UsageError, match=r"there is no trace 'y.jsonl.gz'"):
        scenario(trace="y.jsonl.gz")


def test_the_digest_does_not_say_where_files_lie():
    write(scenario().trace(), "x.jsonl.gz")
    here = scenario(RECORDED).digest
    Path("elsewhere").mkdir()
    Path("x.jsonl.gz").rename("elsewhere/x.jsonl.gz")
    assert scenario(RECORDED.replace("x.jsonl.gz", "elsewhere/x.jsonl.gz")).digest == here


def test_arrivals_of_a_file_must_be_there():
    text = changed("even: {every: 60s}", "empirical: {file: y.jsonl}")
    assert "there is no trace 'y.jsonl'" in complaints(text)[0]
    write(scenario().trace(), "y.jsonl")
    assert scenario(text).trace()


@pytest.mark.parametrize("name", names("scenarios"))
def test_a_shipped_scenario_goes_by_its_file_name(name):
    loaded = load_scenario(name)
    assert loaded.name == name
    assert loaded.about
    assert loaded.path is not None
    assert loaded.path.resolve() == ROOT / "scenarios" / f"{name}.yaml"


def test_other_parts_of_a_scenario_can_be_replaced():
    assert replace(scenario(), seed=9).seed == 9
