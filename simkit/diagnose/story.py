"""The story of one run, in plain words."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

import numpy as np

from simkit.diagnose.labels import OTHER, Diagnosis, diagnose
from simkit.diagnose.paths import PathTimes, path_times
from simkit.log import EVENT_KINDS, RunLog
from simkit.metrics import Window, wait_attribution
from simkit.model import NEVER_NS, NS_PER_S, Outcome, TaskState, UsageError

_OUTCOMES = {
    Outcome.UNFINISHED: "unfinished when the log ends", Outcome.VERIFIED: "verified", Outcome.UNVERIFIED: "closed as done, but its verification was skipped",
    Outcome.FALSE_COMPLETION: "closed as done while defective", Outcome.FAILED: "failed", Outcome.DEAD_LETTERED: "dead-lettered",
    Outcome.TIMED_OUT: "timed out: its client gave up", Outcome.REJECTED: "rejected", Outcome.SHED: "shed",
}  # fmt: skip
_PARTS = {
    "admission": "at the door (deferred)", "backoff": "between attempts", "client": "the client's delays between submissions", "unanswered": "dropped, and its client did not know",
    "shared": "another run's execution of the same work", "other": "not told by the log",
}  # fmt: skip
_ARRIVES, _ANSWERS, _ENDS, _RECORDED, _LET_IN, _QUEUES, _STARTS, _ANSWERS_AT_ONCE, _LAST = range(9)
"""Order of lines within an instant: what ends before what begins, a cause before what follows from it."""
_ANSWER_KINDS = ("throttled", "api_error", "api_hang", "sdk_retry")
_DROP_KINDS = ("dropped", "budget_exhausted")

Line = tuple[int, int, float, str]  # at_ns, order within the instant, sequence, text


def explain(log: RunLog, run_id: str) -> str:
    """What happened to one run: submissions, answers of admission, what each task waited for, attempts, errors, its end, and where its time went.

    Raises UsageError for an unknown run, naming the nearest one.
    """
    run = _number_of(log, run_id)
    window = Window(log)
    lines = [*_submitted(log, run), *_recorded(log, run), *_tasks(log, window, run), *_closed(log, run)]
    lines.sort(key=lambda line: line[:3])
    width = max((len(_clock(at)) for at, *_ in lines), default=0)
    story = [f"{_clock(at):>{width}}  {text}" for at, _, _, text in lines]
    return "\n".join([*_head(log, run), "", *story, "", *_verdict(log, window, run)])


def _number_of(log: RunLog, run_id: str) -> int:
    ids = [str(known) for known in log.runs.run_id]
    try:
        return ids.index(run_id)
    except ValueError:
        near = (
            difflib.get_close_matches(run_id, ids, n=1, cutoff=0.0) if len(ids) <= 10_000 else [_nearest(run_id, ids)]
        )
        hint = f", did you mean {near[0]!r}?" if near else ": the log has no runs"
        raise UsageError(f"there is no run {run_id!r}{hint}") from None


def _nearest(run_id: str, ids: list[str]) -> str:
    """Among many ids: the one with the longest common beginning (the first of equals)."""

    def common(other: str) -> int:
        return next(
            (place for place, pair in enumerate(zip(run_id, other, strict=False)) if pair[0] != pair[1]),
            min(len(run_id), len(other)),
        )

    return max(ids, key=common)


def _clock(ns: int) -> str:
    return f"{ns / NS_PER_S:.3f} s"


def _span(ns: int) -> str:
    """A length of time, short."""
    return f"{ns / NS_PER_S:.3g} s" if ns < 100 * NS_PER_S else f"{ns / NS_PER_S:.0f} s"


def _head(log: RunLog, run: int) -> list[str]:
    runs, names, header = log.runs, log.names, log.header
    deadline = int(runs.deadline_ns[run])
    due = "no deadline" if deadline >= NEVER_NS else f"due at {_clock(deadline)}"
    who = f"tenant {names['tenant'][runs.tenant[run]]}, class {names['class'][runs.cls[run]]}, priority {int(runs.priority[run])}"
    policy = f"policy {header.get('policy')} version {header.get('policy_version')}"
    where = f"scenario {header.get('scenario')}, seed {header.get('seed')}, replication {header.get('replication')}"
    return [
        f"Run {runs.run_id[run]}: {_OUTCOMES[Outcome(int(runs.outcome[run]))]}",
        f"{who}, workflow {names['workflow'][runs.workflow[run]]}, {due}",
        f"{policy}, {where}",
    ]


def _submitted(log: RunLog, run: int) -> list[Line]:
    runs = log.runs
    if not runs.submissions[run]:
        return [(int(runs.arrival_ns[run]), _ARRIVES, 0, "would arrive, after the log ends")]
    lines: list[Line] = [(int(runs.arrival_ns[run]), _ARRIVES, 0, "submitted")]
    events = log.events
    again = np.flatnonzero((events.run == run) & (events.kind == EVENT_KINDS.index("client_retry")))
    for number, event in enumerate(again.tolist()[: int(runs.submissions[run]) - 1], start=2):
        delay = round(float(events.value[event]) * NS_PER_S)
        place = -1.0 if delay else event + 0.5  # at once: right after the client made up its mind
        lines.append((int(events.at_ns[event]) + delay, _RECORDED, place, f"submitted again (submission {number})"))
    if runs.admitted_ns[run] >= 0:
        lines.append((int(runs.admitted_ns[run]), _LET_IN, 0, "admitted"))
    return lines


def _recorded(log: RunLog, run: int) -> list[Line]:
    events = log.events
    lines: list[Line] = []
    for event in np.flatnonzero(events.run == run).tolist():
        kind, row = EVENT_KINDS[int(events.kind[event])], int(events.row[event])
        code, at = int(events.reason[event]), int(events.at_ns[event])
        text = _told(kind, log.reasons[code] if code >= 0 else "", float(events.value[event]))
        if kind == "coalesced":
            leader = int(events.value[event])
            text = f"shares the work of run {log.runs.run_id[int(log.rows.run[leader])]}"
        if kind in _DROP_KINDS and row >= 0:
            continue  # told where the task left its queue
        rank = _RECORDED
        if kind in _ANSWER_KINDS:
            rank = _ANSWERS_AT_ONCE if at in _starts_of(log, row) else _ANSWERS
        lines.append((at, rank, event, f"{_task_name(log, row)}: {text}" if row >= 0 else text))
    return lines


def _starts_of(log: RunLog, row: int) -> set[int]:
    """When the row's attempts started, if they took any time."""
    attempts = log.attempts
    early = (attempts.row == row) & (attempts.end_ns > attempts.start_ns)
    starts = set(attempts.start_ns[early].tolist())
    return starts if log.rows.end_ns[row] == log.rows.start_ns[row] else {*starts, int(log.rows.start_ns[row])}


