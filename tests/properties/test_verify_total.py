"""The verifier answers every kernel, however broken, with diagnostics and never with an exception."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from cubridge.ir.nodes import Expr, Kernel, Node, Stmt
from cubridge.ir.paths import Path, paths, put
from cubridge.verify.verifier import verify
from tests.support.golden_texts import golden_kernel
from tests.support.strategies import kernels, small_exprs, stmts

_PLACES: Final[dict[str, list[tuple[Path, Node]]]] = {
    name: [(p, n) for p, n in paths(golden_kernel(name)) if isinstance(n, Expr | Stmt)] for name in ("sm80", "sm90a")
}


@given(kernels)
@settings(derandomize=True, max_examples=10, deadline=None)
def test_any_kernel(kernel: Kernel) -> None:
    assert isinstance(verify(kernel), tuple)


@given(kernels)
@settings(derandomize=True, max_examples=20, deadline=None)
def test_any_bodies_in_a_kernel_whose_parts_are_there(kernel: Kernel) -> None:
    golden = golden_kernel("sm90a")
    bodies = [f.body for f in (*kernel.regions, kernel.schedule)]
    regions = tuple(replace(r, body=bodies[at % len(bodies)]) for at, r in enumerate(golden.regions))
    assert isinstance(verify(replace(golden, regions=regions, body=kernel.body)), tuple)


@given(st.sampled_from(["sm80", "sm90a"]), st.data())
@settings(derandomize=True, max_examples=100, deadline=None)
def test_any_node_replaced(name: str, data: st.DataObject) -> None:
    places = _PLACES[name]
    path, node = data.draw(st.sampled_from(places))
    other = data.draw(
        st.one_of(st.sampled_from([n for _, n in places if isinstance(n, Expr) is isinstance(node, Expr)]))
    )
    changed = put(golden_kernel(name), path, other)
    assert isinstance(changed, Kernel)
    assert isinstance(verify(changed), tuple)


@given(st.sampled_from(["sm80", "sm90a"]), st.data())
@settings(derandomize=True, max_examples=60, deadline=None)
def test_any_node_replaced_by_anything(name: str, data: st.DataObject) -> None:
    path, node = data.draw(st.sampled_from(_PLACES[name]))
    changed = put(golden_kernel(name), path, data.draw(small_exprs if isinstance(node, Expr) else stmts))
    assert isinstance(changed, Kernel)
    assert isinstance(verify(changed), tuple)
