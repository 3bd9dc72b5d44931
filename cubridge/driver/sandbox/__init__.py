"""A child process with limits of time and memory, for what a model wrote. Open first: `process.py`."""
