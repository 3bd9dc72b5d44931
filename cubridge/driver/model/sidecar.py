"""What a model lifted, kept beside the kernel text: annotated CuIR of one instantiation, good while the text is the same."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.files import replace_file
from cubridge.ir.source import SourceFile

if TYPE_CHECKING:
    from cubridge.driver.kernels import ChosenKernel

_HEAD: Final = "# cubridge lift 1 of {text} by {author}; lines of the text in comments\n# text {digest}\n"


def sidecar_path(kernel: ChosenKernel, dtype: str, head_dim: int) -> Path:
    """`attention.cu` has `attention.bf16-64.cuir`."""
    return Path(kernel.text.source.name).with_suffix(f".{dtype}-{head_dim}.cuir")


def digest_of(kernel: ChosenKernel) -> str:
    """Of all that a lift depends on: the text, the headers that it reaches, the contract."""
    from cubridge.backend.compile.headers import include_closure

    headers = include_closure(kernel.text.source, kernel.text.include_dirs)
    parts = [kernel.text.source.digest, kernel.contract_path.read_text(encoding="utf-8")]
    parts += [part for name, header in headers.items() for part in (name, header.digest)]
    return sha256("\0".join(parts).encode()).hexdigest()


def write_sidecar(kernel: ChosenKernel, dtype: str, head_dim: int, cuir: SourceFile, author: str) -> Path:
    """Errors: OSError."""
    path = sidecar_path(kernel, dtype, head_dim)
    who = " ".join(author.split())[:80]
    head = _HEAD.format(text=Path(kernel.text.source.name).name, author=who, digest=digest_of(kernel))
    replace_file(path, (head + cuir.text).encode())
    return path


def read_sidecar(kernel: ChosenKernel, dtype: str, head_dim: int) -> SourceFile | None:
    """The annotated CuIR beside a text; None if there is none. Errors: CU719 for one of another text, or that is none."""
    path = sidecar_path(kernel, dtype, head_dim)
    try:
        source = SourceFile.read(path)
    except OSError:
        return None
    if f"# text {digest_of(kernel)}" not in source.text.split("\n")[:2]:
        message = f"{path} was lifted from another text, contract or header"
        raise CuError(Diagnostic("CU719", message, help="delete it, and lift the kernel again with a model"))
    return source
