"""What both engines share: bodies as linear code, expressions as closures, barriers, the scheduler. Open first: `code.py`."""
