"""Plausible faults of a kernel: made by rule, judged by rules and engines, written into the CUDA text."""
