from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from cubridge.ir.nodes import Expr, Field, Function, Kernel, Node, TileList
from cubridge.ir.parser import parse_expr
from cubridge.ir.printer import print_expr, print_field_type, print_function
from cubridge.ir.walk import rewrite
from cubridge.passes.list_check import list_fault
from cubridge.passes.pipeline import parse_text
from cubridge.passes.regions import mask_predicate
from cubridge.passes.runner import run_pipeline
from cubridge.verify.verifier import verify
from tests.support.golden_texts import golden_kernel

SAME: Final = "doc[b, i] == doc[b, j]"
BIND: Final = (
    'bind-captured{capture="doc",dtype="i32",extents="B, Lk"},bind-captured{capture="place",dtype="f32",extents="Lk"},'
    'bind-captured{capture="reach",dtype="i32",extents="Hq, Lq"},'
)


def listed(keep: str, arch: str = "sm80", more: str = "") -> Kernel:
    text = f'{BIND}rewrite-mask{{keep="{keep}"}},infer-kv-range,list-tiles{more}'
    return run_pipeline(golden_kernel(arch), parse_text(text))


def field(kernel: Kernel, name: str) -> str:
    return print_field_type(next(f.type for f in kernel.params if f.name == name))


@pytest.mark.parametrize("arch", ["sm80", "sm90a"])
def test_the_key_sequence_is_a_list(arch: str) -> None:
    kernel = listed(f"(j <= i) & ({SAME})", arch, ",row-bounds,place-captured,hoist,simplify,dce")
    assert verify(kernel) == ()
    assert "\n\n".join(print_function(kernel.region(n)) for n in ("key_sequence", "key_count", "key_tile", "key_masked")) == (
        "@region\n"
        "def key_sequence(tile):\n"
        "    list = tile.b * ceil_div(Lq, p.list_rows) + tile.q_start // p.list_rows\n"
        "    count = p.tiles[list, 0]\n"
        "    masked = p.tiles[list, 1]\n"
        "    return KeySequence(list=list, count=count, masked=masked)\n\n"
        "@region\ndef key_count(keys):\n    return keys.count\n\n"
        "@region\ndef key_tile(keys, t):\n    return p.tiles[keys.list, t + 2]\n\n"
        "@region\ndef key_masked(keys, t):\n    return t < keys.masked"
    )  # fmt: skip
    assert field(kernel, "tiles") == (
        "TileList(p.list_rows, BLOCK_KV, (j <= i) & (p.doc[tile.b, i] == p.doc[tile.b, j]), B)"
    )
    assert field(kernel, "list_rows") == (
        "Scalar(i32, host=BLOCK_Q * ceil_div(B * ceil_div(Lq, BLOCK_Q) * (ceil_div(Lk, BLOCK_KV) + 2), 2 ** 25))"
    )


def test_lists_are_for_each_head_only_where_the_mask_depends_on_heads() -> None:
    axes = {"reach[h, i] > j": "B, Hq", SAME: "B", "place[i] == place[j]": None}
    for keep, expected in axes.items():
        kind = next(f.type for f in listed(keep).params if isinstance(f.type, TileList))
        assert (", ".join(map(print_expr, kind.axes)) or None) == expected


NOT_LISTED: Final = {
    "closed form": "j <= i",
    "a number of the launch": "j < doc[b, 0]",
    "float arithmetic": "place[i] - place[j] < 0.5",
    "a product": "2.0 * place[j] < 0.5",
    "a float function": "exp(place[j]) < 1",
}


@pytest.mark.parametrize("keep", NOT_LISTED.values(), ids=NOT_LISTED)
def test_other_masks_keep_their_intervals(keep: str) -> None:
    assert print_function(listed(keep).region("key_count")).endswith("maximum(keys.hi - keys.lo, 0)")


@pytest.mark.parametrize(
    "keep", ["place[i] < place[j]", "maximum(place[i], 0.0) == 0.0", "doc[b, j] * 2 < i", "place[j] > f32(i)"]
)
def test_floats_that_are_only_compared_are_exact(keep: str) -> None:
    assert listed(keep).region("key_count").result == parse_expr("keys.count")


