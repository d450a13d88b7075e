"""Run logs written by hand, for tests of metrics, diagnosis and reports. All times in seconds (kept as whole ns)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simkit.log import (
    EVENT_KINDS,
    SCHEMA,
    AttemptTable,
    CapacityTable,
    EventTable,
    HoldTable,
    RowTable,
    RunLog,
    RunTable,
    SampleTable,
    TaskTable,
    UseTable,
    empty,
)  # fmt: skip
from simkit.model import NEVER_NS, NS_PER_S, Outcome, TaskState


def ns(seconds: float | None, absent: int = -1) -> int:
    """Whole nanoseconds; `absent` for None."""
    return absent if seconds is None else round(seconds * NS_PER_S)


class _Codes:
    """Names numbered in order of first use."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = list(names)

    def __getitem__(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


@dataclass
class LogBuilder:
    """Add runs, then their rows, then whatever went wrong; `build` makes the log.

    `pools`: name -> slots (None = unlimited). Outcomes and states are given by name in lower case ("verified", "cancelled").
    """

    pools: Mapping[str, int | None] = field(default_factory=lambda: {"pool": 1})
    horizon: float | None = None
    warmup: float = 0.0
    policy: str = "hand"
    weights: Mapping[str, Any] = field(default_factory=dict)
    class_limits: Mapping[str, float] = field(default_factory=dict)
    faults: Sequence[Mapping[str, Any]] = ()  # {"at": s, "to": s or None, "target": name, "what": kind}
    api_calls: Mapping[str, int] = field(default_factory=dict)
    logical_calls: Mapping[str, int] = field(default_factory=dict)
    tenants: Sequence[str] = ()  # in this order, others follow
    classes: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.names = {
            "tenant": _Codes(self.tenants), "class": _Codes(self.classes), "pool": _Codes(list(self.pools)),
            "workflow": _Codes(), "mode": _Codes(["normal"]), "task_id": _Codes(),
        }  # fmt: skip
        self.reasons = _Codes()
        self.entries: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("runs", "rows", "attempts", "holds", "events", "samples", "tasks", "uses")
        }
        self.capacities = [
            (0, self.names["pool"][name], slots) for name, slots in self.pools.items() if slots is not None
        ]

    def run(
        self,
        run_id: str,
        arrival: float = 0.0,
        finished: float | None = None,
        outcome: str | None = None,
        *,
        tenant: str = "t",
        cls: str = "c",
        priority: int = 0,
        deadline: float | None = None,
        admitted: float | None = -1.0,
        workflow: str = "w",
        submissions: int = 1,
        deferrals: int = 0,
        downgraded: bool = False,
        skipped_tasks: int = 0,
        rework: int = 0,
        reason: str | None = None,
    ) -> int:
        """Returns the run's number. Without `outcome`: verified when it has finished. Admitted on arrival unless said otherwise (None = never)."""
        if outcome is None:
            outcome = "unfinished" if finished is None else "verified"
        self.entries["runs"].append({
            "run_id": run_id, "arrival_ns": ns(arrival), "tenant": self.names["tenant"][tenant], "cls": self.names["class"][cls],
            "priority": priority, "deadline_ns": ns(deadline, NEVER_NS), "workflow": self.names["workflow"][workflow],
            "outcome": Outcome[outcome.upper()].value, "admitted_ns": ns(arrival if admitted == -1.0 else admitted),
            "finished_ns": ns(finished), "submissions": submissions, "deferrals": deferrals, "downgraded": downgraded,
            "skipped_tasks": skipped_tasks, "rework": rework, "reason": -1 if reason is None else self.reasons[reason],
        })  # fmt: skip
        return len(self.entries["runs"]) - 1

    def row(
        self,
        run: int,
        ready: float | None = None,
        start: float | None = None,
        end: float | None = None,
        *,
        pool: str | None = None,
        task_id: str = "task",
        task: int | None = None,
        submission: int = 0,
        group: int = 0,
        slots: int = 1,
        estimate: float | None = None,
        cost: float = 0.0,
        state: str | None = None,
        attempts: int | None = None,
        verifies: bool = False,
        optional: bool = False,
    ) -> int:
        """Returns the row's number. A new task of the trace unless `task` names one (a resubmission). The estimate is what it took unless given."""
        owner = self.entries["runs"][run]
        if task is None:
            task = len(self.entries["tasks"])
            self.entries["tasks"].append(
                {"task_id": self.names["task_id"][task_id], "verifies": verifies, "optional": optional}
            )
        if state is None:
            state = "done" if end is not None else "pending"
        if estimate is None:
            estimate = end - start if end is not None and start is not None else 1.0
        self.entries["rows"].append({
            "run": run, "task": task, "submission": submission, "pool": self.names["pool"][pool or next(iter(self.pools))],
            "cls": owner["cls"], "tenant": owner["tenant"], "group": group, "slots": slots, "estimate_ns": ns(estimate),
            "cost_usd": cost, "state": TaskState[state.upper()].value, "ready_ns": ns(ready), "start_ns": ns(start),
            "end_ns": ns(end), "attempts": int(start is not None) if attempts is None else attempts,
        })  # fmt: skip
        return len(self.entries["rows"]) - 1

    def one(self, run_id: str, arrival: float, start: float | None, end: float | None, **options: Any) -> int:
        """A run of one task that is ready on arrival; finishes with it. Options of `run` and of `row`; returns the run."""
        of_row = {"pool", "group", "slots", "estimate", "cost", "state", "task_id", "verifies"}
        run = self.run(run_id, arrival, end, **{key: value for key, value in options.items() if key not in of_row})
        self.row(run, arrival, start, end, **{key: value for key, value in options.items() if key in of_row})
        return run

    def attempt(self, row: int, ready: float, start: float, end: float, error: str, attempt: int | None = None) -> None:
        """An attempt of `row` before its last one; the row's own count of attempts goes up."""
        number = 1 + sum(entry["row"] == row for entry in self.entries["attempts"])
        self.entries["rows"][row]["attempts"] += 1
        self.entries["attempts"].append({
            "row": row, "attempt": attempt or number, "ready_ns": ns(ready), "start_ns": ns(start), "end_ns": ns(end),
            "error": self.reasons[error],
        })  # fmt: skip

    def hold(self, begin: float, end: float, reason: str, *, pool: str | None = None, group: int = 0) -> None:
        """The rows of `group` are held back in `pool`."""
        number = self.names["pool"][pool or next(iter(self.pools))]
        self.entries["holds"].append({
            "pool": number, "group": group, "reason": self.reasons[reason], "from_ns": ns(begin), "to_ns": ns(end),
        })  # fmt: skip

    def event(
        self, at: float, kind: str, *, run: int = -1, row: int = -1, reason: str = "", value: float = 0.0
    ) -> None:
        """A decision out of the ordinary. An event of a row is one of its run too."""
        if row >= 0 and run < 0:
            run = self.entries["rows"][row]["run"]
        if kind == "mode":
            self.names["mode"][reason]
        self.entries["events"].append({
            "at_ns": ns(at), "kind": EVENT_KINDS.index(kind), "run": run, "row": row,
            "reason": self.reasons[reason] if reason else -1, "value": value,
        })  # fmt: skip

    def sample(self, at: float, signal: float, mode: str = "normal") -> None:
        self.entries["samples"].append({"at_ns": ns(at), "signal": signal, "mode": self.names["mode"][mode]})

    def capacity(self, at: float, pool: str, slots: int) -> None:
        """The pool has so many slots from `at` on."""
        self.capacities.append((ns(at), self.names["pool"][pool], slots))

    def use(self, group: int, pool: str, slots: int) -> None:
        """Attempts of the group take slots in another pool too."""
        self.entries["uses"].append({"group": group, "pool": self.names["pool"][pool], "slots": slots})

    def build(self, ended: float | None = None, status: str = "ok") -> RunLog:
        """The log. It ends with the last time in it unless `ended` says otherwise."""
        for name in ("events", "samples", "holds"):
            self.entries[name].sort(key=lambda entry: entry.get("at_ns", entry.get("to_ns")))
        at, pool, slots = (
            zip(*sorted(self.capacities, key=lambda entry: entry[0]), strict=True) if self.capacities else ((), (), ())
        )
        return RunLog(
            header=self._header(ended, status),
            names={kind: tuple(codes.names) for kind, codes in self.names.items()},
            reasons=tuple(self.reasons.names),
            runs=self._table("runs", RunTable),
            rows=self._table("rows", RowTable),
            attempts=self._table("attempts", AttemptTable),
            holds=self._table("holds", HoldTable),
            events=self._table("events", EventTable),
            samples=self._table("samples", SampleTable),
            capacity=CapacityTable(_ints(at), _ints(pool), _ints(slots)),
            tasks=self._table("tasks", TaskTable),
            uses=self._table("uses", UseTable),
        )

    def _table(self, name: str, table: type) -> Any:
        entries = self.entries[name]
        if not entries:
            return empty(table)
        columns: dict[str, Any] = {}
        for column in table.__slots__:  # type: ignore[attr-defined]
            values = [entry[column] for entry in entries]
            columns[column] = values if column == "run_id" else np.array(values)
        return table(**columns)

    def _header(self, ended: float | None, status: str) -> dict[str, Any]:
        times = [
            entry[column]
            for name, column in (
                ("runs", "arrival_ns"),
                ("runs", "finished_ns"),
                ("rows", "start_ns"),
                ("rows", "end_ns"),
            )
            for entry in self.entries[name]
        ]
        return {
            "schema": SCHEMA, "scenario": "by hand", "policy": self.policy, "policy_version": 1, "policy_digest": "0",
            "scenario_digest": "0", "trace_digest": "0", "seed": 0, "replication": 0, "versions": {}, "kernel_events": 0,
            "horizon_ns": ns(self.horizon, NEVER_NS), "warmup_ns": ns(self.warmup),
            "ended_ns": ns(ended if ended is not None else self.horizon) if ended is not None or self.horizon is not None
            else max([0, *times]),
            "status": status, "weights": dict(self.weights), "api_calls": dict(self.api_calls),
            "logical_calls": dict(self.logical_calls), "class_limits_s": dict(self.class_limits),
            "faults": [
                {"at_ns": ns(fault["at"]), "to_ns": ns(fault.get("to"), NEVER_NS), "target": fault.get("target", "pool"),
                 "what": fault.get("what", "slow"), "value": fault.get("value")}
                for fault in self.faults
            ],
        }  # fmt: skip


