"""Lists of key tiles made by their kernel behind a text that has little but `Params`, on the emulator, and by torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from cubridge.backend.compile.compiler import listed_instantiations
from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.backend.launch.device import KernelText
from cubridge.backend.launch.tile_plan import list_text, plan_lists
from cubridge.backend.ptx.device import ONE_SCHEDULE, PtxDevice
from cubridge.frontend.contract import read_contract
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType

ROWS: Final = 48
KEYS: Final = 64
_TEXT: Final = """#include "common/base.cuh"
struct Params {{
    {fields}
    int batch;  // @host B
    int heads_q;  // @host Hq
    int heads_kv;  // @host Hk
    int len_q;  // @host Lq
    int len_kv;  // @host Lk
    int window;  // @host Hq + 90
    float bound;  // @host Hq + 0.5
    const short* tiles;  // @{word} [{axes}] {rows} x {keys} where {keep}
}};
struct Place {{ int b, h, hk, q_start; }};
DEVICE void tile_setup(Place& tile, const Params& p) {{}}
extern "C" __global__ void attention_forward(const __grid_constant__ Params p) {{}}
"""


@dataclass(frozen=True)
class Maker:
    """`captured`: extents by the name of each tensor that the mask reads."""

    keep: str
    captured: Mapping[str, str]
    axes: str = "B"
    word: str = "tiles"
    include: tuple[Path, ...] = ()

    def lists(self, data: Mapping[str, Tensor], queries: int, keys: int) -> tuple[Tensor, Tensor]:
        """By the kernel, and by torch, of two batches and four heads."""
        text = self._text({name: tensor.is_floating_point() for name, tensor in data.items()})
        device, form = PtxDevice(ONE_SCHEDULE), listed_instantiations(text.contract, DType.BF16, 64)[0]
        (place,) = text.contract.tile_lists
        kernel = device.load(list_text(text, place, form), DType.BF16, 64)
        names = {"B": 2, "Hq": 4, "Hk": 2, "Lq": queries, "Lk": keys, "D": 64, "spare": 1, **dict(form.macros)}
        plan = plan_lists(place, text.contract, device, names, kernel)
        arrays = [data[name].contiguous() for name in self.captured]
        return plan.make(arrays), replace(plan, maker=None).make(arrays)

    def _text(self, floats: Mapping[str, bool]) -> KernelText:
        kinds = {name: "float" if floats[name] else "int" for name in self.captured}
        fields = "\n    ".join(
            f"const {kinds[name]}* {name};  // @captured {name}[{extents}]" for name, extents in self.captured.items()
        )
        text = _TEXT.format(fields=fields, word=self.word, axes=self.axes, rows=ROWS, keys=KEYS, keep=self.keep)
        source = SourceFile.from_text("lists.cu", text)
        contract = read_contract(KERNELS_DIR / "sm80" / "attention_forward.toml", source)
        return KernelText(source, contract, (*self.include, KERNELS_DIR))


def wrong_header(folder: Path, header: str, old: str, new: str) -> tuple[Path, ...]:
    """Where a header is that has `new` in the place of `old`."""
    written = (KERNELS_DIR / header).read_text()
    assert old in written
    (folder / header).parent.mkdir(exist_ok=True)
    (folder / header).write_text(written.replace(old, new))
    return (folder,)


def same(made: tuple[Tensor, Tensor]) -> bool:
    return torch.equal(*made)
