"""Node paths: text form, lookup, replacement, and where places move under edits."""

from __future__ import annotations

import pytest

from cubridge.ir.diagnostics import CuError
from cubridge.ir.nodes import Assign, CpAsyncCommit, Field, FloatLit, Kernel, Name, Row, Zero
from cubridge.ir.parser import parse_expr
from cubridge.ir.paths import Path, Splice, get, paths, put
from cubridge.ir.types import DType
from tests.support.golden_texts import GOLDEN_NAMES, golden_kernel


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_path_prints_parses_and_leads_to_its_node(name: str) -> None:
    kernel = golden_kernel(name)
    seen: set[str] = set()
    for path, node in paths(kernel):
        assert Path.parse(str(path)) == path
        assert get(kernel, path) is node
        seen.add(str(path))
    assert {
        "regions.mask.body[0].value.args[0].left",
        "row_state.m.type",
        "constants.STAGES",
        "regions.key_sequence.result.fields.lo",
    } <= seen
    assert len(seen) == sum(1 for _ in paths(kernel))


def test_put_replaces_one_node_and_shares_the_rest() -> None:
    kernel = golden_kernel("sm80")
    path = Path.parse("regions.mask.body[0].value.args[2]")
    changed = put(kernel, path, FloatLit(0.0))
    assert get(changed, path) == FloatLit(0.0)
    assert isinstance(changed, Kernel)
    assert changed.body is kernel.body
    assert put(changed, path, get(kernel, path)) == kernel


@pytest.mark.parametrize(
    "text", ["regions..score", ".regions", "regions.score.", "body[01]", "body[-1]", "a b", "body["]
)
def test_wrong_path_text(text: str) -> None:
    with pytest.raises(CuError, match="is no path of a node"):
        Path.parse(text)


@pytest.mark.parametrize(
    "text", ["regions.nothing", "body[99]", "nowhere", "body", "name", "body[0].span", "regions[0]"]
)
def test_path_that_leads_nowhere(text: str) -> None:
    with pytest.raises(CuError, match="there is no node at"):
        get(golden_kernel("sm80"), Path.parse(text))


def test_splice_edits_and_forwards() -> None:
    kernel = golden_kernel("sm80")
    body = Path(("regions", "row_init", "body"))
    row_m, row_l = kernel.region("row_init").body
    splice = Splice(body, 0, (row_m,), (Zero(Name("a")), CpAsyncCommit()))
    changed = splice.apply(kernel)
    assert isinstance(changed, Kernel)
    assert changed.region("row_init").body == (Zero(Name("a")), CpAsyncCommit(), row_l)
    assert splice.forward(body / 0) is None
    assert splice.forward(body / 1 / "value") == body / 2 / "value"
    assert splice.forward(Path.parse("regions.score")) == Path.parse("regions.score")
    assert splice.forward(body) == body
    for path, node in paths(kernel):
        moved = splice.forward(path)
        if moved is not None and not body.is_below(path):
            assert get(changed, moved) == node
    with pytest.raises(CuError, match="there is no node at"):
        splice.apply(changed)


def test_splice_of_named_nodes() -> None:
    kernel = golden_kernel("sm80")
    m = kernel.row_state[0]
    splice = Splice(Path(("row_state",)), 0, (m,), (Field("q", Row(DType.F32)),))
    changed = splice.apply(kernel)
    assert str(get(changed, Path.parse("row_state.q.type"))).startswith("Row")
    assert splice.forward(Path.parse("row_state.m.type")) is None
    assert splice.forward(Path.parse("row_state.l")) == Path.parse("row_state.l")


def test_insertion_moves_what_follows() -> None:
    kernel = golden_kernel("sm80")
    body = Path(("regions", "score", "body"))
    insert = Splice(body, 0, (), (Assign(Name("s"), parse_expr("s * 2.0")),))
    changed = insert.apply(kernel)
    assert get(changed, body / 0) == Assign(Name("s"), parse_expr("s * 2.0"))
    assert Splice(body, 0, insert.new, ()).apply(changed) == kernel
