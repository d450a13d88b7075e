"""Synthesis: graphs, estimates, deadlines, caches, tenants; and that nothing draws from anybody else's stream."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from trace_samples import workload

from simkit.documents import DocumentErrors
from simkit.model import NS_PER_S, UsageError
from simkit.rng import Streams
from simkit.trace.jsonl import _run_lines
from simkit.trace.synth import synthesise
from simkit.trace.table import Trace
from simkit.trace.workload import SourceSpec, TaskSpec, WorkflowSpec, Workload

GRAPH = """
workflows:
  coding:
    tasks:
      verify: {pool: verifier, after: [search], verifies: true, service: 3s}
      plan: {pool: gpu, slots: 2, service: {lognormal: {mean: 4s, cv: 1}}, tokens_in: 2000, tokens_out: {exp: {mean: 300}}, cost: $0.02, tier: frontier}
      search: {pool: browser, after: [plan], count: 8, optional: 5, service: {exp: {mean: 2s}}, demand: {github: 1}, cache_key: {pool_of: 10, scope: public}}
    defect: 10%
    detection: 95%
    max_rework: 2
workload:
  - {name: people, class: interactive, priority: 7, workflow: coding, arrivals: {poisson: {rate: 1/s}}, count: 20, deadline: 30s}
"""


def trace_of(text: str, *, seed: int = 1, replication: int = 0, horizon_s: float | None = None) -> Trace:
    horizon = {} if horizon_s is None else {"horizon_ns": round(horizon_s * NS_PER_S)}
    return synthesise(workload(text), streams=Streams(seed, replication), **horizon)


def source(text: str, name: str = "s", **more: Any) -> str:
    """One line of a workload; `text` is its task."""
    settings = {
        "arrivals": "{poisson: {rate: 10/s}}",
        "count": "200",
        **{key.rstrip("_"): value for key, value in more.items()},
    }
    return f"  - {{name: {name}, {', '.join(f'{key}: {value}' for key, value in settings.items())}, task: {text}}}\n"


def runs_of(trace: Trace, name: str) -> list[str]:
    """The runs of one source as they would be written: everything about them."""
    return [line for line in _run_lines(trace) if line.startswith(f'{{"run_id": "{name}-')]


SIMPLE = "{pool: p, service: {exp: {mean: 1s}}}"


# --- what is made ------------------------------------------------------------------------------------------


def test_a_workflow_becomes_its_tasks_in_topological_order():
    trace = trace_of(GRAPH)
    names = [trace.task_ids[code] for code in trace.tasks.task_id[:10]]
    assert names == ["plan", *(f"search.{k}" for k in range(1, 9)), "verify"]
    assert trace.runs.first_task.tolist() == list(range(0, 201, 10))
    pointers, after = trace.tasks.after_ptr, trace.tasks.after
    for number in range(20):
        base = 10 * number
        waits = [(after[pointers[base + k] : pointers[base + k + 1]] - base).tolist() for k in range(10)]
        assert waits == [[], *([[0]] * 8), list(range(1, 9))]


def test_the_last_instances_are_the_optional_ones():
    assert trace_of(GRAPH).tasks.optional[:10].tolist() == [False] * 4 + [True] * 5 + [False]


def test_settings_arrive_in_the_columns():
    trace = trace_of(GRAPH)
    tasks, runs = trace.tasks, trace.runs
    assert [trace.demands[code] for code in tasks.demand[[0, 1, 9]]] == [{"gpu": 2}, {"github": 1}, {}]
    assert [trace.pools[code] for code in tasks.pool[[0, 1, 9]]] == ["gpu", "browser", "verifier"]
    assert tasks.verifies[:10].tolist() == [False] * 9 + [True]
    assert tasks.tokens_in[:2].tolist() == [2000, 0]
    assert tasks.tokens_out[::10].min() >= 1
    assert tasks.cost_usd[:2].tolist() == [0.02, 0.0]
    assert trace.tiers == ["frontier"]
    assert tasks.tier[:2].tolist() == [0, -1]
    assert (tasks.cache_key[1:9] >= 0).all()
    assert tasks.cache_key[0] == -1
    assert tasks.public[:2].tolist() == [False, True]
    assert set(runs.priority.tolist()) == {7}
    assert (set(runs.defect_p), set(runs.detect_p), set(runs.max_rework)) == ({0.1}, {0.95}, {2})
    assert set(runs.deadline_ns.tolist()) == {30 * NS_PER_S}
    assert (trace.classes, trace.tenants, trace.workflows) == (["interactive"], ["people"], ["coding"])


def test_the_own_pool_may_stand_in_the_demand():
    short, long = (
        TaskSpec.model_validate({"pool": "g", "service": "1s", **more}) for more in ({"slots": 2}, {"demand": {"g": 2}})
    )
    assert short.full_demand == long.full_demand == {"g": 2}


def test_sources_are_merged_by_arrival_and_ties_keep_their_order():
    text = (
        "workload:\n"
        + source(SIMPLE, "b", arrivals="{burst: {at: 1s, count: 2}}")
        + source(SIMPLE, "a", arrivals="{at: [0, 1s]}")
    )
    assert trace_of(text).runs.run_id == ["a-0", "b-0", "b-1", "a-1"]


def test_the_horizon_ends_what_has_no_end():
    text = "workload:\n" + source(SIMPLE).replace(", count: 200", "")
    assert trace_of(text, horizon_s=5).runs.arrival_ns.max() < 5 * NS_PER_S
    with pytest.raises(UsageError, match="source 's' never ends"):
        trace_of(text)


def test_a_workload_without_a_run_is_refused():
    with pytest.raises(UsageError, match="makes no run at all"):
        trace_of("workload:\n" + source(SIMPLE, arrivals="{at: [10s]}"), horizon_s=5)


# --- estimates, deadlines, keys, tenants -------------------------------------------------------------------


def test_an_estimate_is_the_mean_unless_said_otherwise():
    tasks = trace_of("workload:\n" + source(SIMPLE)).tasks
    assert set(tasks.estimate_ns.tolist()) == {NS_PER_S}
    assert len(set(tasks.service_ns.tolist())) == 200


@pytest.mark.parametrize(("estimate", "expected"), [("exact", None), ("7s", 7 * NS_PER_S)])
def test_an_estimate_may_be_exact_or_a_duration(estimate, expected):
    tasks = trace_of("workload:\n" + source(f"{{pool: p, service: {{exp: {{mean: 1s}}}}, estimate: {estimate}}}")).tasks
    assert tasks.estimate_ns.tolist() == (tasks.service_ns.tolist() if expected is None else [expected] * 200)


def test_a_noisy_estimate_errs_by_a_lognormal_factor_of_mean_one():
    n, cv = 100_000, 0.5
    text = source("{pool: p, service: {uniform: {low: 5s, high: 15s}}, estimate: {error_cv: 0.5}}", count=n)
    tasks = trace_of("workload:\n" + text).tasks
    factor = tasks.estimate_ns / tasks.service_ns
    assert abs(factor.mean() - 1) < 4 * cv / math.sqrt(n)
    # log of the factor is normal with variance ln(1 + cv^2); its sample variance has relative standard error sqrt(2/n)
    assert abs(np.log(factor).var() / math.log1p(cv**2) - 1) < 4 * math.sqrt(2 / n)
    assert abs(np.corrcoef(factor, tasks.service_ns)[0, 1]) < 4 / math.sqrt(n)


def test_a_deadline_factor_multiplies_the_estimated_critical_path():
    # mean estimates: 4 s + max of eight 2 s + 3 s = 9 s
    trace = trace_of(GRAPH.replace("deadline: 30s", "deadline: {factor: 3}"))
    assert set(trace.runs.deadline_ns.tolist()) == {27 * NS_PER_S}


@pytest.mark.parametrize("zipf", [None, 1.2])
def test_cache_keys_are_drawn_from_the_pool_with_the_stated_chances(zipf):
    n, kinds = 50_000, 20
    law = f"{{pool_of: {kinds}" + (f", zipf: {zipf}}}" if zipf else "}")
    trace = trace_of("workload:\n" + source(f"{{pool: p, service: 1s, cache_key: {law}}}", count=n))
    items = np.array([int(trace.cache_keys[code].rsplit("/", 1)[1]) for code in trace.tasks.cache_key])
    chances = np.arange(1, kinds + 1) ** -(zipf or 0.0)
    chances /= chances.sum()
    shares = np.bincount(items, minlength=kinds) / n
    assert (np.abs(shares - chances) < 4.5 * np.sqrt(chances * (1 - chances) / n)).all()  # 20 binomials at once
    assert not trace.tasks.public.any()


def test_tenants_share_a_source_as_stated():
    n = 50_000
    trace = trace_of("workload:\n" + source(SIMPLE, tenants="{prefix: t, count: 3, zipf: 1}", count=n))
    counts = np.bincount(trace.runs.tenant)
    by_name = {name: counts[code] / n for code, name in enumerate(trace.tenants)}
    for name, share in {"t0": 6 / 11, "t1": 3 / 11, "t2": 2 / 11}.items():  # 1 : 1/2 : 1/3
        assert abs(by_name[name] - share) < 4 * math.sqrt(share * (1 - share) / n)


def test_two_sources_with_the_same_laws_are_independent():
    trace = trace_of("workload:\n" + source(SIMPLE, "a", count=20_000) + source(SIMPLE, "b", count=20_000))
    service = {name: trace.tasks.service_ns[[run.startswith(name) for run in trace.runs.run_id]] for name in "ab"}
    assert abs(np.corrcoef(service["a"], service["b"])[0, 1]) < 4 / math.sqrt(20_000)
    assert len(service["a"]) == 20_000
    assert len(set(trace.runs.luck.tolist())) == 40_000


def test_tokens_and_service_times_of_a_task_are_independent():
    text = source(
        "{pool: p, service: {exp: {mean: 1s}}, tokens_in: {exp: {mean: 9000}}, tokens_out: {exp: {mean: 9000}}}",
        count=20_000,
    )
    tasks = trace_of("workload:\n" + text).tasks
    table = np.corrcoef([tasks.service_ns, tasks.tokens_in, tasks.tokens_out])
    assert np.abs(table[np.triu_indices(3, 1)]).max() < 4 / math.sqrt(20_000)


# --- nobody draws from anybody else's stream ---------------------------------------------------------------

VICTIM = source("{pool: p, service: {hyperexp: {mean: 1s, cv: 2}}, tokens_in: {gamma: {mean: 100, cv: 2}}, estimate: {error_cv: 1}, "
                "cache_key: {pool_of: 50}}", "victim", tenants="{prefix: t, count: 9}", arrivals="{gamma: {rate: 5/s, cv: 2}}")  # fmt: skip
_sources = st.lists(
    st.tuples(
        st.sampled_from(
            ["poisson: {rate: 20/s}", "gamma: {rate: 1/s, cv: 3}", "burst: {at: 1s, count: 9}", "even: {rate: 3/s}"]
        ),
        st.sampled_from(["exp: {mean: 1s}", "lognormal: {mean: 9s, cv: 2}", "deterministic: 1s"]),
        st.integers(1, 50),
    ),
    max_size=3,
)


@settings(max_examples=25, deadline=None)
@given(_sources, st.booleans())
def test_other_sources_change_nothing_of_a_source(others, in_front):
    alone = runs_of(trace_of("workload:\n" + VICTIM), "victim")
    lines = [source(f"{{pool: q, service: {{{law}}}}}", f"o{k}", arrivals=f"{{{arrivals}}}", count=count) for k, (arrivals, law, count) in enumerate(others)]  # fmt: skip
    text = "workload:\n" + ("".join(lines) + VICTIM if in_front else VICTIM + "".join(lines))
    assert runs_of(trace_of(text), "victim") == alone


@pytest.mark.parametrize("change", [{"count": 37}, {"until": "9s"}, {"count": 1000}])
def test_more_or_fewer_runs_begin_with_the_same_runs(change):
    text = "workload:\n" + VICTIM
    changed = text.replace("count: 200", ", ".join(f"{key}: {value}" for key, value in change.items()))
    first, second = runs_of(trace_of(text), "victim"), runs_of(trace_of(changed), "victim")
    shorter = min(len(first), len(second))
    assert shorter > 10
    assert len(first) != len(second)
    assert first[:shorter] == second[:shorter]


def test_a_task_added_to_a_workflow_leaves_the_other_tasks_as_they_were():
    wider = GRAPH.replace(
        "    defect:", "      extra: {pool: gpu, after: [plan], service: {exp: {mean: 9s}}}\n    defect:"
    )
    before, after = trace_of(GRAPH), trace_of(wider)

    def service(trace: Trace, name: str) -> list[int]:
        return trace.tasks.service_ns[trace.tasks.task_id == trace.task_ids.index(name)].tolist()

    for name in ("plan", "search.1", "search.8"):
        assert service(after, name) == service(before, name)
    assert after.runs.arrival_ns.tolist() == before.runs.arrival_ns.tolist()


def test_a_slash_in_a_name_cannot_make_two_streams_one():
    # source "a" with task "b/c" and source "a/b" with task "c" would both be "service/a/b/c"
    text = """
