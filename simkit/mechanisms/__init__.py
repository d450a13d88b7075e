"""Mechanisms: the code that policies are composed of."""
