"""The difference of two CuIR trees as located edits of a CUDA text. Open first: `lower.py`."""
