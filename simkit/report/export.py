"""The numbers of a comparison as files for other programs: JSON, CSV, the runs of replication 0."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simkit.files import write_atomically, write_text
from simkit.report.words import csv_text

if TYPE_CHECKING:
    import pandas as pd

    from simkit.compare import Comparison


def write_json(comparison: Comparison, path: Path) -> None:
    """The document that ``--json`` prints."""
    write_text(
        path, json.dumps(comparison.to_json(), indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"
    )


def write_summary_csv(comparison: Comparison, path: Path) -> None:
    """One line per policy, part (everything, a class, a pool) and metric: mean, interval, and the value of every replication."""
    header = ["policy", "of", "name", "metric", "mean", "ci95_low", "ci95_high", "undefined"]
    header += [f"replication_{number}" for number in range(comparison.replications)]
    write_text(path, _csv(header, _summary_lines(comparison)))


def _summary_lines(comparison: Comparison) -> Iterable[Sequence[object]]:
    for kind in (None, "class", "pool"):
        table = comparison.table(kind)
        for line in table.to_dict("records"):
            name = str(line[kind]) if kind else ""
            values = comparison.values(line["policy"], line["metric"], {kind: name} if kind else None)
            yield (
                line["policy"], kind or "all", name, line["metric"], line["mean"], line["ci95_low"], line["ci95_high"], line["undefined"], *values,
            )  # fmt: skip


def write_differences_csv(comparison: Comparison, path: Path) -> None:
    """One line per difference from the baseline."""
    header = ["policy", "baseline", "metric", "of", "mean", "ci95_low", "ci95_high", "p", "p_holm", "verdict", "margin", "ratio",
              "ratio_ci95_low", "ratio_ci95_high", "pairs", "note"]  # fmt: skip
    lines = [
        (item.policy, item.baseline, item.metric, item.where.get("class", ""), item.mean, *_ends(item.ci95), item.p, item.p_holm, item.verdict,
         item.margin, item.ratio, *_ends(item.ratio_ci95), item.pairs, "; ".join(note for note in (item.note, item.ratio_note) if note))
        for item in comparison.differences()
    ]  # fmt: skip
    write_text(path, _csv(header, lines))


def _ends(interval: tuple[float, float] | None) -> tuple[float, float]:
    return interval or (math.nan, math.nan)


def _csv(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_plain(item) for item in line] for line in lines)
    return buffer.getvalue()


def _plain(item: object) -> object:
    """Numbers at full precision, nothing for NaN, text that stays text."""
    if isinstance(item, float):
        return "" if math.isnan(item) else repr(item)
    return csv_text(item) if isinstance(item, str) else item


def write_runs_csv(comparison: Comparison, path: Path) -> bool:
    """Every run of replication 0 under every policy, gzipped, same bytes every time. False (and no file) when the logs are not there."""
    logs = comparison.details.get("logs") or {}
    if not logs:
        return False
    from simkit.metrics import runs_frame

    with (
        write_atomically(path) as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6) as packed,
    ):
        for place, (policy, log) in enumerate(logs.items()):
            frame = safe(runs_frame(log))
            frame.insert(0, "policy", csv_text(policy))
            packed.write(frame.to_csv(index=False, header=place == 0, lineterminator="\n").encode())
    return True


def safe(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with its text columns made safe for spreadsheets."""
    for name in frame.columns:
        if not (hasattr(frame[name], "dtype") and frame[name].dtype.kind in "biufM"):
            frame[name] = [csv_text(item) if isinstance(item, str) else item for item in frame[name]]
    return frame
