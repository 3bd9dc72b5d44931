"""Exact algebra over the elements of traced tensors: integers, predicates, reals, reductions."""
