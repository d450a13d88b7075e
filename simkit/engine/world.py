"""The state that the parts of the engine share: columns, pools, the clock, the policy's mechanisms.

Parts are wired in `simkit.engine.simulation`; each keeps the world and touches only what its module is about.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simkit.engine.clock import Clock
from simkit.engine.recorder import Recorder
from simkit.engine.tables import Layout, build_rows, build_submissions, successors
from simkit.mechanisms.base import Actions, Admission, Allowance, Backfill, Coalesce, Limit, Overload, Retry
from simkit.model import NEVER_NS, ClientSpec, FaultSpec, Outcome, PlatformSpec, Task, TaskState
from simkit.rng import Streams
from simkit.trace.table import Trace

if TYPE_CHECKING:
    from simkit.engine.attempts import Attempts
    from simkit.engine.clients import Desk
    from simkit.engine.external import Api
    from simkit.engine.gates import Gates
    from simkit.engine.lifecycle import Lifecycle
    from simkit.engine.pool import Pool


class Mechanisms:
    """One simulation's own mechanism objects, by slot."""

    def __init__(self) -> None:
        self.admission: list[Admission] = []
        self.limits: list[Limit] = []
        self.overload: Overload | None = None
        self.retry: Retry | None = None
        self.backfill: Backfill | None = None
        self.coalesce: Coalesce | None = None


class Submission:
    """One submission of a run on its way through the platform. Class attributes are what most submissions keep for life."""

    active = 0  # tasks released and not ended
    round = 0  # rounds of rework so far
    caught = False  # a verification of this round found a defect
    abandoned = False  # the client has gone; server-side work goes on
    answered = False  # its client knows the result
    dead = False  # the platform has stopped working on it
    skipped: set[int] | None = None  # rows left out by the envelope
    unverified = False  # a required verification was skipped

    def __init__(
        self, number: int, run: int, attempt: int, first_row: int, size: int, shift: int, defect_p: float
    ) -> None:
        self.number = number  # row of the submissions table
        self.run = run
        self.attempt = attempt  # 0 for the first submission of the run
        self.first_row, self.size = first_row, size
        self.shift = shift  # row number minus trace task number
        self.remaining = size  # tasks not finished or skipped
        self.defect_p = defect_p


class Counter:
    """A live count per code of one attribute over some pools (see `Context.waiting_by`)."""

    __slots__ = ("_codes", "counts")

    def __init__(self, codes: Sequence[int] | None, size: int) -> None:
        self._codes = codes  # None: everything counts as code 0
        self.counts = [0] * size

    def add(self, row: int, amount: int) -> None:
        self.counts[0 if self._codes is None else self._codes[row]] += amount


