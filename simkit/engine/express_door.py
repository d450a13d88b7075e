"""Admission on the express lane: the general door (`simkit.engine.admission`) where an answer can only let in, delay or refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simkit.model import NS_PER_S, Decision, Outcome, Verdict

if TYPE_CHECKING:
    from simkit.engine.express_log import Outcomes
    from simkit.engine.world import World


class ExpressDoor:
    """Asks overload actions and the admission chain about each run; there are no clients, so a refusal is final."""

    def __init__(self, world: World, outcomes: Outcomes) -> None:
        self._world, self._outcomes = world, outcomes
        self.deferred = 0
        """Runs that will ask again."""

    def step(self, admit: Callable[[int], None]) -> Callable[[int], None]:
        """The arrival step: ``admit(run)`` when nobody objects."""
        world, outcomes = self._world, self._outcomes
        chain = [mechanism.decide for mechanism in world.mechanisms.admission]
        governed = world.mechanisms.overload is not None
        clock, class_of, class_names = world.clock, world.submissions.cls, world.trace.classes
        admitted = outcomes.admitted_ns = [-1] * len(world.trace)

        def ask(run: int) -> None:
            now_ns = clock._now
            decision: Decision | None = None
            if governed:
                decision = _by_mode(world, class_names[class_of[run]])
            if decision is None:
                for decide in chain:
                    decision = decide(run, now_ns)
                    if decision is not None:
                        break
                else:
                    admitted[run] = now_ns
                    admit(run)
                    return
            if self._lets_in(run, decision, now_ns, again):
                admitted[run] = now_ns
                admit(run)

        def again(run: int) -> None:
            self.deferred -= 1
            ask(run)

        return ask

    def _lets_in(self, run: int, decision: Decision, now_ns: int, again: Callable[[int], None]) -> bool:
        """Note the answer; True when the run enters now."""
        event, outcomes = self._world.recorder.event, self._outcomes
        retry_after_s = decision.retry_after_ns / NS_PER_S
        match decision.verdict:
            case Verdict.ADMIT:
                return True
            case Verdict.QUEUE:
                event(now_ns, "queue", run, -1, decision.reason)
                return True
            case Verdict.DOWNGRADE:
                event(now_ns, "downgrade", run, -1, decision.reason, decision.width or 0.0)
                return True
            case Verdict.DEFER:
                event(now_ns, "defer", run, -1, decision.reason, retry_after_s)
                outcomes.deferrals[run] = outcomes.deferrals.get(run, 0) + 1
                self.deferred += 1
                self._world.clock.call_at(now_ns + max(decision.retry_after_ns, 1), again, run)
            case Verdict.SHED:
                event(now_ns, "shed", run, -1, decision.reason)
                outcomes.refuse(run, Outcome.SHED, now_ns, decision.reason)
            case Verdict.REJECT:
                event(now_ns, "reject", run, -1, decision.reason, retry_after_s)
                outcomes.refuse(run, Outcome.REJECTED, now_ns, decision.reason)
        return False


def _by_mode(world: World, name: str) -> Decision | None:
    """What the overload mode in force says to a class."""
    actions = world.actions
    if actions.only is not None and name not in actions.only:
        return Decision(Verdict.SHED, f"mode:{world.mode}:only")
    if name in actions.defer:
        return Decision(Verdict.DEFER, f"mode:{world.mode}:defer", actions.defer_ns)
    return None
