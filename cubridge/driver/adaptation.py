"""What the user holds of an adaptation: CuIR, patch, report, and the operator that it compiles to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from cubridge.backend.launch.operator import AttentionOperator
from cubridge.backend.launch.varlen import VarlenOperator
from cubridge.driver.adapted import Adapted
from cubridge.driver.backward import Backward
from cubridge.driver.compiled import BATCHED, compile_for, in_layout
from cubridge.driver.outputs import FILES, PAGE, REFERENCE, VIEW
from cubridge.driver.report import Report, to_markdown
from cubridge.driver.view.collect import view_of
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.files import replace_file, replace_files
from cubridge.ir.nodes import Kernel
from cubridge.ir.printer import to_text
from cubridge.passes.pipeline import Pipeline
from cubridge.show.page import framed, page
from cubridge.show.view import View, view_json

if TYPE_CHECKING:
    from cubridge.ir.gradient import GradientSpec


@dataclass(frozen=True, slots=True, repr=False)
class Adaptation:
    """What the user holds. `compile()` gives a PyTorch operator on a machine with a GPU."""

    adapted: Adapted
    report: Report
    seconds: dict[str, float]
    backward: Backward | None = None

    def __repr__(self) -> str:
        return (
            f"Adaptation({self.report.reference} -> {self.report.kernel}, {self.report.dtype}: {self.report.verdict})"
        )

    def _repr_markdown_(self) -> str:
        """For notebooks."""
        return to_markdown(self.report)

    def __deepcopy__(self, memo: dict[int, object]) -> Adaptation:
        """Itself: nothing of it changes."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Errors: CU846."""
        help = "save the operator that `compile` gives, or `write` a folder and `cubridge.load` it"
        raise CuError(Diagnostic("CU846", "an adaptation cannot be pickled", help=help))

    @property
    def source_ir(self) -> Kernel:
        return self.adapted.lifted.kernel

    @property
    def target_ir(self) -> Kernel:
        return self.adapted.target

    @property
    def pipeline(self) -> Pipeline:
        return self.adapted.pipeline

    @property
    def patch(self) -> str:
        """A unified diff of the kernel text."""
        return self.adapted.patched.patch.decode("utf-8", errors="replace")

    @property
    def cuda(self) -> str:
        """The patched kernel text."""
        return self.adapted.patched.text.decode("utf-8", errors="replace")

    def gradient(self) -> GradientSpec:
        """What a backward pass of the reference computes. Errors: as `TracedReference.gradient`."""
        return self.adapted.reference.gradient()

    @overload
    def compile(self, device: str = "cuda") -> AttentionOperator: ...
    @overload
    def compile(self, device: str = "cuda", *, layout: str) -> AttentionOperator | VarlenOperator: ...
    def compile(self, device: str = "cuda", *, layout: str = BATCHED) -> AttentionOperator | VarlenOperator:
        """A PyTorch operator with the reference's arguments, for tensors on a GPU ("cuda"), or for small ones on this CPU,
        where the kernel text is emulated ("emulator"). Of an adaptation with its backward pass, it trains: autograd records its
        calls. Each compiled form is checked on the device before its first result.
        `layout`: "batched", or "varlen" for documents in one row, see `backend.launch.varlen`. Errors: CU111 for another; CU844,
        exit code 3, for a kernel that its checks rejected; CU820, exit code 5, where there is no GPU; what a call raises is in
        `backend.launch.operator`."""
        if not self.report.accepted:
            message = "this kernel failed its checks: `report` says where"
            raise CuError(Diagnostic("CU844", message), exit_code=3)
        backward = None if self.backward is None else self.backward.lowered
        return in_layout(compile_for(self.adapted, device, backward), layout)

    def view(self) -> View:
        """What its page shows."""
        return view_of(self.adapted, self.report)

    def show(self, file: Path | str = PAGE) -> Path:
        """Write the page of this adaptation, one HTML file that needs no other and no network; where it is. Errors: OSError."""
        path = Path(file)
        replace_file(path, page(self.view()).encode())
        return path

    def _repr_html_(self) -> str:
        """The page, for notebooks."""
        return framed(page(self.view()))

    def files(self) -> dict[str, bytes]:
        """What `cuirc adapt` writes, by name; all but timings.json are the same for the same input. Of a kernel that a check
        rejects, the report and its view alone."""
        report = {
            "report.json": json.dumps(self.report.to_json(), indent=1) + "\n",
            "report.md": to_markdown(self.report),
            "timings.json": json.dumps(self.seconds, indent=1) + "\n",
            VIEW: view_json(self.view()).decode(),
        }
        if not self.report.accepted:
            return {name: text.encode() for name, text in report.items()}
        result = {
            "source.cuir": to_text(self.source_ir),
            "target.cuir": to_text(self.target_ir),
            "pipeline.toml": self.pipeline.to_toml(),
        }
        texts = {name: text.encode() for name, text in (result | report).items()}
        if self.report.reference_file is not None:
            texts[REFERENCE] = self.adapted.reference.traced.reference.file.data
        patched = {"kernel.cu": self.adapted.patched.text, "kernel.patch": self.adapted.patched.patch}
        return patched | texts | ({} if self.backward is None else self.backward.files())

    def write(self, folder: Path) -> None:
        """Write `files()` into a folder that is there, all or none; others of an earlier result go, for this report is not theirs.
        Errors: OSError."""
        files = self.files()
        replace_files(folder, files, [name for name in FILES if name not in files])
