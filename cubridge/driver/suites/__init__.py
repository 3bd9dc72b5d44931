"""Many kernels or many runs: suites of variants, fault tables, timings. Open first: `evaluate.py`."""
