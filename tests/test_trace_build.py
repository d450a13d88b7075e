"""Building traces from arrays and from plain records."""

import numpy as np
import pytest

from simkit.model import UsageError
from simkit.trace.build import chain, from_runs, single_task
from simkit.trace.jsonl import read, write
from simkit.trace.records import RecordErrors
from simkit.trace.table import Trace

S = 1_000_000_000


def run(**changes: object) -> dict[str, object]:
    return {"run_id": "a", "arrival_s": 0, "tasks": [{"pool": "p", "service_s": 1}], **changes}


def with_task(**changes: object) -> dict[str, object]:
    return run(tasks=[{"pool": "p", "service_s": 1, **changes}])


def names_after(trace: Trace) -> dict[str, list[str]]:
    """Of the first run: task id -> ids it waits for."""
    tasks, end = trace.tasks, int(trace.runs.first_task[1])
    ids = [trace.task_ids[code] for code in tasks.task_id[:end]]
    pointers = tasks.after_ptr
    return {ids[n]: [ids[before] for before in tasks.after[pointers[n] : pointers[n + 1]]] for n in range(end)}


def test_single_tasks_keep_the_arrays_they_are_made_from():
    trace = single_task([0, 5, 5], [3, 1, 2], tenant=["x", "y", "x"], priority=[1, 2, 3], estimate_ns=[9, 9, 9])
    assert trace.runs.arrival_ns.tolist() == [0, 5, 5]
    assert trace.tasks.service_ns.tolist() == [3, 1, 2]
    assert trace.tasks.estimate_ns.tolist() == [9, 9, 9]
    assert [trace.tenants[code] for code in trace.runs.tenant] == ["x", "y", "x"]
    assert trace.runs.priority.tolist() == [1, 2, 3]


def test_slots_are_a_demand_on_the_own_pool():
    trace = single_task([0, 1, 2], [1, 1, 1], pool="gpu", slots=[2, 1, 2])
    assert [trace.demands[code] for code in trace.tasks.demand] == [{"gpu": 2}, {}, {"gpu": 2}]


def test_a_chain_passes_through_its_pools_in_order():
    trace = chain([0, 1], [[1, 2, 3], [4, 5, 6]], ["a", "b", "a"])
    assert [trace.pools[code] for code in trace.tasks.pool] == ["a", "b", "a"] * 2
    assert trace.tasks.after_ptr.tolist() == [0, 0, 1, 2, 2, 3, 4]
    assert trace.tasks.after.tolist() == [0, 1, 3, 4]
    assert trace.runs.first_task.tolist() == [0, 3, 6]


@pytest.mark.parametrize(("arrival", "service"), [([1, 0], [1, 1]), ([-1], [1]), ([0], [-1]), ([0, 1], [1])], ids=str)
def test_arrays_that_are_no_trace_are_refused(arrival, service):
    with pytest.raises(ValueError, match=r"sorted|negative|length"):
        single_task(arrival, service)


def test_names_that_are_fewer_than_the_runs_are_refused():
    with pytest.raises(ValueError, match="2 arrivals, 1 names"):
        single_task([0, 1], [1, 1], tenant=["a"])


def test_tasks_are_put_in_topological_order_and_otherwise_stay_as_given():
    tasks = [
        {"task_id": "join", "after": ["left", "right"], "pool": "p", "service_s": 1},
        {"task_id": "right", "after": ["root"], "pool": "p", "service_s": 1},
        {"task_id": "root", "pool": "p", "service_s": 1},
        {"task_id": "left", "after": ["root"], "pool": "p", "service_s": 1},
    ]
    trace = from_runs([run(tasks=tasks)])
    assert [trace.task_ids[code] for code in trace.tasks.task_id] == ["root", "right", "left", "join"]
    assert names_after(trace) == {"root": [], "right": ["root"], "left": ["root"], "join": ["right", "left"]}
    assert bool(np.all(trace.tasks.after < np.repeat(np.arange(4), np.diff(trace.tasks.after_ptr))))


def test_seconds_become_the_nearest_nanosecond_once():
    # 0.1 + 0.2 in binary is 0.30000000000000004: 300000000.00000004 ns, rounded 300000000
    trace = from_runs([run(arrival_s=0.1 + 0.2), run(run_id="b", arrival_s=1234567.123456789, deadline_ns=7)])
    assert trace.runs.arrival_ns.tolist() == [300_000_000, 1_234_567_123_456_789]
    assert trace.runs.deadline_ns.tolist() == [-1, 7]


@pytest.mark.parametrize("halves", [1, 3, 5, 7, 9, 25, 125])
def test_a_float_means_the_decimal_that_it_is_written_as(halves, tmp_path):
    # n/2 ns: a tie, which the binary neighbour of the decimal would break either way; half to even
    written = f"{halves * 5}e-10"
    trace = from_runs([run(arrival_s=float(written))])
    assert trace.runs.arrival_ns.tolist() == [round(halves / 2)]
    header = '{"schema": "simkit.trace/1"}\n'
    (tmp_path / "t.jsonl").write_text(
        header + f'{{"run_id": "a", "arrival_s": {written}, "tasks": [{{"pool": "p", "service_s": 1}}]}}'
    )
    assert read(tmp_path / "t.jsonl").digest() == trace.digest()


def test_defaults_are_those_of_the_trace_document():
    trace = from_runs([{"arrival_s": 0, "tasks": [{"pool": "p", "service_s": 2}]}])
    assert (trace.tenants, trace.classes, trace.runs.run_id) == (["default"], ["default"], ["r0"])
    assert trace.runs.deadline_ns.tolist() == [-1]
    assert trace.tasks.estimate_ns.tolist() == [2 * S]
    assert trace.runs.detect_p.tolist() == [1.0]


