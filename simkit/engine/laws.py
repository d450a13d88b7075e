"""The laws: what must hold in every run, whatever the policy. A broken one raises LawViolation with seed and place.

Always on (cheap counters and one vectorised pass): conservation of runs (each ends in exactly one state), slots given back as
often as taken, queue counts that match the rows. With ``strict`` the finished log is checked as well:

* L1 causality: arrival <= ready <= start <= end for every attempt; nothing happens after the horizon.
* L2 order of work: a task is ready no earlier than its predecessors' ends.
* L3 capacity: slots in use never exceed the slots there are (a pool that a fault shrank may finish what runs).
* L4 work conservation: no slot that could serve it stays free while a row waits that nothing holds.
* L5 conservation of work: what is done was started; attempts and their ends match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simkit.log import RunLog
from simkit.model import LawViolation, Outcome, TaskState

if TYPE_CHECKING:
    from simkit.engine.world import World


def check_counters(world: World) -> None:
    """Counters of the general path at its end."""
    for pool in world.pools:
        if pool.used < 0 or pool.waiting < 0 or pool.queued_work_ns < 0:
            raise LawViolation(
                f"pool {pool.name}: used {pool.used}, waiting {pool.waiting}, queued {pool.queued_work_ns}"
            )
    waiting = np.zeros(len(world.pools), dtype=np.int64)
    queued = np.flatnonzero(world.queued)
    np.add.at(waiting, np.array([world.rows.pool[row] for row in queued], dtype=np.int64), 1)
    counted = np.array([pool.waiting for pool in world.pools], dtype=np.int64)
    if (waiting != counted).any():
        raise LawViolation(f"queue counts differ from the rows: {counted.tolist()} against {waiting.tolist()}")
    if world.running < 0 or world.open_runs < 0:
        raise LawViolation(f"more ended than began: running {world.running}, open {world.open_runs}")
    if world.running == 0 and any(pool.used for pool in world.pools):
        raise LawViolation("slots are in use and nothing runs")


def check_partition(log: RunLog) -> None:
    """Every run is in exactly one state, and finished runs have a time that fits it."""
    runs = log.runs
    outcome, finished = np.asarray(runs.outcome), np.asarray(runs.finished_ns)
    closed = outcome != Outcome.UNFINISHED
    if ((finished >= 0) != closed).any():
        _broken(log, "a run is closed exactly when it has a finishing time", closed != (finished >= 0))
    early = closed & (finished < runs.arrival_ns)
    if early.any():
        _broken(log, "a run finishes no earlier than it arrives", early)
    known = np.isin(outcome, [state.value for state in Outcome])
    if not known.all():
        _broken(log, "every outcome is one of the nine", ~known)


def check_log(log: RunLog, world: World) -> None:
    """The strict laws on a finished log."""
    _check_causality(log)
    _check_precedence(log, world)
    _check_states(log)
    _check_capacity(log)
    if not world.faults:
        _check_work_conservation(log, world)


def _broken(log: RunLog, law: str, where: NDArray[np.bool_]) -> None:
    header = log.header
    raise LawViolation(
        f"law broken: {law}; first at entry {int(np.flatnonzero(where)[0])} of {int(where.sum())}; "
        f"policy {header.get('policy')}, seed {header.get('seed')}, replication {header.get('replication')}"
    )


def _intervals(log: RunLog) -> tuple[NDArray[np.int64], ...]:
    """(row, ready, start, end) of every attempt; -1 for what did not happen."""
    rows, attempts = log.rows, log.attempts
    queued = np.flatnonzero(np.asarray(rows.ready_ns) >= 0)
    return (
        np.concatenate([queued, attempts.row]).astype(np.int64),
        np.concatenate([rows.ready_ns[queued], attempts.ready_ns]),
        np.concatenate([rows.start_ns[queued], attempts.start_ns]),
        np.concatenate([rows.end_ns[queued], attempts.end_ns]),
    )


def _check_causality(log: RunLog) -> None:
    row, ready, start, end = _intervals(log)
    arrival = log.runs.arrival_ns[log.rows.run[row]]
    if (ready < arrival).any():
        _broken(log, "L1 ready after arrival", ready < arrival)
    wrong = (start >= 0) & (start < ready)
    if wrong.any():
        _broken(log, "L1 start after ready", wrong)
    shared = log.rows.state[row] == TaskState.COALESCED
    unserved = shared | np.isin(log.rows.state[row], (TaskState.CANCELLED, TaskState.DROPPED))
    wrong = (end >= 0) & ((start >= 0) | ~unserved) & ((start < 0) | (end < start))
    if wrong.any():
        _broken(log, "L1 end after start", wrong)
    horizon = log.header["horizon_ns"]
    wrong = np.maximum(np.maximum(ready, start), end) > horizon
    if wrong.any():
        _broken(log, "L1 nothing after the horizon", wrong)


def _check_precedence(log: RunLog, world: World) -> None:
    """L2, on the first submissions: their rows are the trace's tasks."""
    tasks = world.trace.tasks
    task = np.repeat(np.arange(world.trace.task_count), np.diff(tasks.after_ptr))
    ready, end = np.asarray(log.rows.ready_ns), np.asarray(log.rows.end_ns)
    wrong = (ready[task] >= 0) & (end[tasks.after] >= 0) & (ready[task] < end[tasks.after])
    if wrong.any():
        _broken(log, "L2 ready after the predecessors' ends", wrong)


