"""From CuIR back to CUDA, and what runs it: `text` writes patches, `compile` makes machine code, `launch` calls a kernel by its
contract, on the device `gpu` or `ptx`.

Enters: source and target CuIR with the text of the source; tensors. Leaves: a patched text; outputs; a torch operator.
Open first: `text/lower.py` and `launch/runtime.py`."""