def test_one_slot_of_the_own_pool_is_no_demand():
    plain, spelt_out = from_runs([with_task()]), from_runs([with_task(demand={"p": 1})])
    assert plain.digest() == spelt_out.digest()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (run(arrival_s=-1), "arrival_s: found -1, a time cannot be negative"),
        (run(arrival_s=float("nan")), "arrival_s: found nan, expected finite seconds"),
        (run(arrival_s=1e300), "longer than any simulated time"),
        (run(arrival_s=True), "arrival_s: found True, expected seconds"),
        (run(arrival_s="0"), "arrival_s: found '0', expected seconds"),
        (run(arrival_ns=0), "given twice"),
        (run(priority=1.5), "priority: found 1.5, expected a whole number"),
        (run(priority=10**30), "priority: found 1"),
        (run(luck=-1), "luck: found -1"),
        (run(luck=2**64), "luck: found"),
        (run(defect_p=1.01), "defect_p: found 1.01, expected a number from 0 to 1"),
        (run(max_rework=1), "max_rework has no effect without a task that verifies"),
        (run(detect_p=0.5), "detect_p has no effect without a task that verifies"),
        (run(tenant=""), "tenant: found '', expected text"),
        (run(tenant="a\nb"), "without control characters"),
        (run(tenant="\ud800"), "without control characters"),
        (run(tenat="x"), "unknown key 'tenat', did you mean 'tenant'"),
        (run(tasks=[]), "tasks: found []"),
        ({"run_id": "a", "tasks": [{"pool": "p", "service_s": 1}]}, "arrival_s is missing"),
        ({"run_id": "a", "arrival_s": 0}, "tasks is missing"),
        (run(tasks=[{"service_s": 1}]), "pool is missing"),
        (run(tasks=[{"pool": "p"}]), "service_s is missing"),
        (with_task(service_s=-0.5), "service_s: found -0.5, a time cannot be negative"),
        (with_task(estimate_s=float("inf")), "estimate_s: found inf"),
        (with_task(tokens_in=-1), "tokens_in: found -1"),
        (with_task(tokens_out=1.0), "tokens_out: found 1.0"),
        (with_task(cost_usd=-1), "cost_usd: found -1"),
        (with_task(cost_usd=float("nan")), "cost_usd: found nan"),
        (with_task(cost_usd=10**400), "cost_usd: found"),
        (with_task(demand={"q": 0}), "whole numbers of 1 or more"),
        (with_task(demand={"q": 1.5}), "whole numbers of 1 or more"),
        (with_task(demand=["q"]), "demand: found"),
        (with_task(public=True), "public has no effect without a cache_key"),
        (with_task(optional=1), "optional: found 1, expected true or false"),
        (with_task(optional=True, verifies=True), "a verification cannot be optional"),
        (with_task(after="x"), "expected a list of task ids"),
        (with_task(after=["x"]), "after names 'x', which the run does not have"),
        (with_task(task_id="x", after=["x"]), "wait for each other in a circle"),
        (with_task(poool="x"), "unknown key 'poool', did you mean 'pool'"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_a_record_that_is_no_run_is_refused(record, message):
    with pytest.raises(UsageError) as caught:
        from_runs([record])
    assert message in str(caught.value)


def test_a_circle_names_the_tasks_in_it():
    tasks = [
        {"task_id": "a", "pool": "p", "service_s": 1},
        {"task_id": "b", "after": ["a", "c"], "pool": "p", "service_s": 1},
        {"task_id": "c", "after": ["b"], "pool": "p", "service_s": 1},
    ]
    with pytest.raises(UsageError, match="the tasks 'b', 'c' wait for each other in a circle"):
        from_runs([run(tasks=tasks)])


def test_every_problem_of_a_record_is_named():
    with pytest.raises(RecordErrors) as caught:
        from_runs([run(arrival_s=-1, priority="high", tasks=[{"pool": 7, "service_s": 1, "x": 1}])])
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    ("second", "message"),
    [(run(arrival_s=1), "run_id 'a' occurs twice"), (run(run_id="b"), "runs must be in order of arrival")],
    ids=["twice", "unsorted"],
)
def test_runs_are_unique_and_in_order(second, message):
    with pytest.raises(UsageError, match=message):
        from_runs([run(arrival_s=1), second])


def test_a_task_id_given_twice_is_refused():
    with pytest.raises(UsageError, match="a task_id occurs twice"):
        from_runs([run(tasks=[{"task_id": "t", "pool": "p", "service_s": 1}] * 2)])


def test_an_empty_trace_is_refused():
    with pytest.raises(UsageError, match="the trace is empty"):
        from_runs([])


def test_equal_demand_has_an_equal_digest_whatever_it_is_called():
    first, second = from_runs([run()], source="here", seed=1), from_runs([run()], source="there", warnings={"x": 1})
    assert first.digest() == second.digest()
    assert first.digest() != from_runs([run(priority=1)]).digest()
    assert first.digest() != from_runs([run(tenant="other")]).digest()


@pytest.mark.parametrize(
    "trace",
    [
        single_task([0, 1, 2], [5, 6, 7], slots=[2, 1, 2]),
        single_task([0, 1], [5, 6], slots=3, estimate_ns=[1, 2], deadline_ns=[4, -1], tenant=["z", "a"]),
        chain([0, 0], [[1, 2], [3, 4]], ["gpu", "cpu"], cls=["y", "x"]),
    ],
    ids=["slots", "estimates", "chain"],
)
def test_a_trace_from_arrays_reads_back_as_itself(trace, tmp_path):
    write(trace, tmp_path / "t.jsonl")
    assert read(tmp_path / "t.jsonl").digest() == trace.digest()