workflows:
  w1: {tasks: {"b/c": {pool: p, service: {exp: {mean: 1s}}}}}
  w2: {tasks: {"c": {pool: p, service: {exp: {mean: 1s}}}}}
workload:
  - {name: a, workflow: w1, arrivals: {even: {every: 1s}}, count: 5}
  - {name: a/b, workflow: w2, arrivals: {even: {every: 1s}}, count: 5}
"""
    service = trace_of(text).tasks.service_ns
    assert service[0::2].tolist() != service[1::2].tolist()


def test_a_replication_alone_is_that_replication_of_many():
    alone = trace_of(GRAPH, replication=3).digest()
    of_many = [trace_of(GRAPH, replication=k).digest() for k in range(5)]
    assert of_many[3] == alone
    assert len(set(of_many)) == 5
    assert trace_of(GRAPH, seed=2, replication=3).digest() != alone


# --- what is refused ---------------------------------------------------------------------------------------


def flow(**tasks: dict[str, Any]) -> dict[str, Any]:
    return {"tasks": {name: {"pool": "p", "service": "1s", **task} for name, task in tasks.items()}}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"tasks": {}}, "at least one task"),
        (flow(a={"after": ["b"]}), "after names 'b'"),
        (flow(a={"after": ["b"]}, b={"after": ["a"]}), "the tasks 'a', 'b' wait for each other in a circle"),
        (flow(a={}, b={"after": ["a", "a"]}), "after names a task twice"),
        (flow(a={"count": 2}, **{"a.1": {}}), "two tasks would be called 'a.1'"),
        ({**flow(a={}), "max_rework": 1}, "max_rework has no effect"),
        ({**flow(a={}), "detection": "50%"}, "detection has no effect"),
        (flow(a={"count": 2, "optional": 3}), "there are only 2"),
        (flow(a={"verifies": True, "optional": 1}), "cannot be optional"),
        (flow(a={"slots": 2, "demand": {"p": 2}}), "slots and demand both say"),
        (flow(a={"demand": {"q": 0}}), "1 or more"),
        (flow(a={"tokens_in": -1}), "0 or more"),
        (flow(a={"estimate": "average"}), "estimate"),
        (flow(a={"cache_key": {"pool_of": 3, "scope": "all"}}), "'public' or 'tenant'"),
        (flow(a={"service": "5 parsecs"}), "found '5 parsecs', expected a duration"),
        (flow(a={"poool": "x"}), "Extra inputs are not permitted"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_workflow_that_cannot_be_is_refused(document, message):
    with pytest.raises(ValidationError) as caught:
        WorkflowSpec.model_validate(document)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": None}, "exactly one of workflow and task"),
        ({"workflow": "w"}, "exactly one of workflow and task"),
        ({"tenant": "x", "tenants": {"prefix": "t", "count": 2}}, "tenant or tenants, not both"),
        ({"task": {"pool": "p", "service": "1s", "after": ["x"]}}, "comes after nothing"),
        ({"start": "5s", "until": "5s"}, "until must lie after start"),
        ({"until": 5}, "without a unit"),
        ({"count": 0}, "1 or more"),
        ({"name": True}, "expected a name"),
        ({"deadline": {"factor": 0}}, "factor above 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_source_that_cannot_be_is_refused(change, message):
    document = {"name": "s", "arrivals": {"even": {"every": "1s"}}, "task": {"pool": "p", "service": "1s"}, **change}
    with pytest.raises(ValidationError) as caught:
        SourceSpec.model_validate({key: value for key, value in document.items() if value is not None})
    assert message in str(caught.value)


def test_sources_need_names_of_their_own_and_workflows_that_exist():
    spec = SourceSpec.model_validate({"name": "s", "arrivals": {"at": [0]}, "workflow": "w"})
    graph = WorkflowSpec.model_validate(flow(a={}))
    with pytest.raises(ValidationError, match="two sources are called 's'"):
        Workload(sources=[spec, spec], workflows={"w": graph})
    with pytest.raises(ValidationError, match="there is no workflow 'w'"):
        Workload(sources=[spec], workflows={})


def test_a_wrong_source_is_named_by_document_and_key():
    with pytest.raises(DocumentErrors, match="arrivals"):
        workload("workload: [{name: s, arrivals: {poison: {rate: 1/s}}, task: {pool: p, service: 1s}}]")