def _told(kind: str, reason: str, value: float) -> str:
    """One recorded event in words."""
    because = f" ({reason})" if reason else ""
    seconds = f"{value:.3g} s"
    match kind:
        case "defer":
            return f"deferred for {seconds}{because}"
        case "reject":
            return f"rejected{because}" + (f", told to come back after {seconds}" if value else "")
        case "downgrade":
            return f"downgraded{because}" + (f", optional tasks cut to {value:.0%}" if value else "")
        case "queue":
            return f"admitted to a queue{because}"
        case "client_timeout":
            return "its client's patience ended; the platform works on"
        case "client_retry":
            return f"its client will try again in {seconds}{because}"
        case "client_gave_up":
            return f"its client gave up after {int(value)} submissions{because}"
        case "throttled":
            return f"429 from {reason}" + (f", retry after {seconds}" if value else "")
        case "api_error":
            return f"error from {reason}"
        case "api_hang":
            return f"no answer from {reason}"
        case "sdk_retry":
            return f"the SDK will try again in {seconds}{because}"
        case "retry":
            return f"will be tried again in {seconds}{because}"
        case "gave_up":
            return f"given up after {int(value)} attempts{because}"
        case "rework":
            return f"verification found a defect: rework, round {int(value)}"
        case "defect_missed":
            return "verification missed a defect"
        case _:
            return kind.replace("_", " ") + because


def _task_name(log: RunLog, row: int) -> str:
    """The task's id, with its submission when it is not the first."""
    task, submission = int(log.rows.task[row]), int(log.rows.submission[row])
    if len(log.tasks.task_id):
        name = log.names["task_id"][int(log.tasks.task_id[task])]
    else:
        name = f"task {task - int(log.rows.task[log.rows.run == log.rows.run[row]].min()) + 1}"
    return f"{name} (submission {submission + 1})" if submission else name


def _tasks(log: RunLog, window: Window, run: int) -> list[Line]:
    """Every wait and every attempt of the run's tasks."""
    rows = log.rows
    waits = wait_attribution(log, window)
    mine = np.flatnonzero(rows.run == run).tolist()
    lines: list[Line] = []
    for row in mine:
        lines.extend(_waits_of(log, window, row))
        lines.extend(_early_attempts(log, row))
        lines.extend(_last_attempt(log, window, row, waits.of(row)))
    skipped = [_task_name(log, row) for row in mine if rows.state[row] == TaskState.SKIPPED]
    if skipped:
        lines.append((max(int(log.runs.admitted_ns[run]), 0), _LET_IN, 1, f"left out: {', '.join(skipped)}"))
    return lines


def _waits_of(log: RunLog, window: Window, row: int) -> Iterator[Line]:
    queues, name, pool = window.queues, _task_name(log, row), log.names["pool"][int(log.rows.pool[row])]
    for stay in np.flatnonzero(queues.row == row).tolist():
        ready, left = int(queues.begin[stay]), int(queues.end[stay])
        yield ready, _QUEUES, row, f"{name}: ready, queues for {pool}"
        if not queues.started[stay]:
            yield left, _STARTS, row, f"{name}: {_unserved(log, row)} after {_span(left - ready)} in the queue"


