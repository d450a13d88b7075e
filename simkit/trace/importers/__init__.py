"""Importers of recorded formats, one file each. Every one counts: rows read = emitted + dropped by named reason."""

from simkit.trace.importers.azure_llm import import_azure_llm
from simkit.trace.importers.flat import import_flat
from simkit.trace.importers.presets import PRESETS

__all__ = ["PRESETS", "import_azure_llm", "import_flat"]
