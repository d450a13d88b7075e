"""Known column maps."""

from __future__ import annotations

from collections.abc import Iterator

from simkit.trace.importers.flat import FlatFormat
from simkit.trace.importers.reading import Row


def _responses(record: Row) -> Iterator[Row]:
    """The requests of a VTC result record, named as in its request table; any other record is a request itself."""
    result = record.get("result")
    responses = result.get("responses") if isinstance(result, dict) else None
    if not isinstance(responses, list):
        yield record
        return
    for response in responses:
        row = dict(response) if isinstance(response, dict) else {}
        row["client"], row["req_time_s"] = row.pop("adapter_dir", None), row.pop("req_time", None)
        yield row


_VTC = {"arrival": "req_time_s", "tenant": "client", "tokens_in": "prompt_len", "tokens_out": "output_len"}

PRESETS: dict[str, FlatFormat] = {
    "azure-llm": FlatFormat(
        {"arrival": "TIMESTAMP", "tokens_in": "ContextTokens", "tokens_out": "GeneratedTokens"},
        "iso",
        prefix={"tenant": "AzureLLMInferenceTrace_"},
    ),
    "vtc": FlatFormat(_VTC, "s", prefix={"tenant": "dummy-lora-7b-rank-8-"}, unpack=_responses),
}
