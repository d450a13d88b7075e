"""The clients' side: first submissions, patience, retries, obedience to Retry-After.

A client that gives up does not stop the server: its submission is *abandoned* and goes on using slots, but nobody takes
its result. A client retry is a whole new submission of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simkit.engine.backoff import Budget, delay_ns
from simkit.model import NEVER_NS, NS_PER_S, ClientSpec, Outcome
from simkit.rng import keyed_uniform

if TYPE_CHECKING:
    from simkit.engine.admission import Door
    from simkit.engine.world import Submission, World

_BACKOFF, _OBEYS = 0x636C69, 0x6F6265  # purpose keys of the draws


class Desk:
    """Submits runs for their clients and tells clients what became of them."""

    def __init__(self, world: World, door: Door) -> None:
        self._world, self._door = world, door
        self._specs = [_spec_for(world, run) for run in range(len(world.trace))] if world.clients else []
        self._budgets: dict[int, Budget] = {id(spec): Budget(spec.retry.budget) for spec in world.clients}
        self._last_delay: dict[int, int] = {}

    def spec_of(self, run: int) -> ClientSpec | None:
        return self._specs[run] if self._specs else None

    def arrive(self, run: int) -> None:
        """The trace's arrival of `run`."""
        world = self._world
        world.open_runs += 1
        spec = self._specs[run] if self._specs else None
        if spec is None:
            self._door.ask(world.add_submission(run, 0, NEVER_NS))
        else:
            self._budgets[id(spec)].earn()
            self._submit(run, 0, spec)

    def _submit(self, run: int, attempt: int, spec: ClientSpec | None) -> None:
        world = self._world
        gives_up_ns = NEVER_NS
        if spec is not None and spec.patience_ns < NEVER_NS:
            gives_up_ns = world.clock.now_ns + spec.patience_ns
        submission = world.add_submission(run, attempt, gives_up_ns)
        world.clock.call_at(gives_up_ns, self._patience_over, submission)
        self._door.ask(submission)

    def _patience_over(self, submission: Submission) -> None:
        """The client stops waiting, unless its answer has come."""
        if submission.answered:
            return
        submission.abandoned = True
        world = self._world
        world.recorder.event(world.clock.now_ns, "client_timeout", submission.run, -1)
        self._try_again(submission, Outcome.TIMED_OUT, "client timeout", 0)

    def answered_badly(self, submission: Submission, outcome: Outcome, reason: str, retry_after_ns: int = 0) -> None:
        """The platform refused or failed the submission, and its client knows.

        A run that the platform drops from a queue is not answered: its client finds out when its patience ends.
        """
        if outcome is Outcome.SHED and self._will_find_out(submission):
            return
        submission.answered = True
        self._try_again(submission, outcome, reason, retry_after_ns)

    def _will_find_out(self, submission: Submission) -> bool:
        spec = self.spec_of(submission.run)
        return spec is not None and spec.patience_ns < NEVER_NS

    def _try_again(self, submission: Submission, outcome: Outcome, reason: str, retry_after_ns: int) -> None:
        world, run = self._world, submission.run
        now_ns = world.clock.now_ns
        spec = self.spec_of(run)
        if spec is None or not self._may_retry(spec, submission):
            if spec is not None and spec.retry.attempts > 1:
                world.recorder.event(now_ns, "client_gave_up", run, -1, reason, submission.attempt + 1)
            self._world.lifecycle.close(submission, outcome, reason)
            return
        retry = submission.attempt + 1
        luck = keyed_uniform(_BACKOFF, world.luck[run], retry)
        delay = delay_ns(spec.retry, retry, luck, self._last_delay.get(run, 0))
        self._last_delay[run] = delay
        if retry_after_ns and keyed_uniform(_OBEYS, world.luck[run]) < spec.obey_retry_after:
            delay += retry_after_ns  # a lower bound; the backoff's jitter goes on top
        world.recorder.event(now_ns, "client_retry", run, -1, reason, delay / NS_PER_S)
        world.clock.call_at(now_ns + delay, self._submit_again, (run, retry, spec))

    def _may_retry(self, spec: ClientSpec, submission: Submission) -> bool:
        return submission.attempt + 1 < spec.retry.attempts and self._budgets[id(spec)].spend()

    def _submit_again(self, again: tuple[int, int, ClientSpec]) -> None:
        self._submit(*again)


def _spec_for(world: World, run: int) -> ClientSpec | None:
    """The first client entry that selects `run`."""
    trace = world.trace
    tenant, class_ = trace.tenants[trace.runs.tenant[run]], trace.classes[trace.runs.cls[run]]
    for spec in world.clients:
        tenants, classes = spec.for_.get("tenant"), spec.for_.get("class")
        if (tenants is None or tenant in tenants) and (classes is None or class_ in classes):
            return spec
    return None