def _early_attempts(log: RunLog, row: int) -> Iterator[Line]:
    attempts, name, pool = log.attempts, _task_name(log, row), log.names["pool"][int(log.rows.pool[row])]
    for number, attempt in enumerate(np.flatnonzero(attempts.row == row).tolist(), start=1):
        ready, start, end = (int(column[attempt]) for column in (attempts.ready_ns, attempts.start_ns, attempts.end_ns))
        wait = f"after waiting {_span(start - ready)}" if start > ready else "at once"
        error = int(attempts.error[attempt])
        yield start, _STARTS, row, f"{name}: attempt {number} starts on {pool} {wait}"
        yield (
            end,
            _ENDS,
            row,
            f"{name}: attempt {number} ends after {_span(end - start)}"
            + (f" ({log.reasons[error]})" if error >= 0 else ""),
        )


def _last_attempt(log: RunLog, window: Window, row: int, reasons: Mapping[str, int]) -> Iterator[Line]:
    """The start and the end that the row's own entry tells of; with what it waited for (all attempts together)."""
    rows, name, pool = log.rows, _task_name(log, row), log.names["pool"][int(log.rows.pool[row])]
    ready, start, end, attempt = (
        int(column[row]) for column in (rows.ready_ns, rows.start_ns, rows.end_ns, rows.attempts)
    )
    if rows.state[row] == TaskState.COALESCED:
        yield end, _ENDS, row, f"{name}: done, by the work it shared"
    if start < 0:
        return
    what = ", ".join(f"{part} {_span(ns)}" for part, ns in reasons.items())
    wait = f"after waiting {_span(start - ready)}" if start > ready else "at once"
    if what:
        wait += f" (all its waits: {what})" if attempt > 1 else f" ({what})"
    yield start, _STARTS, row, f"{name}: {f'attempt {attempt} starts' if attempt > 1 else 'starts'} on {pool} {wait}"
    if end >= 0:
        yield (
            end,
            _ENDS,
            row,
            f"{name}: {'done' if rows.state[row] == TaskState.DONE else 'failed'} after {_span(end - start)}",
        )
    else:
        yield window.end, _LAST, row, f"{name}: still runs when the log ends"


def _unserved(log: RunLog, row: int) -> str:
    state = log.rows.state[row]
    if state == TaskState.DROPPED:
        events = log.events
        drops = np.flatnonzero(
            (events.row == row) & np.isin(events.kind, [EVENT_KINDS.index(kind) for kind in _DROP_KINDS])
        )
        code = int(events.reason[drops[-1]]) if len(drops) else -1
        return f"dropped ({log.reasons[code]})" if code >= 0 else "dropped"
    return "cancelled" if state == TaskState.CANCELLED else "still waits when the log ends,"


def _closed(log: RunLog, run: int) -> list[Line]:
    runs = log.runs
    if runs.finished_ns[run] < 0:
        return []
    code = int(runs.reason[run])
    because = f" ({log.reasons[code]})" if code >= 0 else ""
    return [(int(runs.finished_ns[run]), _LAST, 0, _OUTCOMES[Outcome(int(runs.outcome[run]))] + because)]


def _verdict(log: RunLog, window: Window, run: int) -> list[str]:
    """Where the time went and, if it went wrong, why."""
    if not log.runs.submissions[run]:
        return ["It did not arrive before the log ends."]
    diagnosis = diagnose(log, window)
    place = diagnosis.place_of(run)
    times = diagnosis.times if place >= 0 else path_times(log, [run], window)
    lines = _split(times, max(place, 0))
    if place >= 0:
        lines.append(_why(log, diagnosis, place))
    return lines


def _split(times: PathTimes, place: int) -> list[str]:
    total = int(times.total_ns[place])
    lines = [f"Where its {_span(total)} went:"] if total else ["It took no time."]
    lines.extend(f"  {ns / total:6.1%}  {_span(ns):>9}  {_words(part)}" for part, ns in times.of(place).items())
    return lines


def _words(part: str) -> str:
    if part.startswith("service:"):
        return f"running on {part.removeprefix('service:')}"
    if part.startswith("pool:"):
        return f"waiting for slots of {part.removeprefix('pool:')}"
    return _PARTS.get(part, part)


def _why(log: RunLog, diagnosis: Diagnosis, place: int) -> str:
    label, late = str(diagnosis.label[place]), int(diagnosis.late_ns[place])
    text = f"Root cause: {_words(str(diagnosis.cause[place])) or 'not told by the log'}"
    text += "." if label == OTHER else f". Label: {label}."
    if 0 < late < NEVER_NS:
        ended = log.runs.finished_ns[diagnosis.times.runs[place]] >= 0
        text += f" It was {_span(late)} past its deadline when {'it ended' if ended else 'the log ended'}."
    if diagnosis.starving[place]:
        text += " A task of it waited longer than the limit of its class."
    return text
