"""The value engine: work tiles as batched tensors; what is not waited for is NaN. Open first: `engine.py`."""
