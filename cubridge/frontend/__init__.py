"""From what users write to CuIR: `cuda` reads kernel texts, `reference` reads PyTorch functions, `contract.py` launch contracts.

Enters: a .cu with its .toml; a Python callable. Leaves: source CuIR with spans; an AttentionSpec.
Open first: `cuda/lift.py` and `reference/trace.py`."""