def _ints(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def one_pool_log(
    arrival_ns: NDArray[np.int64],
    start_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    *,
    slots: int = 1,
    tenant: NDArray[np.int64] | None = None,
    cls: NDArray[np.int64] | None = None,
    horizon_ns: int = NEVER_NS,
) -> RunLog:
    """Many one-task runs in one pool, from arrays in ns (-1 = did not happen); every finished run is verified."""
    size = len(arrival_ns)
    zeros = np.zeros(size, dtype=np.int64)
    tenant, cls = zeros if tenant is None else tenant, zeros if cls is None else cls
    done = end_ns >= 0
    number = np.arange(size)
    builder = LogBuilder(pools={"pool": slots})
    header = builder._header(None, "ok")
    last = int(max(arrival_ns.max(initial=0), start_ns.max(initial=0), end_ns.max(initial=0)))
    header.update(horizon_ns=horizon_ns, ended_ns=min(last, horizon_ns))
    runs = RunTable(
        run_id=[f"r{k}" for k in range(size)], arrival_ns=arrival_ns, tenant=tenant, cls=cls, priority=zeros,
        deadline_ns=np.full(size, NEVER_NS), workflow=zeros,
        outcome=np.where(done, Outcome.VERIFIED.value, Outcome.UNFINISHED.value), admitted_ns=arrival_ns,
        finished_ns=np.where(done, end_ns, -1), submissions=zeros + 1, deferrals=zeros, downgraded=np.zeros(size, dtype=bool),
        skipped_tasks=zeros, rework=zeros, reason=zeros - 1,
    )  # fmt: skip
    rows = RowTable(
        run=number, task=number, submission=zeros, pool=zeros, cls=cls, tenant=tenant, group=zeros, slots=zeros + 1,
        estimate_ns=np.where(done, end_ns - start_ns, NS_PER_S), cost_usd=np.zeros(size),
        state=np.where(done, TaskState.DONE.value, TaskState.PENDING.value), ready_ns=arrival_ns, start_ns=start_ns, end_ns=end_ns,
        attempts=(start_ns >= 0).astype(np.int64),
    )  # fmt: skip
    log = builder.build()
    log.header, log.runs, log.rows = header, runs, rows
    log.names = {
        **log.names,
        "workflow": ("w",),
        "tenant": tuple(f"t{k}" for k in range(int(tenant.max(initial=0)) + 1)),
        "class": tuple(f"c{k}" for k in range(int(cls.max(initial=0)) + 1)),
    }
    return log
