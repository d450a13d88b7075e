"""A submission's life: tasks released as their predecessors end, verification, rework, and the one terminal state of its run."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from simkit.model import Outcome, TaskState
from simkit.rng import keyed_uniform

if TYPE_CHECKING:
    from simkit.engine.world import Submission, World

_DEFECT, _DETECT = 0x646566, 0x646574  # purpose keys of the draws
_DONE, _SKIPPED, _COALESCED = TaskState.DONE.value, TaskState.SKIPPED.value, TaskState.COALESCED.value


class Lifecycle:
    """Moves submissions from admission to their end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._coalesce = world.mechanisms.coalesce
        self._flights: dict[Hashable, tuple[int, list[int]]] = {}  # key -> (leader row, rows that share its work)
        self._flight_of: dict[int, Hashable] = {}
        self._log_attempt = world.attempts_part.log_attempt
        self._live, self._instance, self._verifies = world.live, world.rows.instance, world.rows.verifies

    # --- the way through ---

    def begin(self, submission: Submission) -> None:
        """Admitted: release the tasks that wait for nothing."""
        world = self._world
        now_ns = world.clock._now
        world.admitted_ns[submission.run] = now_ns
        if submission.size == 1 and submission.skipped is None and self._coalesce is None:
            submission.active = 1
            row = submission.first_row
            world.pools[world.rows.pool[row]].push(row, now_ns)
        else:
            self._release_roots(submission)

    def _release_roots(self, submission: Submission) -> None:
        pending, first = self._world.pending, submission.first_row
        roots = [row for row in range(first, first + submission.size) if not pending[row]]
        self._release(submission, roots)

    def _release(self, submission: Submission, rows: list[int]) -> None:
        """Queue rows whose predecessors are done; rows outside the envelope pass at once (a stack, not recursion)."""
        world = self._world
        now_ns = world.clock.now_ns
        stack = rows[::-1]
        while stack:
            row = stack.pop()
            if submission.skipped is not None and row in submission.skipped:
                world.state[row] = _SKIPPED
                stack.extend(self._followers_freed(submission, row)[::-1])
                continue
            submission.active += 1
            if self._coalesce is None or not self._joins_flight(row):
                world.pools[world.rows.pool[row]].push(row, now_ns)
        if submission.remaining == 0:
            self._all_done(submission)

    def _followers_freed(self, submission: Submission, row: int) -> list[int]:
        """Count `row` as finished; the rows that waited for it alone."""
        world = self._world
        submission.remaining -= 1
        task = world.task[row]
        first, last = world.follow_ptr[task], world.follow_ptr[task + 1]
        freed = []
        for position in range(first, last):
            follower = world.follow[position] + submission.shift
            world.pending[follower] -= 1
            if not world.pending[follower]:
                freed.append(follower)
        return freed

    def task_done(self, row: int) -> None:
        """The attempt of `row` succeeded."""
        self._world.state[row] = _DONE
        self._advance(row)
        if self._flight_of and row in self._flight_of:
            for follower in self._land(row):
                self._world.end_ns[follower] = self._world.clock.now_ns
                self._advance(follower)

    def _advance(self, row: int) -> None:
        submission = self._live[self._instance[row]]
        submission.active -= 1
        if submission.dead:
            self._forget_when_idle(submission)
            return
        if submission.size == 1 and not self._verifies[row]:
            submission.remaining = 0
            self._all_done(submission)
            return
        if self._verifies[row] and self._finds_defect(submission, row):
            submission.caught = True
        else:
            freed = self._followers_freed(submission, row)
            if freed and not submission.caught:
                self._release(submission, freed)
            elif submission.remaining == 0 and not submission.caught:
                self._all_done(submission)
        if submission.caught and submission.active == 0:
            self._work_again(submission)

    # --- verification ---

    def _defective(self, submission: Submission) -> bool:
        p = submission.defect_p
        luck = self._world.luck[submission.run]
        return p > 0.0 and keyed_uniform(_DEFECT, luck, submission.attempt, submission.round) < p

    def _finds_defect(self, submission: Submission, row: int) -> bool:
        world = self._world
        if not self._defective(submission):
            return False
        luck = world.luck[submission.run]
        found: bool = (
            keyed_uniform(_DETECT, luck, submission.attempt, submission.round, world.task[row])
            < world.detect_p[submission.run]
        )
        if not found:
            world.recorder.event(world.clock.now_ns, "defect_missed", submission.run, row, "", submission.round)
        return found

    def _work_again(self, submission: Submission) -> None:
        """A verification found the round defective: do the work again, or give up."""
        world = self._world
        if submission.round >= world.max_rework[submission.run]:
            self.fail(submission, Outcome.FAILED, "rework exhausted")
            return
        submission.round += 1
        submission.caught = False
        submission.remaining = submission.size
        world.recorder.event(world.clock.now_ns, "rework", submission.run, -1, "", submission.round)
        for row in range(submission.first_row, submission.first_row + submission.size):
            if world.state[row] == _DONE:
                self._log_attempt(row, "rework")
            world.state[row] = TaskState.PENDING.value
            world.pending[row] = world.predecessors[world.task[row]]
        self._release_roots(submission)

    def _all_done(self, submission: Submission) -> None:
        world = self._world
        submission.dead = True
        world.live.pop(submission.number)
        if submission.abandoned:
            return
        submission.answered = True
        if submission.defect_p > 0.0 and self._defective(submission):
            outcome = Outcome.FALSE_COMPLETION
        elif submission.unverified:
            outcome = Outcome.UNVERIFIED
        else:
            outcome = Outcome.VERIFIED
        self.close(submission, outcome, "")

    # --- bad ends ---

    def task_failed(self, row: int, reason: str, *, dead_letter: bool) -> None:
        """`row` is out of attempts: its submission fails, and so do those that shared its work."""
        rows = [row, *(self._land(row) if row in self._flight_of else ())]
        outcome = Outcome.DEAD_LETTERED if dead_letter else Outcome.FAILED
        for failed in rows:
            submission = self._world.live_of(failed)
            self._world.state[failed] = TaskState.FAILED.value
            submission.active -= 1
            if submission.dead:
                self._forget_when_idle(submission)
            else:
                self.fail(submission, outcome, reason)

    def drop(self, row: int, reason: str) -> None:
        """A limit took `row` out of its queue unserved."""
        world = self._world
        submission = world.live_of(row)
        world.state[row] = TaskState.DROPPED.value
        world.end_ns[row] = world.clock.now_ns
        submission.active -= 1
        kind = "budget_exhausted" if reason.startswith("budget") else "dropped"
        world.recorder.event(world.clock.now_ns, kind, submission.run, row, reason)
        self._promote(row)
        if submission.dead:
            self._forget_when_idle(submission)
        else:
            self.fail(submission, Outcome.SHED if kind == "dropped" else Outcome.FAILED, reason)

    def fail(self, submission: Submission, outcome: Outcome, reason: str) -> None:
        """The platform stops working on the submission; the client hears of it (unless it has gone, or the platform dropped it silently)."""
        world = self._world
        submission.dead = True
        for row in range(submission.first_row, submission.first_row + submission.size):
            if world.queued[row]:
                self.cancel(row)
        self._forget_when_idle(submission)
        if not submission.abandoned:
            world.desk.answered_badly(submission, outcome, reason)

    def cancel(self, row: int) -> None:
        """`row` will not run (again): its submission is over."""
        world = self._world
        if world.queued[row]:
            world.pools[world.rows.pool[row]].forget(row)
            world.end_ns[row] = world.clock.now_ns
        world.state[row] = TaskState.CANCELLED.value
        submission = world.live_of(row)
        submission.active -= 1
        self._promote(row)
        self._forget_when_idle(submission)

    def _forget_when_idle(self, submission: Submission) -> None:
        if submission.active == 0:
            self._world.live.pop(submission.number, None)

    def close(self, submission: Submission, outcome: Outcome, reason: str) -> None:
        """The run's terminal state, once."""
        world = self._world
        run = submission.run
        assert not world.closed[run], f"run {run} closed twice"
        world.closed[run] = True
        world.outcome[run] = outcome
        world.finished_ns[run] = world.clock._now
        world.open_runs -= 1
        if submission.round:
            world.rework[run] = submission.round
        if reason:
            world.end_reason[run] = world.recorder.reason(reason)

    # --- single flight ---

    def _joins_flight(self, row: int) -> bool:
        """True when `row` shares work that is under way; otherwise it leads from now on (if it may be shared)."""
        assert self._coalesce is not None
        world = self._world
        key = self._coalesce.key(row)
        if key is None:
            return False
        flight = self._flights.get(key)
        if flight is None:
            self._flights[key] = (row, [])
            self._flight_of[row] = key
            return False
        leader, followers = flight
        followers.append(row)
        world.state[row] = _COALESCED
        world.ready_ns[row] = world.clock.now_ns
        world.recorder.event(world.clock.now_ns, "coalesced", world.rows.run[row], row, "", leader)
        return True

    def _land(self, row: int) -> list[int]:
        """The flight of leader `row` is over: the rows that shared it."""
        return self._flights.pop(self._flight_of.pop(row))[1]

    def _promote(self, row: int) -> None:
        """The leader left before it was served: the next in its flight takes over (and queues now)."""
        if row not in self._flight_of:
            return
        world = self._world
        key = self._flight_of.pop(row)
        followers = []
        for other in self._flights.pop(key)[1]:
            submission = world.live_of(other)
            if submission.dead:
                world.state[other] = TaskState.CANCELLED.value
                submission.active -= 1
                self._forget_when_idle(submission)
            else:
                followers.append(other)
        if followers:
            leader = followers.pop(0)
            self._flights[key] = (leader, followers)
            self._flight_of[leader] = key
            world.state[leader] = TaskState.PENDING.value
            world.pools[world.rows.pool[leader]].push(leader, world.clock.now_ns)
