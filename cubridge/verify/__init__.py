"""Static rules: what must hold of a kernel before anything runs it.

Enters: a kernel. Leaves: all its faults, at their places; its event graph, and which changes of that a target may make.
Open first: `verifier.py`, the list of rules."""