def _check_states(log: RunLog) -> None:
    rows = log.rows
    done = rows.state == TaskState.DONE
    wrong = done & ((rows.start_ns < 0) | (rows.end_ns < 0) | (rows.attempts < 1))
    if wrong.any():
        _broken(log, "L5 what is done was started and ended", wrong)


def _check_capacity(log: RunLog) -> None:
    row, _, start, end = _intervals(log)
    last = np.iinfo(np.int64).max
    pool = log.rows.pool[row]
    for place in np.unique(log.capacity.pool):
        entries = log.capacity.pool == place
        at, slots = log.capacity.at_ns[entries], log.capacity.slots[entries]
        here = (pool == place) & (start >= 0)
        begins, need = start[here], log.rows.slots[row[here]]
        ends = np.where(end[here] >= 0, end[here], last)
        order = np.argsort(begins, kind="stable")
        ended = np.argsort(ends, kind="stable")
        started_before = np.cumsum(need[order])
        freed = np.concatenate([[0], np.cumsum(need[ended])])
        in_use = started_before - freed[np.searchsorted(ends[ended], begins[order], side="right")]
        same = np.append(begins[order][1:] != begins[order][:-1], True)  # look at an instant when all its starts are in
        limit = slots[np.searchsorted(at, begins[order], side="right") - 1]
        wrong = same & (in_use > limit)
        if wrong.any():
            _broken(log, f"L3 capacity of {log.names['pool'][int(place)]}", wrong)


def _check_work_conservation(log: RunLog, world: World) -> None:
    """L4 on pools whose tasks need one slot there and nothing else, and in which no limit ever held anything."""
    row, ready, start, end = _intervals(log)
    pool = log.rows.pool[row]
    held = set(np.unique(log.holds.pool).tolist())
    mixed = {shape.pool for shape in world.layout.shapes if shape.slots != 1 or shape.others}
    lent = {place for shape in world.layout.shapes for place, _ in shape.others}
    for number, spec in enumerate(world.platform.pools):
        here = pool == number
        if spec.slots is not None and number not in held | mixed | lent and here.any():
            _no_idle_slot_beside_waiting(log, spec.name, spec.slots, row[here], ready[here], start[here], end[here])


def _no_idle_slot_beside_waiting(
    log: RunLog,
    name: str,
    slots: int,
    row: NDArray[np.int64],
    ready: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
) -> None:
    """Over the intervals between consecutive instants: waiting > 0 implies in use = slots."""
    last = np.iinfo(np.int64).max
    started = start >= 0
    shared = log.rows.state[row] == TaskState.COALESCED  # they ride on another's work and never queue
    ready, start, end, started = ready[~shared], start[~shared], end[~shared], started[~shared]
    leaves = np.where(started, start, np.where(end >= 0, end, last))
    instants = np.unique(np.concatenate([ready, start[started], end[end >= 0]]))
    waiting = _step(ready, +1, instants) + _step(leaves, -1, instants)
    busy = _step(start[started], +1, instants) + _step(np.where(end >= 0, end, last)[started], -1, instants)
    wrong = (waiting > 0) & (busy < slots)
    if wrong.any():
        _broken(log, f"L4 no idle slot beside waiting work in {name}", wrong)


def _step(times: NDArray[np.int64], sign: int, instants: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of `times` are at or before each instant, times sign."""
    result: NDArray[np.int64] = sign * np.searchsorted(np.sort(times), instants, side="right")
    return result
