"""The order engine: agents with vector clocks over slots and barriers, no tensors. Open first: `engine.py`."""
