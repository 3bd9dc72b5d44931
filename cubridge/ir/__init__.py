"""CuIR, the language that every stage reads and writes: nodes, types, text, places, diagnostics, algebra. Imports nothing else of
cubridge.

Enters: text. Leaves: nodes, which are frozen and equal by structure; diagnostics.
Open first: `nodes.py`, then `cuir.lark`."""

from cubridge.ir import printer as printer  # gives kernels their text
