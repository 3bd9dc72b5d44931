"""A call of a kernel by its launch contract, on any device; the torch operator over it. Open first: `runtime.py`."""
