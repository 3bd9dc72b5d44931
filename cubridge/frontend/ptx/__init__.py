"""Runs of kernels in no dialect of ours to CuIR.

Enters: traces of blocks at several shapes, and the kernel's contract. Leaves: CuIR, each node at the line that it was read from.
`reach` and `slices` say what a value is made of, `events` what a block does, `loops`, `geometry` and `fold` how that repeats, `row`
and `regions` what a row computes. Open first: `kernel.py`."""