def test_names_of_the_reference_come_first() -> None:
    kernel = run_pipeline(
        golden_kernel("sm80"),
        parse_text(
            'bind-captured{capture="tiles",dtype="i32",extents="Lk"},rewrite-mask{keep="tiles[i] == tiles[j]"},list-tiles'
        ),
    )
    assert field(kernel, "tiles_2") == "TileList(p.list_rows, BLOCK_KV, p.tiles[i] == p.tiles[j])"
    assert print_function(kernel.region("key_tile")).endswith("return p.tiles_2[keys.list, t + 2]")


# ---- the check of the lists --------------------------------------------------------------------------------------------

KEEP: Final = f"(j <= i) & ({SAME})"


def _region(kernel: Kernel, name: str, change: Callable[[Function], Function]) -> Kernel:
    return replace(kernel, regions=tuple(change(r) if r.name == name else r for r in kernel.regions))


def _returns(name: str, text: str) -> Callable[[Kernel], Kernel]:
    return lambda kernel: _region(kernel, name, lambda r: replace(r, result=parse_expr(text)))


def _assigns(old: str, new: str) -> Callable[[Kernel], Kernel]:
    def change(node: Node) -> Node:
        return parse_expr(new) if isinstance(node, Expr) and node == parse_expr(old) else node

    return lambda kernel: _region(kernel, "key_sequence", lambda r: rewrite(r, change))


def _kept(text: str) -> Callable[[Kernel], Kernel]:
    def changed(item: Field) -> Field:
        kind = item.type
        return replace(item, type=replace(kind, keep=parse_expr(text))) if isinstance(kind, TileList) else item

    return lambda kernel: replace(kernel, params=tuple(changed(f) for f in kernel.params))


WRONG: Final[dict[str, tuple[Callable[[Kernel], Kernel], str]]] = {
    "last tile lost": (_returns("key_count", "maximum(keys.count - 1, 0)"), "skipped"),
    "every tile walked as full": (_returns("key_masked", "False"), "unmasked"),
    "a masked tile too few": (_returns("key_masked", "t + 1 < keys.masked"), "unmasked"),
    "tiles counted from 1": (_returns("key_tile", "p.tiles[keys.list, t + 2] + 1"), "skipped"),
    "another batch": (_assigns("tile.b", "0"), "unmasked"),
    "the next query tile": (_assigns("tile.q_start // p.list_rows", "(tile.q_start + BLOCK_Q) // p.list_rows"), "empty"),
    "not causal": (_kept("p.doc[tile.b, i] == p.doc[tile.b, j]"), "empty"),
    "no data": (_kept("j <= i"), "unmasked"),
    "a row too late": (_kept("(j < i) & (p.doc[tile.b, i] == p.doc[tile.b, j])"), "skipped"),
    "all": (_kept("True"), "unmasked"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_walk_is_found(name: str) -> None:
    kernel = listed(KEEP)
    predicate = mask_predicate(kernel)
    assert predicate is not None and list_fault(kernel, predicate) is None
    wrong, what = WRONG[name]
    fault = list_fault(wrong(kernel), predicate)
    assert fault is not None and fault.what == what


def test_a_tile_that_is_visited_for_nothing_is_found() -> None:
    kernel = listed(KEEP)
    predicate = mask_predicate(kernel)
    assert predicate is not None
    later = _returns("key_masked", "True")(_kept("(j <= i) | (p.doc[tile.b, i] == p.doc[tile.b, j])")(kernel))
    fault = list_fault(later, predicate)
    assert fault is not None and fault.what == "empty"
    assert list_fault(later, predicate, exact=False) is None


def test_query_tiles_that_share_a_list_see_enough() -> None:
    """Beyond 64 MiB of lists; here by decree."""
    kernel = listed(KEEP)
    params = tuple(
        replace(f, type=replace(f.type, host=parse_expr("BLOCK_Q * 2"))) if f.name == "list_rows" else f  # pyright: ignore[reportCallIssue]
        for f in kernel.params
    )
    shared = replace(kernel, params=params)
    predicate = mask_predicate(kernel)
    assert verify(shared) == () and predicate is not None
    fault = list_fault(shared, predicate)
    assert fault is not None and fault.what == "empty"
    assert list_fault(shared, predicate, exact=False) is None
