"""Measurements: not part of the package; each script says how to run it."""
