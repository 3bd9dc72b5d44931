"""Exact algebra over the elements of traced tensors: integers, predicates, reals, reductions.

Its Terms are not the polynomials of `cubridge.ir.algebra`, and stay their own. Equal Terms are one object, so that a trace of
thousands of operations is compared by identity; a Term knows its sort, and is over bound indices: tensor elements, sums over
an axis and reals besides integers, none of which CuIR can say. The algebra of CuIR is over what a kernel text names, and asks its
caller what is known of names. Both prove that integers are not negative; as the one proof is not the other's, a fault of one is no
fault of both where what the reference means is compared with what the kernel does."""
