"""What both engines share: bodies as linear code (`code.py`, open first), expressions as closures, machines, barriers, the scheduler."""
