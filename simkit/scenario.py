"""Scenarios: the platform, the demand, what goes wrong, the policies to compare and what is expected. Strict; nothing runs here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simkit.documents import Document, DocumentErrors, Loc, Problem, apply_overrides, load, nearest, validate
from simkit.library import find
from simkit.model import NEVER_NS, ClientSpec, FaultSpec, PlatformSpec, UsageError
from simkit.policy import Policy, load_policy, policy_from
from simkit.rng import Streams
from simkit.scenario_document import ExpectDocument, ScenarioDocument, platform_spec
from simkit.trace.jsonl import read_any
from simkit.trace.synth import synthesise
from simkit.trace.table import Trace
from simkit.trace.workload import RecordedSpec, SourceSpec, Workload


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """What is known of a workload class: a task of it that waits longer than `starved_after_ns` is starved."""

    starved_after_ns: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """One line of `expect`. Exactly one of the bounds is set; `policy` None = the scenario's last policy."""

    metric: str
    where: Mapping[str, str]
    policy: str
    at_most: float | None
    at_least: float | None
    equals: float | None
    tolerance: float
    better_than: str | None
    by: float
    line: int

    @property
    def text(self) -> str:
        """As a sentence: ``latency_s.p95 of tenant b under weighted_fair at most 5``."""
        where = "".join(f" of {kind} {name}" for kind, name in self.where.items())
        if self.at_most is not None:
            bound = f"at most {self.at_most:g}"
        elif self.at_least is not None:
            bound = f"at least {self.at_least:g}"
        elif self.equals is not None:
            bound = f"equals {self.equals:g}" + (f" within {self.tolerance:g}" if self.tolerance else "")
        else:
            bound = f"better than under {self.better_than}" + (f" by {self.by:.0%}" if self.by else "")
        return f"{self.metric}{where} under {self.policy} {bound}"


@dataclass(frozen=True)
class Scenario:
    """A checked scenario. `trace` makes the demand of one replication."""

    name: str
    about: str
    seed: int
    replications: int
    horizon_ns: int
    warmup_ns: int
    platform: PlatformSpec
    clients: tuple[ClientSpec, ...]
    faults: tuple[FaultSpec, ...]
    classes: Mapping[str, ClassSpec]
    workload: Workload | None
    recorded: Path | None
    policies: tuple[Policy, ...]
    control: tuple[str, ...]
    baseline: str
    margin: float
    primary: str
    expect: tuple[Expectation, ...]
    path: Path | None = None
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """blake2b-128 of what the scenario does: its data without about, policies, expectations, controls and how it is judged."""
        judged = ("about", "policies", "expect", "control", "baseline", "margin", "primary", "replications", "seed")
        content = {key: value for key, value in self.document.items() if key not in judged}
        text = json.dumps(content, sort_keys=True, allow_nan=False, default=str)
        recorded = _file_digest(self.recorded) if self.recorded is not None else ""
        return hashlib.blake2b((text + recorded).encode(), digest_size=16).hexdigest()

    def trace(self, replication: int = 0, seed: int | None = None) -> Trace:
        """The demand of one replication: synthesised, or the recorded file (the same for every replication)."""
        if self.recorded is not None:
            return _read_once(self.recorded)
        assert self.workload is not None
        streams = Streams(self.seed if seed is None else seed, replication)
        return synthesise(self.workload, streams=streams, horizon_ns=self.horizon_ns)

    def policy(self, name: str) -> Policy:
        """The policy of that name. Raises UsageError with the nearest."""
        for policy in self.policies:
            if policy.name == name:
                return policy
        names = [policy.name for policy in self.policies]
        raise UsageError(f"the scenario has no policy {name!r}{nearest(name, names)} (it has {', '.join(names)})")

    def with_policies(self, policies: Iterable[Policy]) -> Scenario:
        """The same scenario with other policies; expectations and controls about policies that are not there are left out."""
        chosen = tuple(policies)
        names = {policy.name for policy in chosen}
        expect = tuple(
            line
            for line in self.expect
            if line.policy in names and (line.better_than is None or line.better_than in names)
        )
        return replace(
            self,
            policies=chosen,
            expect=expect,
            control=tuple(name for name in self.control if name in names),
            baseline=self.baseline if self.baseline in names else chosen[0].name,
        )


_READ: dict[tuple[str, int], Trace] = {}


