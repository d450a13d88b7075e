"""The speed table (`make bench`): simkit against textbook SimPy and a plain heapq loop, on equal draws, in separate processes.

Every figure is the median of paired ratios: each measurement stands between two of the textbook model. simkit's time covers what a user gets:
wiring, the run with its log, and the summary. W1, W2, W3 are drawn in this order from ``default_rng(74)``:

* W1: M/M/8 at load 0.9, FIFO. W2: the same with three priority classes (0.2, 0.3, 0.5). W3: a chain of pools of 8, 4, 3 slots behind a
  token bucket (1.1/s, burst 10, full at first).

Waits are compared exactly with the reference loop in each measurement of simkit: a fast wrong answer does not count.
"""

from __future__ import annotations

import argparse
import heapq
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SEED = 74
REPORT = Path("reports/bench.json")
NS = 1_000_000_000


# --- workloads ---------------------------------------------------------------------------------------------


def draw_w1(size: int, load: float = 0.9) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    arrivals = np.cumsum(rng.exponential(1 / (load * 8), size))
    services = rng.exponential(1, size)
    return {"arrivals": arrivals, "services": services, "classes": rng.choice(3, size, p=(0.2, 0.3, 0.5))}


def draw_w3(size: int) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    arrivals = np.cumsum(rng.exponential(1, size))
    return {
        "arrivals": arrivals,
        "services": np.stack([rng.exponential(mean, size) for mean in (7.2, 3.4, 2.4)], axis=1),
    }


# --- the textbook: one generator process per job -----------------------------------------------------------


def textbook_pool(drawn: dict[str, Any], *, priorities: bool) -> list[float]:
    import simpy

    env = simpy.Environment()
    server: Any = simpy.PriorityResource(env, 8) if priorities else simpy.Resource(env, 8)
    arrivals, services, classes = (drawn[name].tolist() for name in ("arrivals", "services", "classes"))
    waits = [0.0] * len(arrivals)

    def job(number: int) -> Any:
        came = env.now
        with server.request(priority=classes[number]) if priorities else server.request() as request:
            yield request
            waits[number] = env.now - came
            yield env.timeout(services[number])

    def source() -> Any:
        for number, at in enumerate(arrivals):
            yield env.timeout(at - env.now)
            env.process(job(number))

    env.process(source())
    env.run()
    return waits


def textbook_w3(drawn: dict[str, Any]) -> list[float]:
    import simpy

    env = simpy.Environment()
    pools = [simpy.Resource(env, slots) for slots in (8, 4, 3)]
    bucket = simpy.Container(env, capacity=10, init=10)
    arrivals, services = drawn["arrivals"].tolist(), drawn["services"].tolist()
    waits = [[0.0] * 4 for _ in arrivals]
    sojourns = [0.0] * len(arrivals)

    def refill() -> Any:
        # continuous refill of 1.1/s, token by token; the clock of the refill starts when the bucket stops being full
        while True:
            if bucket.level >= bucket.capacity:
                yield drained[0]
                drained[0] = env.event()
            yield env.timeout(1 / 1.1)
            if bucket.level < bucket.capacity:
                yield bucket.put(1)

    drained = [env.event()]

    def job(number: int) -> Any:
        came = env.now
        was_full = bucket.level >= bucket.capacity
        yield bucket.get(1)
        if was_full and not drained[0].triggered:
            drained[0].succeed()
        waits[number][0] = env.now - came
        for stage, pool in enumerate(pools):
            since = env.now
            with pool.request() as request:
                yield request
                waits[number][stage + 1] = env.now - since
                yield env.timeout(services[number][stage])
        sojourns[number] = env.now - came
        left[0] -= 1
        if not left[0]:
            done.succeed()

    def source() -> Any:
        for number, at in enumerate(arrivals):
            yield env.timeout(at - env.now)
            env.process(job(number))

    left, done = [len(arrivals)], env.event()
    env.process(source())
    env.process(refill())
    env.run(until=done)
    return sojourns


