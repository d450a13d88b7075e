"""Azure LLM inference traces (AzurePublicDataset 2023 and 2024): TIMESTAMP, ContextTokens, GeneratedTokens.

The files have no durations and no tenants: service times follow from the token model, the tenant is the file's name (``code``, ``conv``) or
``--tenant``. Timestamps have seven decimals and, in 2023, no zone (read as UTC); several files are merged by wall time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simkit.trace.importers.flat import TokenModel, import_flat
from simkit.trace.importers.presets import PRESETS
from simkit.trace.table import Trace

DEFAULT_MODEL = TokenModel(overhead_ns=20_000_000, prefill_ns=350_000, decode_ns=43_000_000)
"""20 ms + 0.35 ms per prompt token + 43 ms per answer token: a 7B model on an A10G under load (43.6 ms per token follow from the
saturated runs of the VTC artifact, Sheng et al. 2024; the prefill cost is a guess). Another model or machine needs its own numbers."""


def import_azure_llm(
    paths: Sequence[str | Path],
    *,
    model: TokenModel | None = None,
    pool: str = "model",
    tenant: str | None = None,
    cls: str = "default",
) -> Trace:
    """Read one or more Azure files into one trace. Without a `model` the default one is used, and the trace's warnings say so."""
    notes = {"files whose service times follow the default token model": len(paths)} if model is None else {}
    chosen = model or DEFAULT_MODEL
    return import_flat(paths, PRESETS["azure-llm"], model=chosen, pool=pool, tenant=tenant, cls=cls, notes=notes)
