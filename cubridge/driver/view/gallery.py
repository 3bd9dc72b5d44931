"""docs/gallery.md: a card for each packaged kernel and each example, with pictures as the page of an adaptation has them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cubridge.driver.lift_source import lift_source
from cubridge.driver.reference import read_reference
from cubridge.driver.transfer import transfer_before_checks
from cubridge.driver.view.collect import asked
from cubridge.driver.view.mask import mask_of, steps_by_head, tile_sizes, visible_elements
from cubridge.driver.view.timeline import event_graph
from cubridge.driver.view.walked import walked_by
from cubridge.ir.spec import Shape
from cubridge.ir.tile_shape import size_of
from cubridge.show.alone import alone
from cubridge.show.graph import graph_svg
from cubridge.show.mask import plane_layers
from cubridge.show.view import CELLS

if TYPE_CHECKING:
    from cubridge.ir.nodes import Kernel
    from cubridge.show.view import Mask, Plane

SHAPE: Final = Shape(2, 8, 2, 512, 512, 64)
_WALKED_BY: Final = "sm80"
_PAGE: Final = """# Gallery

Each packaged kernel, and each reference of `examples/`. This page and its pictures are written by
`pytest tests/docs/test_gallery.py -m '' --update-cases`.

## Kernels

Who does what when in one block, with an arrow for everything that one worker waits for another; the critical path is red. What
waits for what is the kernel's, durations are nominal: a copy by its bytes (green), a gemm by its multiplications (blue), a
region by its elements (orange); grey is waiting. `cuirc graph KERNEL -o FILE.svg` makes such a picture of any kernel.
"""
_EXAMPLES: Final = f"""## Examples

Query rows go down, keys to the right. Blue elements are visible. Frames are tiles of the kernel {_WALKED_BY}, at {SHAPE}
(B, Hq, Hk, Lq, Lk, D): orange ones are walked with the mask, others without it or not at all. `cuirc show` of an adaptation
has the same picture, to be enlarged.
"""


@dataclass(frozen=True, slots=True)
class Card:
    """`picture`: an SVG file, by `name`."""

    name: str
    text: str
    picture: str


def page(kernels: Iterable[Card], examples: Iterable[Card]) -> str:
    return "\n".join((_PAGE, *(c.text for c in kernels), _EXAMPLES, *(c.text for c in examples)))


def kernel_card(name: str) -> Card:
    """A packaged kernel."""
    kernel = lift_source(name, "bf16", SHAPE.D, None).kernel
    timeline, edges = event_graph(kernel, (4, 3))
    rows, keys = tile_sizes(kernel) or (0, 0)
    tiles = f"at head dim {SHAPE.D} query tiles of {rows} rows and key tiles of {keys}"
    says = f"{kernel.arch}, {size_of(kernel, kernel.threads)} threads; {tiles}."
    text = f"### {name}\n\n{says}\n\n![who does what when in {name}](gallery/{name}.svg)\n"
    return Card(name, text, graph_svg(timeline, edges))


def example_card(path: Path) -> Card:
    """A reference, as the kernel walks its mask."""
    name, reference = path.stem, read_reference(path)
    source = lift_source(_WALKED_BY, "bf16", SHAPE.D, None).kernel
    target = transfer_before_checks(source, reference.attention.spec).kernel
    sizes = tile_sizes(target)
    assert sizes is not None
    work = walked_by(target, reference, SHAPE, "bf16")
    mask = mask_of(visible_elements(reference, SHAPE, "bf16"), SHAPE, sizes, steps_by_head(work))
    formulas = {f.label: f.text for f in asked(reference).formulas}
    lines = [
        f"### {name}", "", _first_line(path), "", f"![the mask of {name}](gallery/{name}.svg)", "",
        *(f"- {label} `{formulas[label]}`" for label in ("score", "mask", "weight", "out")),
        f"- {_counted(mask.planes[0])}{_others(mask)}",
        f"- changed: {', '.join(_changed(source, target)) or 'nothing'}", "",
    ]  # fmt: skip
    return Card(name, "\n".join(lines), _picture(mask))


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _counted(plane: Plane) -> str:
    tiles = "".join(plane.tiles)
    counts = "; ".join(f"{tiles.count(letter)} {said}" for letter, said in CELLS.items() if letter in tiles)
    return f"{len(tiles)} tiles: {counts}"


def _others(mask: Mask) -> str:
    kinds = len(mask.planes) + mask.more
    return f" (of {mask.planes[0].of}; {kinds} kinds)" if kinds > 1 else ""


def _changed(source: Kernel, target: Kernel) -> Iterator[str]:
    return (f"`{region.name}`" for region in source.regions if target.region(region.name) != region)


def _picture(mask: Mask) -> str:
    """Of the first kind of batches and heads."""
    return alone(
        plane_layers(mask, mask.planes[0]), mask.keys, mask.rows, f"the mask of {mask.planes[0].of}", shown=0.5
    )


def write(cards: Iterable[Card], folder: Path) -> Mapping[str, str]:
    """The pictures, by their names in `folder`."""
    found = {f"{card.name}.svg": card.picture for card in cards}
    folder.mkdir(exist_ok=True)
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    return found