class World:
    """Everything one simulation knows. Lists indexed by row grow with `Rows.grow` through `add_submission`."""

    def __init__(
        self,
        trace: Trace,
        platform: PlatformSpec,
        *,
        clients: Sequence[ClientSpec],
        faults: Sequence[FaultSpec],
        horizon_ns: int,
        streams: Streams,
    ) -> None:
        self.trace, self.platform, self.clients, self.faults = trace, platform, clients, faults
        self.horizon_ns, self.streams = horizon_ns, streams
        self.clock = Clock()
        self.recorder = Recorder()
        self.layout = Layout(trace, platform)
        self.rows = build_rows(self.layout)
        self.submissions = build_submissions(self.layout, self.rows)
        self.mechanisms = Mechanisms()
        self.names: Mapping[str, Sequence[str]] = {
            "tenant": trace.tenants,
            "class": trace.classes,
            "pool": platform.places,
            "tier": self.layout.tier_names,
        }
        self.dirty: list[Any] = []  # pools of either lane: Pool or ExpressPool
        self.pools: list[Pool] = []
        self.apis: list[Api] = []
        self.gates: Gates
        self.attempts_part: Attempts
        self.lifecycle: Lifecycle
        self.desk: Desk
        self.mode = "normal"
        self.actions = Actions()
        self.modes: list[str] = ["normal"]
        self.open_runs = 0
        self.anything_left: Callable[[], bool]
        """Whether any work is under way (arrivals to come not counted): control loops go on while it is."""
        self.running = 0
        self.service_ns = self.rows.derive(trace.tasks.service_ns)

    def lay_out(self) -> None:
        """Make the lists that the general path works on."""
        self.lay_out_graph()
        self._lay_out_rows()
        self._lay_out_runs()

    def lay_out_graph(self) -> None:
        """Followers and open predecessors."""
        pointers, after = successors(self.trace)
        self.follow_ptr, self.follow = pointers.tolist(), after.tolist()
        self.predecessors = np.diff(self.trace.tasks.after_ptr).tolist()  # by task
        self.pending = list(self.predecessors)  # by row: predecessors not finished

    def _lay_out_rows(self) -> None:
        trace, rows, size = self.trace, self.rows, self.rows.size
        self.tokens_used = rows.derive(trace.tasks.tokens_in + trace.tasks.tokens_out)
        self.shape = rows.demand
        self.task = rows.task
        self.ready_ns, self.start_ns, self.end_ns = [-1] * size, [-1] * size, [-1] * size
        self.state: list[int] = [TaskState.PENDING.value] * size
        self.queued = [False] * size
        self.attempts = [0] * size

    def _lay_out_runs(self) -> None:
        runs, size = self.trace.runs, len(self.trace)
        self.first_task = runs.first_task.tolist()
        self.luck = [int(value) for value in runs.luck.tolist()]
        self.defect_p, self.detect_p = runs.defect_p.tolist(), runs.detect_p.tolist()
        self.max_rework = runs.max_rework.tolist()
        self.outcome: list[int] = [Outcome.UNFINISHED.value] * size
        self.closed = [False] * size
        self.admitted_ns, self.finished_ns = [-1] * size, [-1] * size
        self.submissions_made, self.deferrals = [0] * size, [0] * size
        self.downgraded = [False] * size
        self.skipped_tasks, self.rework = [0] * size, [0] * size
        self.end_reason = [-1] * size
        self.live: dict[int, Submission] = {}  # by submission number

    def add_submission(self, run: int, attempt: int, client_deadline_ns: int) -> Submission:
        """A submission of `run`: the rows laid out for it, or for a repeated one a copy of them at the end."""
        first_task = self.first_task[run]
        size = self.first_task[run + 1] - first_task
        number, first_row = (run, first_task) if attempt == 0 else self._copy_rows(run, first_task, size)
        if client_deadline_ns < NEVER_NS:
            deadlines = self.rows.client_deadline_ns
            self.submissions.client_deadline_ns[number] = client_deadline_ns
            for row in range(first_row, first_row + size):
                deadlines[row] = client_deadline_ns
        shift = first_row - first_task
        submission = Submission(number, run, attempt, first_row, size, shift, self.defect_p[run])
        self.live[number] = submission
        self.submissions_made[run] += 1
        return submission

    def _copy_rows(self, run: int, first_task: int, size: int) -> tuple[int, int]:
        """Fresh rows for another submission of `run`: (submission number, first row)."""
        number = self.submissions.grow([run])
        first_row = self.rows.grow(range(first_task, first_task + size))
        self.submissions.first_row[number] = first_row
        for column in (self.ready_ns, self.start_ns, self.end_ns):
            column.extend([-1] * size)
        self.attempts.extend([0] * size)
        self.state.extend([TaskState.PENDING.value] * size)
        self.queued.extend([False] * size)
        self.pending.extend(self.predecessors[first_task : first_task + size])
        instance = self.rows.instance
        for row in range(first_row, first_row + size):
            instance[row] = number
        self.reset_rows(first_row, first_task, size)
        for row in range(first_row, first_row + size):
            self.gates.regroup(row)
        return number, first_row

    def reset_rows(self, first_row: int, first_task: int, size: int) -> None:
        """Give copied rows the demand of the trace again (the copied ones may have been moved to another tier)."""
        tasks, layout, rows = self.trace.tasks, self.layout, self.rows
        for row, task in zip(range(first_row, first_row + size), range(first_task, first_task + size), strict=True):
            shape = int(layout.shape_of_task[task])
            if self.shape[row] != shape:
                self.shape[row] = shape
                rows.pool[row] = layout.shapes[shape].pool
                rows.tier[row] = layout.shapes[shape].tier
                rows.estimate_ns[row] = int(tasks.estimate_ns[task])
                rows.cost_usd[row] = float(tasks.cost_usd[task])
                self.service_ns[row] = int(tasks.service_ns[task])

    def live_of(self, row: int) -> Submission:
        """The submission that `row` belongs to, as long as any of its tasks is under way."""
        return self.live[self.rows.instance[row]]

    def client_of(self, row: int) -> ClientSpec | None:
        return self.desk.spec_of(self.rows.run[row])

    def mark(self, pool: Pool) -> None:
        """`pool` has something to look at in the next dispatch pass."""
        if not pool.marked:
            pool.marked = True
            self.dirty.append(pool)

    def dispatch(self) -> None:
        """One dispatch pass: marked pools in order of declaration, until none is marked."""
        dirty = self.dirty
        while dirty:
            if len(dirty) == 1:
                pool = dirty.pop()
                pool.marked = False
                pool.dispatch()
                continue
            batch = sorted(dirty, key=_number)
            dirty.clear()
            for pool in batch:
                pool.marked = False
                pool.dispatch()

    def counter(self, kind: str, attribute: str | Sequence[int], pools: Sequence[int] | None) -> list[int]:
        """Subscribe to a live count (`kind` "waiting" | "running")."""
        if not isinstance(attribute, str):
            counter = Counter(attribute, max(attribute, default=0) + 1)
        elif attribute == "all":
            counter = Counter(None, 1)
        elif attribute in _COUNTABLE:
            column: list[int] = getattr(self.rows, _COUNTABLE[attribute])
            counter = Counter(column, len(self.names[attribute]))
        else:
            raise ValueError(f"cannot count by {attribute!r}: expected tenant, class, pool, all or a column of codes")
        for number in range(len(self.pools)) if pools is None else dict.fromkeys(pools):
            pool = self.pools[number]
            (pool.waiting_counters if kind == "waiting" else pool.running_counters).append(counter)
        return counter.counts


