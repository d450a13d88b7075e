"""Traces: all demand as data."""
