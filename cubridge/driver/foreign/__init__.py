"""Kernels in no dialect of ours: their runs are read, not their text. `lift.py` puts the stages together."""