def _read_once(path: Path) -> Trace:
    key = (str(path.resolve()), path.stat().st_mtime_ns)
    if key not in _READ:
        _READ.clear()
        _READ[key] = read_any(path)
    return _READ[key]


def _file_digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def load_scenario(
    source: str | Path | Mapping[str, Any] | Scenario,
    *,
    overrides: Sequence[str] = (),
    trace: str | Path | None = None,
    allow_code: bool = False,
) -> Scenario:
    """A scenario from a library name, a path or plain data.

    `overrides` are ``key=value`` texts (``platform.pools.gpu.slots=4``); `trace` replaces the workload by a recorded file. Raises
    DocumentErrors with every problem, UsageError when there is no such file.
    """
    if isinstance(source, Scenario):
        return source
    path = None if isinstance(source, Mapping) else find("scenarios", source)
    document = load(source if path is None else path, name="<scenario>" if path is None else None)  # type: ignore[arg-type]
    apply_overrides(document, overrides)
    if trace is not None:
        document.data["workload"] = [{"trace": str(Path(trace).resolve())}]
    return _Reader(document, path, allow_code=allow_code).scenario()


class _Reader:
    """Turns a document into a Scenario; collects problems over all its parts before it gives up."""

    def __init__(self, document: Document, path: Path | None, *, allow_code: bool) -> None:
        self._document, self._path, self._allow_code = document, path, allow_code
        self._problems: list[Problem] = []

    def _complain(self, loc: Loc, message: str) -> None:
        self._problems.append(self._document.problem(loc, message))

    def scenario(self) -> Scenario:
        try:
            spec = validate(self._document, ScenarioDocument)
        except DocumentErrors as error:
            self._problems.extend(error.problems)
            spec = None
        sources = self._sources()
        policies = self._policies()
        if spec is None:
            raise DocumentErrors(self._problems)
        places = {*spec.platform.pools, *spec.platform.apis}
        self._check_platform(spec)
        self._check_workload(spec, sources)
        self._check_faults(spec)
        self._check_names(spec, sources, policies, places)
        if self._problems:
            raise DocumentErrors(self._problems)
        return self._build(spec, sources, policies)

    # --- parts that are read one by one, so that one bad item does not hide the others ---

    def _sources(self) -> list[SourceSpec | RecordedSpec]:
        items = self._document.data.get("workload")
        sources: list[SourceSpec | RecordedSpec] = []
        for number, item in enumerate(items if isinstance(items, list) else []):
            model: Any = RecordedSpec if isinstance(item, Mapping) and "trace" in item else SourceSpec
            try:
                sources.append(validate(self._document, model, ("workload", number)))
            except DocumentErrors as error:
                self._problems.extend(error.problems)
        return sources

    def _policies(self) -> list[Policy]:
        items = self._document.data.get("policies", ["fifo"])
        policies: list[Policy] = []
        for number, item in enumerate(items if isinstance(items, list) else []):
            loc = ("policies", number)
            try:
                if isinstance(item, Mapping):
                    folder = self._path.parent if self._path else None
                    policies.append(policy_from(self._document, at=loc, allow_code=self._allow_code, folder=folder))
                elif isinstance(item, str):
                    folder = self._path.parent if self._path else None
                    policies.append(load_policy(item, relative_to=folder, allow_code=self._allow_code))
                else:
                    self._complain(loc, f"found {item!r}, expected the name of a policy, a file or a policy")
            except DocumentErrors as error:
                self._problems.extend(error.problems)
            except UsageError as error:
                self._complain(loc, str(error))
        return policies

    # --- checks across parts ---

    def _check_platform(self, spec: ScenarioDocument) -> None:
        platform = spec.platform
        if not platform.pools and not platform.apis:
            self._complain(("platform",), "the platform has no pools and no apis")
        for name in platform.apis:
            if name in platform.pools:
                self._complain(("platform", "apis", name), f"{name!r} is a pool already: names must differ")
        places = [*platform.pools, *platform.apis]
        for name, tier in platform.tiers.items():
            if tier.pool not in places:
                self._dangling(("platform", "tiers", name, "pool"), "pool", tier.pool, places)

    def _dangling(self, loc: Loc, kind: str, name: str, known: Iterable[str]) -> None:
        names = list(known)
        hint = nearest(name, names) or f" (there are: {', '.join(names) or 'none'})"
        self._complain(loc, f"there is no {kind} {name!r}{hint}")

    def _check_workload(self, spec: ScenarioDocument, sources: list[SourceSpec | RecordedSpec]) -> None:
        if not spec.workload:
            self._complain(("workload",), "the workload is empty")
        recorded = [source for source in sources if isinstance(source, RecordedSpec)]
        if recorded and len(spec.workload) > 1:
            self._complain(("workload",), "a recorded trace stands alone: it cannot be mixed with other sources")
        used: set[str] = set()
        seen: dict[str, int] = {}
        for number, source in enumerate(sources):
            if not isinstance(source, SourceSpec):
                continue
            if source.name in seen:
                self._complain(
                    ("workload", number, "name"), f"source {source.name!r} is there already: names must differ"
                )
            seen[source.name] = number
            if source.workflow is not None and source.workflow not in spec.workflows:
                self._dangling(("workload", number, "workflow"), "workflow", source.workflow, spec.workflows)
            used.add(source.workflow or "")
            if source.task is not None:
                self._check_task(("workload", number, "task"), source.task, spec)
            endless = source.until is None and source.count is None and spec.horizon is None
            if endless and not source.arrivals.is_finite:
                self._complain(
                    ("workload", number), f"source {source.name!r} never ends: give it until or count, or set horizon"
                )
        for name, workflow in spec.workflows.items():
            if name not in used and not recorded:
                self._complain(("workflows", name), f"the workflow {name!r} is used by no source")
            for task_name, task in workflow.tasks.items():
                self._check_task(("workflows", name, "tasks", task_name), task, spec)

    def _check_task(self, loc: Loc, task: Any, spec: ScenarioDocument) -> None:
        platform = spec.platform
        places = {**platform.pools, **platform.apis}
        if task.pool not in places:
            self._dangling((*loc, "pool"), "pool or api", task.pool, places)
        for name, amount in {task.pool: task.slots, **task.demand}.items():
            if name not in places:
                if name != task.pool:
                    self._dangling((*loc, "demand", name), "pool or api", name, places)
                continue
            pool = platform.pools.get(name)
            if pool is not None and pool.slots != "unlimited" and amount > pool.slots:
                where = (*loc, "slots") if name == task.pool else (*loc, "demand", name)
                self._complain(where, f"impossible demand: {amount} slots of {name!r}, which has {pool.slots}")
            api = platform.apis.get(name)
            for limit in api.limits if api else ():
                burst = limit.spec().burst
                if limit.requests is not None and amount > burst and name != task.pool:
                    self._complain(
                        (*loc, "demand", name),
                        f"impossible demand: {amount} calls at once, {name!r} lets {burst} through",
                    )
        if task.tier is not None and task.tier not in platform.tiers:
            self._dangling((*loc, "tier"), "tier", task.tier, platform.tiers)

    def _check_faults(self, spec: ScenarioDocument) -> None:
        for number, fault in enumerate(spec.faults):
            what = fault.what
            for kind, name, known in (("pool", what.pool, spec.platform.pools), ("api", what.api, spec.platform.apis)):
                if name is not None and name not in known:
                    self._dangling(("faults", number, "what", kind), kind, name, known)
            if (
                what.allowance is not None
                and what.api in spec.platform.apis
                and not spec.platform.apis[what.api].limits
            ):
                self._complain(("faults", number, "what", "allowance"), f"api {what.api!r} has no limits to cut")
            limited = what.pool is not None and what.pool in spec.platform.pools
            if what.capacity is not None and limited and spec.platform.pools[what.pool].slots == "unlimited":  # type: ignore[index]
                self._complain(("faults", number, "what", "capacity"), f"pool {what.pool!r} is unlimited")
            if spec.horizon is not None and fault.at >= spec.horizon:
                self._complain(("faults", number, "at"), "the fault begins after the horizon: it has no effect")

    def _check_names(
        self, spec: ScenarioDocument, sources: list[SourceSpec | RecordedSpec], policies: list[Policy], places: set[str]
    ) -> None:
        names = [policy.name for policy in policies]
        for number, name in enumerate(names):
            if name in names[:number]:
                self._complain(("policies", number), f"policy {name!r} is there already: names must differ")
        for number, policy in enumerate(policies):
            for pool in policy.order_by_pool:
                if pool not in places:
                    self._dangling(("policies", number), "pool", pool, sorted(places))
        if spec.warmup and spec.horizon is not None and spec.warmup >= spec.horizon:
            self._complain(("warmup",), "the warm-up must end before the horizon")
        if spec.baseline is not None and spec.baseline not in names:
            self._dangling(("baseline",), "policy", spec.baseline, names)
        for position, name in enumerate([spec.control] if isinstance(spec.control, str) else spec.control):
            if name not in names:
                loc: Loc = ("control",) if isinstance(spec.control, str) else ("control", position)
                self._dangling(loc, "policy", name, names)
        if spec.control and not spec.expect:
            self._complain(("control",), "a control has no effect without expect lines")
        self._check_expectations(spec, sources, names, places)

    def _check_expectations(
        self, spec: ScenarioDocument, sources: list[SourceSpec | RecordedSpec], policies: list[str], places: set[str]
    ) -> None:
        classes, tenants = _who_is_there(sources)
        for number, line in enumerate(spec.expect):
            for key, name in (("policy", line.policy), ("better_than", line.better_than)):
                if name is not None and name not in policies:
                    self._dangling(("expect", number, key), "policy", name, policies)
            for kind, name in line.where.items():
                known = {"class": classes, "tenant": tenants, "pool": places}[kind]
                if known is not None and name not in known:
                    self._dangling(("expect", number, "where", kind), kind, name, sorted(known))
        for name in spec.classes:
            if classes is not None and name not in classes:
                self._dangling(("classes", name), "class", name, sorted(classes))
        who = [(("clients", number), client.for_) for number, client in enumerate(spec.clients)]
        who += [(("platform", "budgets", name), budget.for_) for name, budget in spec.platform.budgets.items()]
        for place, chosen in who:
            for kind, entry in chosen.items():
                known = {"class": classes, "tenant": tenants}[kind]
                for name in [entry] if isinstance(entry, str) else entry:
                    if known is not None and name not in known:
                        self._dangling((*place, "for", kind), kind, name, sorted(known))

    # --- the result ---

    def _build(
        self, spec: ScenarioDocument, sources: list[SourceSpec | RecordedSpec], policies: list[Policy]
    ) -> Scenario:
        recorded = None
        workload = None
        if isinstance(sources[0], RecordedSpec):
            recorded = find("traces", sources[0].trace, self._path.parent if self._path else None)
        else:
            workload = Workload(
                sources=[s for s in sources if isinstance(s, SourceSpec)], workflows=dict(spec.workflows)
            )
        return Scenario(
            name=spec.name,
            about=spec.about.strip(),
            seed=spec.seed,
            replications=1 if recorded is not None and not spec.faults and not spec.clients else spec.replications,
            horizon_ns=NEVER_NS if spec.horizon is None else spec.horizon,
            warmup_ns=spec.warmup,
            platform=platform_spec(spec.platform),
            clients=tuple(client.spec() for client in spec.clients),
            faults=tuple(fault.spec() for fault in spec.faults),
            classes={name: ClassSpec(entry.starved_after) for name, entry in spec.classes.items()},
            workload=workload,
            recorded=recorded,
            policies=tuple(policies),
            control=(spec.control,) if isinstance(spec.control, str) else tuple(spec.control),
            baseline=spec.baseline or policies[0].name,
            margin=spec.margin,
            primary=spec.primary,
            expect=tuple(self._expectation(number, line, policies) for number, line in enumerate(spec.expect)),
            path=self._path,
            document=self._document.data,
        )

    def _expectation(self, number: int, line: ExpectDocument, policies: list[Policy]) -> Expectation:
        place = self._document.positions.get(("expect", number), (0, 0))
        return Expectation(
            line.metric, line.where, line.policy or policies[-1].name, line.at_most, line.at_least, line.equals,
            line.tolerance, line.better_than, line.by, place[0],
        )  # fmt: skip


def _who_is_there(sources: list[SourceSpec | RecordedSpec]) -> tuple[set[str] | None, set[str] | None]:
    """(classes, tenants) that the workload can bring; None when a recorded trace decides."""
    classes: set[str] = set()
    tenants: set[str] = set()
    for source in sources:
        if isinstance(source, RecordedSpec):
            return None, None
        classes.add(source.class_)
        if source.tenants is not None:
            tenants.update(f"{source.tenants.prefix}{number}" for number in range(source.tenants.count))
        else:
            tenants.add(source.tenant or source.name)
    return classes, tenants
