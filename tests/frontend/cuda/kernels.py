"""Shipped kernel texts, edited and lifted."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from cubridge.frontend.contract import read_contract
from cubridge.frontend.cuda.lemmas import Lemmas
from cubridge.frontend.cuda.lift import Lifted, lift
from cubridge.frontend.cuda.text import Headers, folder_headers
from cubridge.ir.contract import instantiations
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile
from cubridge.ir.types import DType

KERNELS = Path(__file__).parents[3] / "cubridge" / "kernels"
ARCHITECTURES = ("sm80", "sm90a")


@cache
def kernel_text(arch: str) -> str:
    return (KERNELS / arch / "attention_forward.cu").read_text(encoding="utf-8")


def edited(arch: str, *edits: tuple[str, str]) -> str:
    """The kernel text with each `old` replaced everywhere by `new`; every `old` must be there."""
    text = kernel_text(arch)
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def lift_text(
    arch: str,
    text: str | bytes,
    headers: Headers | None = None,
    dtype: DType = DType.BF16,
    head_dim: int = 128,
    lemmas: Lemmas | None = None,
) -> Lifted:
    source = SourceFile("kernel.cu", text.encode() if isinstance(text, str) else text)
    contract = read_contract(KERNELS / arch / "attention_forward.toml", source)
    instance = instantiations(contract, dtype, head_dim)[0]
    return lift(source, contract, instance, headers or folder_headers(KERNELS), lemmas)


@cache
def shipped(arch: str, dtype: DType = DType.BF16, head_dim: int = 128) -> Lifted:
    return lift_text(arch, kernel_text(arch), dtype=dtype, head_dim=head_dim)


def faults_of(arch: str, text: str | bytes, headers: Headers | None = None) -> tuple[Diagnostic, ...]:
    """The diagnostics of a text that must be refused."""
    try:
        lift_text(arch, text, headers)
    except CuError as error:
        return error.diagnostics
    raise AssertionError("the text was lifted")


def edited_headers(*edits: tuple[str, str, str]) -> Headers:
    """The shipped headers with (header, old, new) edits."""
    plain = folder_headers(KERNELS)

    def find(name: str) -> SourceFile | None:
        file = plain(name)
        if file is None:
            return None
        text = file.text
        for header, old, new in edits:
            if header == name:
                assert old in text, old
                text = text.replace(old, new)
        return SourceFile.from_text(name, text)

    return find
