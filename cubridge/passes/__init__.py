"""Transfer: from the source kernel to the target kernel by passes over CuIR, which rules or a model propose.

Enters: a kernel, and a spec or a pipeline text. Leaves: a kernel, valid after each pass.
Open first: `propose.py`, then `registry.py`, the table of passes."""