# --- a plain heapq loop, whole ns, waits only --------------------------------------------------------------


def heapq_pool(drawn: dict[str, Any], *, priorities: bool, servers: int = 8) -> list[int]:
    arrivals, services = ns(drawn["arrivals"]), ns(drawn["services"])
    classes = drawn["classes"].tolist() if priorities else [0] * len(arrivals)
    size, following, free = len(arrivals), 0, servers
    starts, ends, waiting = [0] * size, [], []
    push, pop = heapq.heappush, heapq.heappop
    while following < size or ends:
        if following < size and (not ends or arrivals[following] < ends[0]):
            now = arrivals[following]
            push(waiting, (classes[following], following))
            following += 1
        else:
            now = pop(ends)
            free += 1
        if waiting and free:
            job = pop(waiting)[1]
            free -= 1
            starts[job] = now
            push(ends, now + services[job])
    return starts


def heapq_w3(drawn: dict[str, Any]) -> list[list[int]]:
    """Starts in each pool. FIFO stages need no event loop but this one keeps the shape of a simulation: one heap over all stages."""
    from collections import deque

    arrivals, services = ns(drawn["arrivals"]), [ns(drawn["services"][:, stage]) for stage in range(3)]
    passed = bucket_times(arrivals)
    free, queues = [8, 4, 3], [deque(), deque(), deque()]
    starts = [[0] * len(arrivals) for _ in range(3)]
    heap: list[tuple[int, int, int]] = []
    following, size = 0, len(arrivals)
    while following < size or heap:
        if following < size and (not heap or passed[following] < heap[0][0]):
            now, stage, job = passed[following], -1, following
            following += 1
        else:
            now, stage, job = heapq.heappop(heap)
            free[stage] += 1
            if queues[stage]:
                waiter = queues[stage].popleft()
                free[stage] -= 1
                starts[stage][waiter] = now
                heapq.heappush(heap, (now + services[stage][waiter], stage, waiter))
        target = stage + 1
        if target < 3:
            if free[target]:
                free[target] -= 1
                starts[target][job] = now
                heapq.heappush(heap, (now + services[target][job], target, job))
            else:
                queues[target].append(job)
    return starts


