"""Scenarios: the platform, the demand, what goes wrong, the policies to compare and what is expected. Strict; nothing runs here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simkit.documents import (
    Document,
    DocumentErrors,
    Problem,
    apply_overrides,
    canonical,
    check,
    empty_values,
    first_at_each_place,
    load,
    nearest,
    short,
    validate,
)  # fmt: skip
from simkit.library import find
from simkit.model import NEVER_NS, ClientSpec, FaultSpec, PlatformSpec, UsageError
from simkit.policy import Policy, load_policy, policy_from
from simkit.rng import Streams
from simkit.scenario.checks import Checks, Names, misfits
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
    """One line of `expect`. Exactly one of the bounds is set; `line` is its place in the file, 0 = none."""

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
    names: Names | None = None  # what policies may name here

    @property
    def digest(self) -> str:
        """blake2b-128 of what the scenario does, in base units: platform, demand, clients, faults, classes, horizon and warm-up. Not its seed,
        its policies and how it is judged; nor its layout, other words for the same number, or where its files lie."""
        parts = (self.name, self.horizon_ns, self.warmup_ns, self.platform, self.clients, self.faults, self.classes)
        text = json.dumps([*map(canonical, parts), self._demand()], sort_keys=True, allow_nan=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _demand(self) -> Any:
        if self.recorded is not None:
            return _file_digest(self.recorded)
        assert self.workload is not None
        files = [
            source.arrivals.empirical.file for source in self.workload.sources if source.arrivals.empirical is not None
        ]
        sources, workflows = canonical(self.workload.sources), canonical(self.workload.workflows)
        return [sources, workflows, [_file_digest(find("traces", name, self.workload.folder)) for name in files]]

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
        """The same scenario with other policies; expectations and controls about policies that are not there are left out.

        Raises UsageError when two have the same name or there is none, DocumentErrors when one does not fit this scenario.
        """
        chosen = tuple(policies)
        names = [policy.name for policy in chosen]
        if not names:
            raise UsageError("found no policy, expected at least one")
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"two policies are called {name!r}: names must differ")
        if self.names is not None:
            problems = [problem for policy in chosen for problem in misfits(policy, self.names)]
            if problems:
                raise DocumentErrors(problems)
        expect = (line for line in self.expect if line.policy in names and line.better_than in (None, *names))
        return replace(
            self,
            policies=chosen,
            expect=tuple(expect),
            control=tuple(name for name in self.control if name in names),
            baseline=self.baseline if self.baseline in names else names[0],
        )


_READ: dict[tuple[str, int], Trace] = {}


def _read_once(path: Path) -> Trace:
    key = (str(path.resolve()), path.stat().st_mtime_ns)
    if key not in _READ:
        _READ.clear()
        _READ[key] = read_any(path)
    return _READ[key]


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def load_scenario(
    source: str | Path | Mapping[str, Any] | Scenario,
    *,
    overrides: Sequence[str] = (),
    trace: str | Path | None = None,
    allow_code: bool = False,
) -> Scenario:
    """A scenario from a library name, a path or plain data.

    `overrides` are ``key=value`` texts (``platform.pools.gpu.slots=4``); `trace` replaces the workload by a recorded file. Raises
    DocumentErrors with every problem, UsageError when there is no such file, or when something is to be changed in a Scenario that was
    loaded already.
    """
    if isinstance(source, Scenario):
        if overrides or trace is not None:
            raise UsageError(
                "overrides and a trace are for a scenario that is loaded now: give its name, its path or its data"
            )
        return source
    path = None if isinstance(source, Mapping) else find("scenarios", source)
    document = load(source, name="<scenario>") if path is None else load(path)
    recorded = None if trace is None else find("traces", trace)
    if recorded is not None:
        document.data["workload"] = [{"trace": recorded.name}]
    apply_overrides(document, overrides)
    return _Reader(document, path, recorded, allow_code=allow_code).scenario()


class _Reader:
    """Turns a document into a Scenario; collects problems over all its parts before it gives up."""

    def __init__(self, document: Document, path: Path | None, recorded: Path | None, *, allow_code: bool) -> None:
        self._document, self._recorded, self._allow_code = document, recorded, allow_code
        self._path, self._folder = path, None if path is None else path.parent
        self._problems: list[Problem] = []

    def scenario(self) -> Scenario:
        document, data = self._document, self._document.data
        self._problems = list(document.problems)
        for key in data:
            if key != "policies":  # whose mechanisms may have no parameters
                self._problems.extend(empty_values(document, (key,)))
        self._problems.extend(check(document, ScenarioDocument))
        items = data.get("workload")
        for number, item in enumerate(items if isinstance(items, list) else []):
            if isinstance(item, dict):
                self._problems.extend(check(document, _model_of(item), ("workload", number)))
        policies = self._policies()
        checks = Checks(document, policies, self._folder, has_trace=self._recorded is not None)
        problems = first_at_each_place([*self._problems, *checks.run()])
        if problems:
            raise DocumentErrors(problems)
        return self._build(validate(document, ScenarioDocument), [policy for _, policy in policies], checks.names)

    def _policies(self) -> list[tuple[int, Policy]]:
        """The policies that can be read, with their places in the list."""
        items = self._document.data.get("policies", ["fifo"])
        policies: list[tuple[int, Policy]] = []
        for number, item in enumerate(items if isinstance(items, list) else []):
            try:
                policies.append((number, self._policy(number, item)))
            except DocumentErrors as error:
                self._problems.extend(error.problems)
            except UsageError as error:
                self._problems.append(self._document.problem(("policies", number), str(error)))
        return policies

    def _policy(self, number: int, item: Any) -> Policy:
        if isinstance(item, Mapping):
            return policy_from(
                self._document, at=("policies", number), allow_code=self._allow_code, folder=self._folder
            )
        if isinstance(item, str):
            return load_policy(item, relative_to=self._folder, allow_code=self._allow_code)
        raise UsageError(f"found {short(item)}, expected the name of a policy, a file or a policy")

    # --- the result ---

    def _build(self, spec: ScenarioDocument, policies: list[Policy], names: Names) -> Scenario:
        recorded, workload = self._recorded, None
        if recorded is None and "trace" in spec.workload[0]:
            recorded = find("traces", spec.workload[0]["trace"], self._folder)
        if recorded is None:
            sources = [SourceSpec.model_validate(item) for item in spec.workload]
            workload = Workload(sources=sources, workflows=dict(spec.workflows), folder=self._folder)
        return Scenario(
            name=spec.name,
            about=spec.about.strip(),
            seed=spec.seed,
            replications=self._replications(spec, is_recorded=recorded is not None),
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
            names=names,
        )

    def _replications(self, spec: ScenarioDocument, *, is_recorded: bool) -> int:
        """As stated. A recorded trace is the same in every replication: one, unless its own scenario asks for more (or the world around it has
        faults or clients)."""
        stated = "replications" in spec.model_fields_set and self._recorded is None
        return spec.replications if stated or not is_recorded or spec.faults or spec.clients else 1

    def _expectation(self, number: int, line: ExpectDocument, policies: list[Policy]) -> Expectation:
        place = self._document.positions.get(("expect", number), (0, 0))
        return Expectation(
            line.metric, {str(kind): name for kind, name in line.where.items()}, line.policy or policies[-1].name, line.at_most, line.at_least, line.equals,
            line.tolerance, line.better_than, line.by, place[0],
        )  # fmt: skip


def _model_of(item: Mapping[str, Any]) -> type[RecordedSpec | SourceSpec]:
    return RecordedSpec if "trace" in item else SourceSpec
