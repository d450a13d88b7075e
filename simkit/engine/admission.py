"""The door: overload actions first, then the policy's admission chain; the answer's effect on the submission.

An answer is one of the six of `simkit.model.Verdict`. "No objection" from everybody is ADMIT.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simkit.model import CHEAPEST, NS_PER_S, Decision, Outcome, TierSpec, Verdict

if TYPE_CHECKING:
    from simkit.engine.tables import Shape
    from simkit.engine.world import Submission, World


class Door:
    """Decides about every submission, again after each deferral."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chain = world.mechanisms.admission
        self._class_names = world.trace.classes
        self._overload = world.mechanisms.overload is not None
        self.closed_by_fault = False

    def ask(self, submission: Submission) -> None:
        """One pass through the chain, and what follows from it."""
        world = self._world
        if submission.abandoned:
            world.live.pop(submission.number)  # the client left while the submission was deferred
            return
        decision = self._decide(submission)
        if decision is None:
            if self._overload:
                self._admit(submission)
            else:
                world.lifecycle.begin(submission)
            return
        if decision.verdict is Verdict.ADMIT:
            self._admit(submission)
            return
        now_ns, run = world.clock.now_ns, submission.run
        retry_after_s = decision.retry_after_ns / NS_PER_S
        match decision.verdict:
            case Verdict.QUEUE:
                world.recorder.event(now_ns, "queue", run, -1, decision.reason)
                self._admit(submission)
            case Verdict.DEFER:
                world.recorder.event(now_ns, "defer", run, -1, decision.reason, retry_after_s)
                world.deferrals[run] += 1
                world.clock.call_at(now_ns + max(decision.retry_after_ns, 1), self.ask, submission)
            case Verdict.DOWNGRADE:
                world.recorder.event(now_ns, "downgrade", run, -1, decision.reason, decision.width or 0.0)
                self._admit(submission, decision)
            case Verdict.SHED:
                world.recorder.event(now_ns, "shed", run, -1, decision.reason)
                self._turn_away(submission, Outcome.SHED, decision)
            case Verdict.REJECT:
                world.recorder.event(now_ns, "reject", run, -1, decision.reason, retry_after_s)
                self._turn_away(submission, Outcome.REJECTED, decision)

    def _decide(self, submission: Submission) -> Decision | None:
        world = self._world
        if self.closed_by_fault:
            return Decision(Verdict.REJECT, "fault:reject")
        if self._overload:
            actions = world.actions
            name = self._class_names[world.submissions.cls[submission.number]]
            if actions.only is not None and name not in actions.only:
                return Decision(Verdict.SHED, f"mode:{world.mode}:only")
            if name in actions.defer:
                return Decision(Verdict.DEFER, f"mode:{world.mode}:defer", actions.defer_ns)
        now_ns = world.clock.now_ns
        for mechanism in self._chain:
            decision = mechanism.decide(submission.number, now_ns)
            if decision is not None:
                return decision
        return None

    def _turn_away(self, submission: Submission, outcome: Outcome, decision: Decision) -> None:
        submission.dead = True
        self._world.live.pop(submission.number)
        if not submission.abandoned:
            self._world.desk.answered_badly(submission, outcome, decision.reason, decision.retry_after_ns)

    def _admit(self, submission: Submission, decision: Decision | None = None) -> None:
        """Give the run its envelope and let it in."""
        width, tier = 1.0, None
        if decision is not None:
            width = 1.0 if decision.width is None else decision.width
            tier = decision.tier
        if self._overload:
            actions = self._world.actions
            width = min(width, actions.optional_width)
            tier = tier or actions.tier
            if actions.skip_verification:
                self._skip_verification(submission, actions.skip_verification)
        if width < 1.0:
            self._narrow(submission, width)
        if tier is not None:
            self._move_to_tier(submission, tier)
        self._world.lifecycle.begin(submission)

    def _skip(self, submission: Submission, rows: list[int]) -> None:
        if rows:
            submission.skipped = (submission.skipped or set()).union(rows)
            self._world.skipped_tasks[submission.run] += len(rows)

    def _skip_verification(self, submission: Submission, classes: frozenset[str]) -> None:
        world = self._world
        if self._class_names[world.submissions.cls[submission.number]] not in classes:
            return
        verifies, first = world.rows.verifies, submission.first_row
        rows = [row for row in range(first, first + submission.size) if verifies[row]]
        if rows:
            submission.unverified = True
            world.recorder.event(world.clock.now_ns, "verification_skipped", submission.run, -1, f"mode:{world.mode}")
            self._skip(submission, rows)

    def _narrow(self, submission: Submission, width: float) -> None:
        """Keep floor(width x n) of the n optional tasks of each fan-out (tasks of one pool behind the same predecessors)."""
        world = self._world
        rows, tasks = world.rows, world.trace.tasks
        fans: dict[tuple[int, bytes], list[int]] = defaultdict(list)
        for row in range(submission.first_row, submission.first_row + submission.size):
            if rows.optional[row]:
                task = world.task[row]
                before = tasks.after[tasks.after_ptr[task] : tasks.after_ptr[task + 1]].tobytes()
                fans[rows.pool[row], before].append(row)
        left_out = [row for fan in fans.values() for row in fan[int(width * len(fan) + 1e-9) :]]
        if left_out:
            world.downgraded[submission.run] = True
            self._skip(submission, left_out)

    def _move_to_tier(self, submission: Submission, name: str) -> None:
        """Serve tiered tasks by tier `name` where that is cheaper; the run's soundness follows the weakest tier used."""
        world = self._world
        rows, tiers = world.rows, world.platform.tiers
        number = _cheapest(tiers) if name == CHEAPEST else world.layout.tier_names.index(name)
        target = tiers[number]
        for row in range(submission.first_row, submission.first_row + submission.size):
            current = rows.tier[row]
            if current < 0 or tiers[current].price <= target.price:
                continue
            old = tiers[current]
            shape = world.layout.shapes[world.shape[row]]
            self._reshape(row, self._shape_on(shape, world.layout.places[target.pool], number))
            ratio = old.speed / target.speed
            rows.estimate_ns[row] = round(rows.estimate_ns[row] * ratio)
            world.service_ns[row] = round(world.service_ns[row] * ratio)
            rows.cost_usd[row] *= target.price / old.price if old.price else 0.0
            world.downgraded[submission.run] = True
            if target.success_p is not None:
                submission.defect_p = max(submission.defect_p, 1.0 - target.success_p)

    def _reshape(self, row: int, shape: Shape) -> None:
        world = self._world
        world.shape[row] = world.layout.shape_number(shape)
        world.rows.pool[row], world.rows.tier[row] = shape.pool, shape.tier
        world.rows.slots[row] = shape.slots
        world.gates.regroup(row)

    def _shape_on(self, shape: Shape, pool: int, tier: int) -> Shape:
        """The same demand on another tier's pool (an API there gets one call)."""
        from simkit.engine.tables import Shape

        old_api = shape.pool - self._world.layout.pool_count
        calls = tuple(call for call in shape.calls if call[0] != old_api)
        new_api = pool - self._world.layout.pool_count
        if new_api >= 0:
            calls = tuple(sorted((*calls, (new_api, 1))))
        slots = 1 if new_api >= 0 or old_api >= 0 else shape.slots
        return Shape(pool, slots, shape.others, calls, tier)


def _cheapest(tiers: Sequence[TierSpec]) -> int:
    """The number of the tier with the lowest price, the first declared of equal ones."""
    return min(range(len(tiers)), key=lambda number: tiers[number].price)
