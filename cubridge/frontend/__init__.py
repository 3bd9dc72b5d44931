"""From what users write to CuIR: `cuda` reads kernel texts, `reference` reads PyTorch functions, `ptx` reads runs of
kernels in other dialects, `contract.py` launch contracts.

Enters: a .cu with its .toml; a Python callable. Leaves: source CuIR with spans; an AttentionSpec.
Open first: `cuda/lift.py` and `reference/trace.py`."""
