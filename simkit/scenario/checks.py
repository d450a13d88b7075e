"""What a scenario's parts have to do with each other: names that must be there, demands that must be possible, settings that must have an
effect. Each check looks at what is sound by itself, so that one bad entry hides no other problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from simkit.catalogue import METRICS, direction, split_key
from simkit.documents import Document, Loc, Problem, choose, nearest, parsed
from simkit.library import find
from simkit.model import CHEAPEST, UsageError
from simkit.policy import Policy, Reference
from simkit.scenario_document import (
    ApiDocument,
    ClientDocument,
    ExpectDocument,
    FaultDocument,
    PoolDocument,
    TierDocument,
)  # fmt: skip
from simkit.stats import NEUTRAL
from simkit.trace.workload import RecordedSpec, SourceSpec, TaskSpec
from simkit.units import parse_duration

_SLIP = 0.85
"""Names of this similarity (difflib's ratio) or more differ by a slip of the pen: one letter in ten."""


class Tenants:
    """The tenants of a workload: single names, and ranges ``prefix0 ... prefix<count-1>`` that are never listed."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._ranges: list[tuple[str, int]] = []

    def add(self, source: Mapping[str, Any]) -> None:
        """The tenant(s) of a source, as its document says."""
        many = source.get("tenants")
        if isinstance(many, Mapping) and isinstance(many.get("prefix"), str) and isinstance(many.get("count"), int):
            self._ranges.append((many["prefix"], many["count"]))
        elif isinstance(source.get("tenant", source.get("name")), str):
            self._names[source.get("tenant", source.get("name"))] = None

    def __contains__(self, name: object) -> bool:
        return name in self._names or any(_in_range(str(name), *one) for one in self._ranges)

    def __iter__(self) -> Iterator[str]:
        """The names, and the ends of the ranges: for hints."""
        yield from self._names
        for prefix, count in self._ranges:
            yield from dict.fromkeys((f"{prefix}0", f"{prefix}{count - 1}"))


def _in_range(name: str, prefix: str, count: int) -> bool:
    digits = name.removeprefix(prefix)
    return (
        name.startswith(prefix)
        and digits.isascii()
        and digits.isdecimal()
        and digits == str(int(digits))
        and int(digits) < count
    )


Known = Mapping[str, Any] | Sequence[str] | Tenants
"""Names that there are: to ask for one, and to list for hints."""


@dataclass(frozen=True, slots=True)
class Names:
    """What the names in policies may mean here. None = not known: a recorded trace decides, or that part of the document is unreadable."""

    places: tuple[str, ...] | None
    tiers: tuple[str, ...] | None
    classes: tuple[str, ...] | None
    tenants: Tenants | None

    def of(self, kind: str) -> Any:
        """The names of one kind: "pool" (APIs too), "tier", "class", "tenant"; None = not known."""
        return {"pool": self.places, "tier": self.tiers, "class": self.classes, "tenant": self.tenants}[kind]


def misfits(policy: Policy, names: Names) -> list[Problem]:
    """What a policy names that this scenario does not have.

    Pools and tiers must be there (tiers only where the platform has any: without, a tier changes nothing). A policy that is written in the
    scenario belongs to it: its classes and tenants must be there too. A policy file is general: it may name classes that are not
    here, unless the name is a slip of the pen for one that is. The library's policies are never suspected of one.
    """
    found = []
    for reference in policy.references:
        known = names.of(reference.kind)
        if (
            known is None
            or reference.name in known
            or (reference.kind == "tier" and (not known or reference.name == CHEAPEST))
        ):
            continue
        if reference.kind in ("class", "tenant") and not _is_wrong(policy, reference, known):
            continue
        message = f"policy {policy.name!r}: there is no {_WORDS[reference.kind]} {reference.name!r} in this scenario{choose(reference.name, known)}"
        found.append(replace(reference.place, message=message))
    return found


_WORDS = {"pool": "pool or api", "tier": "tier", "class": "class", "tenant": "tenant"}


def _is_wrong(policy: Policy, reference: Reference, known: Known) -> bool:
    if policy.path is None:
        return True
    if policy.is_general:
        return False
    mine = {other.name for other in policy.references if other.kind == reference.kind}
    return any(near not in mine for near in get_close_matches(reference.name, list(known), n=1, cutoff=_SLIP))


class Checks:
    """All checks across the parts of one document. `problems` after `run`."""

    def __init__(
        self,
        document: Document,
        policies: Sequence[tuple[int, Policy]],
        folder: Path | None,
        *,
        has_trace: bool = False,
    ) -> None:
        """`policies`: those that could be read, with their places in the list. `folder`: the document's. `has_trace`: a recorded trace was given
        instead of the document's workload."""
        self.problems: list[Problem] = []
        self._document, self._policies, self._folder = document, policies, folder
        self._data: Mapping[str, Any] = document.data
        self._pools = self._entries("platform", "pools")
        self._apis = self._entries("platform", "apis")
        self._tiers = self._entries("platform", "tiers")
        self._workflows = self._entries("workflows")
        self._sources = [item for item in self._items("workload") if isinstance(item, Mapping)]
        self._has_trace = has_trace
        self.is_recorded = has_trace or any("trace" in source for source in self._sources)
        names = (*self._pools, *self._apis)
        self._places = names if self._is_sound("platform", "pools") and self._is_sound("platform", "apis") else None
        self._sizes = {name: parsed(PoolDocument, raw) for name, raw in self._pools.items()}
        self._limits = {name: parsed(ApiDocument, raw) for name, raw in self._apis.items()}

    def run(self) -> list[Problem]:
        """Every problem."""
        self._check_platform()
        self._check_workload()
        self._check_workflows()
        self._check_faults()
        self._check_clients()
        self._check_policies()
        self._check_primary()
        self._check_expectations()
        return self.problems

    @property
    def names(self) -> Names:
        """What policies may name."""
        classes, tenants = self._who()
        tiers = tuple(self._tiers) if self._is_sound("platform", "tiers") else None
        return Names(self._places, tiers, classes, tenants)

    # --- reading parts that may be wrong ---

    def _entries(self, *path: str) -> dict[str, Any]:
        found = self._document.at(path)
        return found if isinstance(found, dict) else {}

    def _is_sound(self, *path: str) -> bool:
        """Whether a table of the document can be read, or is left out: what is not in it is then not there."""
        return all(isinstance(self._document.at(path[:length]) or {}, dict) for length in range(1, len(path) + 1))

    def _items(self, key: str) -> list[Any]:
        found = self._data.get(key)
        return found if isinstance(found, list) else []

    def _who(self) -> tuple[tuple[str, ...] | None, Tenants | None]:
        """(classes, tenants) that the workload can bring; None when a recorded trace decides."""
        if self.is_recorded or not self._sources:
            return None, None
        tenants = Tenants()
        for source in self._sources:
            tenants.add(source)
        classes = dict.fromkeys(str(source.get("class", "default")) for source in self._sources)
        return tuple(classes), tenants

    def _horizon_ns(self) -> int | None:
        return _duration(self._data.get("horizon"))

    def _complain(self, loc: Loc, message: str, *, at_key: bool = False) -> None:
        self.problems.append(self._document.problem(loc, message, at_key=at_key))

    def _refer(self, loc: Loc, kind: str, name: Any, known: Known | None, *, at_key: bool = False) -> bool:
        """Whether `name` is known; complain when it is text and is not."""
        if known is None or not isinstance(name, str):
            return False
        if name in known:
            return True
        self._complain(loc, f"there is no {kind} {name!r}{choose(name, known)}", at_key=at_key)
        return False

    # --- the platform ---

    def _check_platform(self) -> None:
        if isinstance(self._data.get("platform"), Mapping) and self._places == ():
            self._complain(("platform",), "the platform has no pools and no apis", at_key=True)
        for name in self._apis:
            if name in self._pools:
                self._complain(
                    ("platform", "apis", name), f"{name!r} is a pool already: names must differ", at_key=True
                )
        for name, raw in self._tiers.items():
            tier = parsed(TierDocument, raw)
            wanted = raw.get("pool") if isinstance(raw, Mapping) and tier is None else tier.pool if tier else None
            self._refer(("platform", "tiers", name, "pool"), "pool or api", wanted, self._places)
        classes, tenants = self._who()
        for name, raw in self._entries("platform", "budgets").items():
            self._check_who(("platform", "budgets", name), raw, classes, tenants)
        for name in self._entries("classes"):
            self._refer(("classes", name), "class", name, classes, at_key=True)

    def _check_who(self, loc: Loc, raw: Any, classes: Known | None, tenants: Known | None) -> None:
        """The names under `for` of a budget or a client."""
        chosen = raw.get("for") if isinstance(raw, Mapping) else None
        for kind, known in (("class", classes), ("tenant", tenants)):
            entry = chosen.get(kind) if isinstance(chosen, Mapping) else None
            for place, name in enumerate(entry if isinstance(entry, list) else [entry]):
                at = (*loc, "for", kind, place) if isinstance(entry, list) else (*loc, "for", kind)
                self._refer(at, kind, name, known)

    # --- the demand ---

    def _check_workload(self) -> None:
        if self._data.get("workload") == []:
            self._complain(("workload",), "the workload is empty", at_key=True)
        if self.is_recorded:
            self._check_recorded()
            return
        seen: dict[str, int] = {}
        for number, raw in enumerate(self._items("workload")):
            if not isinstance(raw, Mapping):
                continue
            loc: Loc = ("workload", number)
            name = raw.get("name")
            if isinstance(name, str) and name in seen:
                self._complain((*loc, "name"), f"source {name!r} is there already: names must differ")
            seen[str(name)] = number
            if self._is_sound("workflows"):
                self._refer((*loc, "workflow"), "workflow", raw.get("workflow"), self._workflows)
            if isinstance(raw.get("task"), Mapping):
                self._check_task((*loc, "task"), raw["task"])
            source = parsed(SourceSpec, raw)
            if source is not None:
                self._check_source(loc, source)

    def _check_recorded(self) -> None:
        if self._has_trace:
            return
        if len(self._sources) > 1:
            self._complain(
                ("workload",), "a recorded trace stands alone: it cannot be mixed with other sources", at_key=True
            )
            return
        recorded = parsed(RecordedSpec, self._sources[0])
        if recorded is not None:
            self._check_file(("workload", 0, "trace"), recorded.trace)

    def _check_file(self, loc: Loc, name: str) -> None:
        try:
            find("traces", name, self._folder)
        except UsageError as error:
            self._complain(loc, str(error))

    def _check_source(self, loc: Loc, source: SourceSpec) -> None:
        horizon = self._horizon_ns()
        if horizon is not None and source.start >= horizon:
            self._complain((*loc, "start"), f"source {source.name!r} starts after the horizon: it brings no run")
        endless = source.until is None and source.count is None and horizon is None and "horizon" not in self._data
        if endless and not source.arrivals.is_finite:
            self._complain(loc, f"source {source.name!r} never ends: give it until or count, or set horizon")
        if source.arrivals.empirical is not None:
            self._check_file((*loc, "arrivals", "empirical", "file"), source.arrivals.empirical.file)

    def _check_workflows(self) -> None:
        used = [source.get("workflow") for source in self._sources]
        for name, raw in self._workflows.items():
            loc: Loc = ("workflows", name)
            if name not in used and not self.is_recorded:
                self._complain(loc, f"no source uses the workflow {name!r}", at_key=True)
            tasks = raw.get("tasks") if isinstance(raw, Mapping) else None
            for task, entry in tasks.items() if isinstance(tasks, Mapping) else ():
                if isinstance(entry, Mapping):
                    self._check_task((*loc, "tasks", task), entry)
                    after = entry.get("after")
                    for place, before in enumerate(after if isinstance(after, list) else []):
                        self._refer((*loc, "tasks", task, "after", place), "task", before, tasks)

    def _check_task(self, loc: Loc, raw: Mapping[str, Any]) -> None:
        self._refer((*loc, "pool"), "pool or api", raw.get("pool"), self._places)
        self._refer((*loc, "tier"), "tier", raw.get("tier"), self.names.tiers)
        demand = raw.get("demand")
        for name in demand if isinstance(demand, Mapping) else ():
            self._refer((*loc, "demand", name), "pool or api", name, self._places, at_key=True)
        own = (*loc, "slots" if "slots" in raw else "pool")
        amounts = {own: (raw.get("pool"), raw.get("slots", 1))}
        for name, amount in demand.items() if isinstance(demand, Mapping) else ():
            amounts[*loc, "demand", name] = (name, amount)
        for where, (name, amount) in amounts.items():
            if isinstance(name, str) and isinstance(amount, int):
                self._check_amount(where, name, amount)
        task = parsed(TaskSpec, raw)
        if task is not None:
            self._check_tokens(loc, task)

    def _check_amount(self, where: Loc, name: str, amount: int) -> None:
        pool, api = self._sizes.get(name), self._limits.get(name)
        if pool is not None and pool.slots != "unlimited" and amount > pool.slots:
            self._complain(where, f"impossible demand: {amount} slots of {name!r}, which has {pool.slots}")
        for limit in api.limits if api is not None else ():
            if limit.requests is not None and amount > limit.spec().burst:
                calls = f"impossible demand: {amount} calls at once to {name!r}"
                self._complain(where, f"{calls}, which lets {limit.spec().burst} through at once")

    def _check_tokens(self, loc: Loc, task: TaskSpec) -> None:
        """A call of more tokens than a limit's burst is refused for ever (known before the run only when the numbers are fixed)."""
        fixed = [
            (key, law.deterministic)
            for key, law in (("tokens_in", task.tokens_in), ("tokens_out", task.tokens_out))
            if law
        ]
        tokens = sum(int(amount) for _, amount in fixed if amount is not None)
        for name in dict.fromkeys((task.pool, *task.demand)):
            api = self._limits.get(name)
            for limit in api.limits if api is not None else ():
                if limit.tokens is not None and tokens > limit.spec().burst:
                    let = f"which lets {limit.spec().burst} through at once"
                    self._complain((*loc, fixed[0][0]), f"impossible demand: {tokens} tokens a call to {name!r}, {let}")

    # --- what goes wrong, and who waits for it ---

    def _check_faults(self) -> None:
        horizon = self._horizon_ns()
        for number, raw in enumerate(self._items("faults")):
            what = raw.get("what") if isinstance(raw, Mapping) else None
            if not isinstance(what, Mapping):
                continue
            loc: Loc = ("faults", number)
            if self._places is not None:
                self._refer((*loc, "what", "pool"), "pool", what.get("pool"), self._pools)
                self._refer((*loc, "what", "api"), "api", what.get("api"), self._apis)
            fault = parsed(FaultDocument, raw)
            if fault is None:
                continue
            if horizon is not None and fault.at >= horizon:
                self._complain((*loc, "at"), "the fault begins after the horizon: it has no effect")
            api, pool = self._limits.get(str(fault.what.api)), self._sizes.get(str(fault.what.pool))
            if fault.what.allowance is not None and api is not None and not api.limits:
                self._complain((*loc, "what", "allowance"), f"api {fault.what.api!r} has no limits to cut")
            if fault.what.capacity is not None and pool is not None and pool.slots == "unlimited":
                self._complain((*loc, "what", "capacity"), f"pool {fault.what.pool!r} is unlimited")

    def _check_clients(self) -> None:
        classes, tenants = self._who()
        everybody = None
        for number, raw in enumerate(self._items("clients")):
            self._check_who(("clients", number), raw, classes, tenants)
            if everybody is not None:
                self._complain(
                    ("clients", number),
                    f"never used: clients.{everybody} is for everybody, and the first that fits counts",
                )
            elif isinstance(raw, Mapping) and not raw.get("for") and parsed(ClientDocument, raw) is not None:
                everybody = number

    # --- policies and what is expected of them ---

    def _check_policies(self) -> None:
        names: dict[str, int] = {}
        for number, policy in self._policies:
            if policy.name in names:
                self._complain(("policies", number), f"policy {policy.name!r} is there already: names must differ")
            names[policy.name] = number
            self.problems.extend(misfits(policy, self.names))
        if self._data.get("policies") == []:
            self._complain(("policies",), "found no policy, expected at least one", at_key=True)
        self._refer_to_policy(("baseline",), self._data.get("baseline"))
        control = self._data.get("control", [])
        for place, name in enumerate(control if isinstance(control, list) else [control]):
            self._refer_to_policy(("control", place) if isinstance(control, list) else ("control",), name)
        if control and not self._data.get("expect"):
            self._complain(("control",), "a control has no effect without expect lines", at_key=True)
        warmup, horizon = _duration(self._data.get("warmup")), self._horizon_ns()
        if warmup and horizon is not None and warmup >= horizon:
            self._complain(("warmup",), "the warm-up must end before the horizon")

    def _refer_to_policy(self, loc: Loc, name: Any) -> None:
        """Complain of a policy that is not there, unless it may be one that could not be read: that is told already."""
        read = [policy.name for _, policy in self._policies]
        places = {number for number, _ in self._policies}
        unread = [item for number, item in enumerate(self._items("policies")) if number not in places]
        if not isinstance(self._data.get("policies", []), list):
            return
        known = read if "policies" in self._data else ["fifo"]
        names = [str(item.get("name") if isinstance(item, Mapping) else item) for item in unread]
        if not (unread and isinstance(name, str) and (name in names or nearest(name, names))):
            self._refer(loc, "policy", name, known)

    def _check_expectations(self) -> None:
        classes, tenants = self._who()
        kinds: dict[str, Known | None] = {"class": classes, "tenant": tenants, "pool": self._places}
        for number, raw in enumerate(self._items("expect")):
            if not isinstance(raw, Mapping):
                continue
            loc: Loc = ("expect", number)
            self._check_metric((*loc, "metric"), raw.get("metric"), is_compared="better_than" in raw)
            for key in ("policy", "better_than"):
                self._refer_to_policy((*loc, key), raw.get(key))
            where = raw.get("where")
            for kind, name in where.items() if isinstance(where, Mapping) else ():
                if kind in kinds:
                    self._refer((*loc, "where", kind), "pool or api" if kind == "pool" else kind, name, kinds[kind])
            line = parsed(ExpectDocument, raw)
            if line is not None and line.policy is not None and line.policy == line.better_than:
                self._complain((*loc, "better_than"), f"policy {line.policy!r} cannot be better than itself")

    def _check_primary(self) -> None:
        primary = self._data.get("primary")
        if not isinstance(primary, str):
            return
        try:
            metric, where = split_key(primary)
        except UsageError as error:
            self._complain(("primary",), str(error))
            return
        self._check_metric(("primary",), metric)
        classes, tenants = self._who()
        kinds: dict[str, Known | None] = {"class": classes, "tenant": tenants, "pool": self._places}
        for kind, name in where.items():
            self._refer(("primary",), "pool or api" if kind == "pool" else kind, name, kinds[kind])

    def _check_metric(self, loc: Loc, metric: Any, *, is_compared: bool = False) -> None:
        """The head of ``latency_s.p95``: the parts that there are come from the results."""
        if not isinstance(metric, str):
            return
        head = metric.split(".", maxsplit=1)[0]
        if head not in METRICS:
            self._complain(loc, f"there is no metric {metric!r}{nearest(head, METRICS)}")
        elif is_compared and direction(metric) == NEUTRAL:
            self._complain(loc, f"{metric!r} has no better and worse: use at_least, at_most or equals")


def _duration(value: Any) -> int | None:
    """ns, or None for what is no duration."""
    try:
        return parse_duration(value)
    except ValueError:
        return None
