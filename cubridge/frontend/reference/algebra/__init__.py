"""Exact algebra over the elements of traced tensors: integers, predicates, reals, reductions."""

from cubridge.frontend.reference.algebra import table

__all__ = ["table"]  # its import enters the constructors