_COUNTABLE = {"tenant": "tenant", "class": "cls", "pool": "pool"}


def _number(pool: Pool) -> int:
    return pool.number


class LiveView:
    """`mechanisms.base.View` on a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def now_ns(self) -> int:
        return self._world.clock.now_ns

    @property
    def mode(self) -> str:
        return self._world.mode

    def capacity(self, pool: int) -> int:
        return self._world.pools[pool].capacity

    def free(self, pool: int) -> int:
        at = self._world.pools[pool]
        return max(0, at.capacity - at.used)

    def waiting(self, pool: int) -> int:
        return self._world.pools[pool].waiting

    def queued_work_ns(self, pool: int) -> int:
        return self._world.pools[pool].queued_work_ns

    def utilisation(self, pool: int) -> float:
        at = self._world.pools[pool]
        return 0.0 if at.unlimited else (at.used / at.capacity if at.capacity else 1.0)

    def oldest_wait_ns(self, pool: int) -> int:
        return self._world.pools[pool].oldest_wait_ns()


class LiveContext:
    """`mechanisms.base.Context` on a world, for one mechanism object."""

    def __init__(self, world: World, label: str, pools: Sequence[int], view: LiveView, *, grouped: bool) -> None:
        self._world, self._label = world, label
        self.rows, self.submissions, self.names = world.rows, world.submissions, world.names
        self.pools, self.view, self.grouped = pools, view, grouped
        self.demands = world.layout.demands

    @property
    def group_count(self) -> int:
        return self._world.gates.group_count

    def rng(self, name: str) -> np.random.Generator:
        return self._world.streams.of(f"policy/{self._label}/{name}")

    def call_at(self, at_ns: int, function: Callable[[Any], object], argument: Any = None) -> None:
        self._world.clock.call_at(at_ns, function, argument)

    def wake(self, limit: Limit, key: Hashable) -> None:
        gates = self._world.gates
        if gates.holding:
            gates.wake(id(limit), key)

    def waiting_by(self, attribute: str | Sequence[int], pools: Sequence[int] | None = None) -> list[int]:
        return self._world.counter("waiting", attribute, pools)

    def running_by(self, attribute: str | Sequence[int], pools: Sequence[int] | None = None) -> list[int]:
        return self._world.counter("running", attribute, pools)

    def note(self, kind: str, *, row: int = -1, submission: int = -1, reason: str = "", value: float = 0.0) -> None:
        run = self.rows.run[row] if row >= 0 else self.submissions.run[submission] if submission >= 0 else -1
        self._world.recorder.event(self._world.clock.now_ns, kind, run, row, reason, value)

    def task(self, row: int) -> Task:
        return Task(self.rows, row, self.names)

    def api(self, place: int) -> Sequence[tuple[str, Allowance]]:
        number = place - self._world.layout.pool_count
        return self._world.apis[number].buckets if number >= 0 else []

    def api_demand(self, row: int) -> Sequence[tuple[int, int, int]]:
        world = self._world
        shape = world.layout.shapes[world.shape[row]]
        tokens = self.rows.tokens[row]
        return [(world.layout.pool_count + api, calls, tokens) for api, calls in shape.calls]