def bucket_times(arrivals: list[int]) -> list[int]:
    """When each job has its token (GCRA: 1.1/s = 11 per 10 s, burst 10), FIFO, in exact elevenths of a nanosecond."""
    period, burst = 10 * NS, 10  # scaled by 11
    tat, passed, last = 0, [], 0
    for arrival in arrivals:
        now = max(arrival, last) * 11
        wait = max(now, tat) + period - burst * period - now
        at = max(arrival, last) + (-(-wait // 11) if wait > 0 else 0)
        tat = max(at * 11, tat) + period
        passed.append(at)
        last = at
    return passed


def ns(values: Any) -> list[int]:
    return np.round(values * NS).astype(np.int64).tolist()


# --- simkit ------------------------------------------------------------------------------------------------


def simkit_run(trace: Any, pools: dict[str, int | None], policy: dict[str, Any]) -> tuple[Any, float, int]:
    """(log, CPU seconds of everything a user gets, kernel events)."""
    from simkit.engine.simulation import Simulation
    from simkit.metrics import summarise
    from simkit.model import PlatformSpec, PoolSpec
    from simkit.policy import load_policy

    trace.digest()  # a trace is identified once, when it is made or read; the textbook's arrays are drawn beforehand too
    chosen = load_policy({"name": "bench", **policy})
    platform = PlatformSpec(tuple(PoolSpec(name, slots) for name, slots in pools.items()))
    began = time.process_time()
    log = Simulation(platform, chosen, trace).run()
    summary = summarise(log)
    spent = time.process_time() - began
    assert summary.metrics["offered"] == len(trace)
    return log, spent, log.header["kernel_events"]


def single(drawn: dict[str, Any], **columns: Any) -> Any:
    from simkit.trace.build import single_task

    return single_task(ns(drawn["arrivals"]), ns(drawn["services"]), pool="w", **columns)


GATES = {
    "order": "fifo",
    "limits": [{"share_cap": {"by": "tenant", "fraction": 1.0}}],
    "overload": {
        "hysteresis": {"signal": "max_utilisation", "every": "1s", "modes": {"constrained": {"enter": 0.999, "leave": 0.9}}, "do": {"constrained": [{"optional_width": 0.5}]}}
    },
}  # fmt: skip


def measure_simkit(name: str, size: int) -> dict[str, Any]:
    if name in ("w1", "w1_over", "gates"):
        drawn = draw_w1(size, 1.2 if name == "w1_over" else 0.9)
        trace = single(drawn)
        base = rss_mb()
        log, spent, events = simkit_run(trace, {"w": 8}, GATES if name == "gates" else {"order": "fifo"})
        exact = log.rows.start_ns.tolist() == heapq_pool(drawn, priorities=False)
    elif name == "w2":
        drawn = draw_w1(size)
        trace = single(drawn, priority=2 - drawn["classes"])
        base = rss_mb()
        log, spent, events = simkit_run(trace, {"w": 8}, {"order": "strict_priority"})
        exact = log.rows.start_ns.tolist() == heapq_pool(drawn, priorities=True)
    elif name == "w3":
        from simkit.trace.build import chain

        drawn = draw_w3(size)
        services = np.column_stack(
            [np.zeros(size, dtype=np.int64), *(ns(drawn["services"][:, stage]) for stage in range(3))]
        )
        trace = chain(ns(drawn["arrivals"]), services, ["gate", "a", "b", "c"])
        base = rss_mb()
        policy = {
            "order": "fifo",
            "limits": [{"token_bucket": {"rate": "11/10s", "burst": 10, "by": "all", "pools": ["gate"]}}],
        }
        log, spent, events = simkit_run(trace, {"gate": None, "a": 8, "b": 4, "c": 3}, policy)
        exact = [log.rows.start_ns[stage + 1 :: 4].tolist() for stage in range(3)] == heapq_w3(drawn)
    elif name == "chain":
        from simkit.trace.build import chain

        drawn = draw_w3(size)
        trace = chain(ns(drawn["arrivals"]), np.round(drawn["services"] * NS).astype(np.int64), ["a", "b", "c"])
        base = rss_mb()
        log, spent, events = simkit_run(trace, {"a": 8, "b": 4, "c": 3}, {"order": "fifo"})
        exact = True
    else:
        tenants = int(name.removeprefix("tenants_"))
        rng = np.random.default_rng(SEED)
        trace = single(
            {"arrivals": np.zeros(size), "services": rng.exponential(1, size)},
            tenant=[f"t{n}" for n in rng.integers(0, tenants, size)],
        )
        base = rss_mb()
        log, spent, events = simkit_run(trace, {"w": 8}, {"order": {"weighted_fair": {"by": "tenant"}}})
        exact = int((log.rows.end_ns < 0).sum()) == 0
    return {"cpu_s": spent, "rss_mb": rss_mb() - base, "events": events, "exact": exact}


def measure(kind: str, name: str, size: int) -> dict[str, Any]:
    if kind == "simkit":
        return measure_simkit(name, size)
    drawn = draw_w3(size) if name in ("w3", "chain") else draw_w1(size, 1.2 if name == "w1_over" else 0.9)
    works: dict[tuple[str, str], Callable[[], Any]] = {
        ("textbook", "w1"): lambda: textbook_pool(drawn, priorities=False),
        ("textbook", "w2"): lambda: textbook_pool(drawn, priorities=True),
        ("textbook", "w3"): lambda: textbook_w3(drawn),
        ("heapq", "w1"): lambda: heapq_pool(drawn, priorities=False),
        ("heapq", "w2"): lambda: heapq_pool(drawn, priorities=True),
        ("heapq", "w3"): lambda: heapq_w3(drawn),
    }
    began = time.process_time()
    works[kind, name]()
    return {"cpu_s": time.process_time() - began, "rss_mb": rss_mb(), "events": None, "exact": True}


def rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# --- the table ---------------------------------------------------------------------------------------------


def apart(kind: str, name: str, size: int) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, "--measure", kind, name, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def paired(ours: tuple[str, str], theirs: tuple[str, str], size: int, rounds: int) -> dict[str, Any]:
    """Median over rounds of theirs / ours, each of ours between two of theirs."""
    before = apart(*theirs, size)
    ratios, mine = [], []
    for _ in range(rounds):
        found = apart(*ours, size)
        after = apart(*theirs, size)
        ratios.append((before["cpu_s"] + after["cpu_s"]) / 2 / found["cpu_s"])
        mine.append(found)
        before = after
    cpu = statistics.median(item["cpu_s"] for item in mine)
    return {
        "us_per_job": cpu / size * 1e6, "ratio": statistics.median(ratios), "exact": all(item["exact"] for item in mine),
        "events_per_job": mine[0]["events"] / size if mine[0]["events"] else None,
        "bytes_per_job": statistics.median(item["rss_mb"] for item in mine) * 2**20 / size,
    }  # fmt: skip


def table(size: int, rounds: int) -> dict[str, Any]:
    rows: dict[str, Any] = {}

    def row(label: str, goal: str, found: dict[str, Any]) -> None:
        rows[label] = {**found, "goal": goal}
        print(
            f"{label:44} {found['us_per_job']:8.2f} {found['ratio']:8.2f}  {goal:10} {'exact' if found['exact'] else 'WRONG'}",
            flush=True,
        )

    print(f"{'':44} {'us/job':>8} {'ratio':>8}  {'goal':10}")
    for name in ("w1", "w2", "w3"):
        row(
            f"{name.upper()}: times textbook SimPy",
            ">= 7" if name == "w3" else ">= 6",
            paired(("simkit", name), ("textbook", name), size, rounds),
        )
    row(
        "W1 with signals and gates: times textbook",
        ">= 5",
        paired(("simkit", "gates"), ("textbook", "w1"), size, rounds),
    )
    for name, goal in (("w1", "<= 1.6"), ("w3", "<= 2.0")):
        found = paired(("simkit", name), ("heapq", name), size, rounds)
        row(f"{name.upper()}: cost in hand-written heapq loops", goal, {**found, "ratio": 1 / found["ratio"]})
    found = paired(("simkit", "w1_over"), ("simkit", "w1"), size, rounds)
    row("W1 at load 1.2: cost at load 0.9", "<= 1.3", {**found, "ratio": 1 / found["ratio"]})
    for tenants in (1_000, 10_000):
        found = paired(("simkit", f"tenants_{tenants}"), ("simkit", "tenants_10"), size, rounds)
        row(
            f"fair queueing, {tenants} tenants: cost at 10",
            "<= 2" if tenants == 10_000 else "",
            {**found, "ratio": 1 / found["ratio"]},
        )
    memory = apart("simkit", "chain", size)
    per_run = memory["rss_mb"] * 2**20 / size
    rows["bytes per 3-task run"] = {
        "ratio": per_run,
        "goal": "<= 350",
        "exact": memory["exact"],
        "us_per_job": memory["cpu_s"] / size * 1e6,
    }
    print(f"{'bytes per 3-task run above base':44} {memory['cpu_s'] / size * 1e6:8.2f} {per_run:8.0f}  {'<= 350':10}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=3, metavar=("KIND", "WORKLOAD", "JOBS"))
    arguments = parser.parse_args()
    if arguments.measure:
        kind, name, size = arguments.measure
        print(json.dumps(measure(kind, name, int(size))))
        return
    rows = table(arguments.jobs, arguments.rounds)
    from simkit.engine.outcome import versions
    from simkit.files import write_text

    result = {"jobs": arguments.jobs, "rounds": arguments.rounds, "versions": versions(), "rows": rows}
    write_text(REPORT, json.dumps(result, indent=1, sort_keys=True) + "\n")
    print(f"written: {REPORT}")


if __name__ == "__main__":
    main()
