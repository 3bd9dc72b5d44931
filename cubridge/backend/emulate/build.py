"""Builds a kernel's text for the CPU: one program per text and instantiation, kept by content."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from cubridge.backend.compile.cache import default_cache_dir
from cubridge.backend.compile.headers import KERNELS_DIR, include_closure
from cubridge.backend.emulate.text import with_poison
from cubridge.ir.contract import Instantiation, LaunchContract
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import NOWHERE, SourceFile, Span

_EMULATE: Final = KERNELS_DIR / "emulate"
_ENTRY: Final = _EMULATE / "entry.cpp"
_COMMON: Final = ("-std=c++17", "-g1", "-fno-exceptions", "-fno-rtti", "-fno-pie", "-U_FORTIFY_SOURCE")
_RUNTIME_FLAGS: Final = (*_COMMON, "-O2", "-ftree-vectorize")
_KERNEL_FLAGS: Final = (
    *_COMMON,
    "-O2",
    "-w",
    "-DCUBRIDGE_EMULATE",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-optimize-sibling-calls",     # a call's return address must name its own statement
    "-fsanitize=bounds",               # an index outside a register array traps
    "-fsanitize-undefined-trap-on-error",
    "-fno-crossjumping",               # or several such checks would share one trap
    "-fno-tree-tail-merge",
)  # fmt: skip
_LEAST_GCC: Final = 9
_FILL_FLAG: Final = "-ftrivial-auto-var-init=pattern"
"""Gives locals that `with_poison` misses one value, a wild one."""
_FILLS_LOCALS: Final = 12
"""The first g++ with that flag."""
_MESSAGE: Final = re.compile(r"^(.+?):(\d+):(\d+): (?:fatal )?error: (.*)$", re.MULTILINE)
_MAX_ERRORS: Final = 10


@dataclass(frozen=True, slots=True)
class Program:
    """An executable that runs launches of one kernel form. `text_file`: the copy of the text that it was built from."""

    path: Path
    text_file: Path
    source: SourceFile
    key: str


def build_program(
    source: SourceFile,
    contract: LaunchContract,
    instantiation: Instantiation,
    include_dirs: Sequence[Path] = (KERNELS_DIR,),
    cache_dir: Path | None = None,
) -> Program:
    """The program of a kernel text, from the cache where text, headers, macros and compiler are the same.
    Errors: CU830 no compiler; CU831 a text that it refuses, each message at its place; CU804 as include_closure."""
    compiler, folder = find_compiler(), cache_dir or emulator_cache_dir()
    headers = include_closure(source, include_dirs)
    key = _key(compiler, source, headers, contract, instantiation)
    program = Program(folder / f"{key}.run", folder / f"{key}.cu", source, key)
    if not program.path.exists():
        _make_folder(folder)
        runtime = _Runtime.start(compiler, folder)
        _compile(program, compiler, contract, instantiation, include_dirs, folder, runtime)
    return program


def emulator_cache_dir() -> Path:
    """Where programs of the emulator are kept."""
    return default_cache_dir() / "emulate"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _temporary(folder, ".probe").unlink()
    except OSError as error:
        message = f"the cache folder {folder} cannot be written: {error.strerror}"
        help = "name another one in the environment variable CUBRIDGE_CACHE"
        raise CuError(Diagnostic("CU830", message, help=help), exit_code=5) from error


# ---- compiler --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compiler:
    """g++ with what its banner says, and the flags that a kernel text is compiled with."""

    path: str
    version: str
    kernel_flags: tuple[str, ...]


@cache
def find_compiler() -> Compiler:
    """g++, or the one that the environment variable CXX names. Errors: CU830."""
    path = shutil.which(os.environ.get("CXX") or "g++")
    help = f"install g++ {_LEAST_GCC} or later, or name one in the environment variable CXX"
    if path is None:
        raise CuError(Diagnostic("CU830", "no C++ compiler is found", help=help), exit_code=5)
    banner = _run([path, "--version"]).stdout.split("\n", 1)[0]
    version = _run([path, "-dumpversion"]).stdout.strip()
    major = version.split(".")[0]
    if "clang" in banner or not major.isdigit() or int(major) < _LEAST_GCC:
        raise CuError(
            Diagnostic("CU830", f"{path} is `{banner}`; the emulator needs g++ {_LEAST_GCC}", help=help), exit_code=5
        )
    filled = (_FILL_FLAG,) if int(major) >= _FILLS_LOCALS else ()
    return Compiler(path, banner, (*_KERNEL_FLAGS, *filled))


def _key(
    compiler: Compiler,
    source: SourceFile,
    headers: Mapping[str, SourceFile],
    contract: LaunchContract,
    instantiation: Instantiation,
) -> str:
    text_digest = hashlib.sha256(with_poison(source.data)).hexdigest()
    parts = [
        compiler.version,
        *compiler.kernel_flags,
        runtime_digest(),
        text_digest,
        contract.entry,
        *instantiation.definitions,
    ]
    parts += [part for name, header in headers.items() for part in (name, header.digest)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@cache
def runtime_digest() -> str:
    """Content of the emulator itself."""
    texts = [path.read_bytes() for path in sorted(_EMULATE.iterdir()) if path.is_file()]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


# ---- compiling -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Runtime:
    """The object file of the runtime, which every program shares; `process` compiles it meanwhile."""

    path: Path
    temporary: Path | None = None
    process: subprocess.Popen[str] | None = None

    @staticmethod
    def start(compiler: Compiler, folder: Path) -> _Runtime:
        parts = "\0".join((compiler.version, *_RUNTIME_FLAGS, runtime_digest()))
        path = folder / f"{hashlib.sha256(parts.encode()).hexdigest()[:32]}.o"
        if path.exists():
            return _Runtime(path)
        temporary = _temporary(folder, ".o")
        command = [
            compiler.path,
            *_RUNTIME_FLAGS,
            f"-I{KERNELS_DIR}",
            "-c",
            str(_EMULATE / "runtime.cpp"),
            "-o",
            str(temporary),
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return _Runtime(path, temporary, process)

    def finish(self) -> Path:
        if self.process is not None and self.temporary is not None:
            _, messages = self.process.communicate()
            if self.process.returncode != 0:
                message = f"the emulator's runtime does not compile: {messages.strip()[:500]}"
                raise CuError(Diagnostic("CU830", message), exit_code=5)
            self.temporary.replace(self.path)
        return self.path


def _compile(
    program: Program,
    compiler: Compiler,
    contract: LaunchContract,
    instantiation: Instantiation,
    include_dirs: Sequence[Path],
    folder: Path,
    runtime: _Runtime,
) -> None:
    program.text_file.write_bytes(with_poison(program.source.data))
    kernel, linked = _temporary(folder, ".o"), _temporary(folder, ".run")
    form = _form_flags(program.text_file, contract, instantiation)
    includes = _include_flags(Path(program.source.name).parent, include_dirs)
    try:
        compiled = _run([compiler.path, *compiler.kernel_flags, *form, *includes, "-c", str(_ENTRY), "-o", str(kernel)])
        library = runtime.finish()
        if compiled.returncode != 0:
            raise CuError(*_messages(compiled.stderr, program))
        result = _run([compiler.path, "-no-pie", str(kernel), str(library), "-o", str(linked)])
        if result.returncode != 0:
            raise CuError(Diagnostic("CU831", f"the emulated kernel does not link: {result.stderr.strip()[:500]}"))
        linked.replace(program.path)
    finally:
        kernel.unlink(missing_ok=True)
        linked.unlink(missing_ok=True)


def _form_flags(text: Path, contract: LaunchContract, instantiation: Instantiation) -> list[str]:
    """What entry.cpp must know of the form that it compiles."""
    return [f'-DKERNEL_FILE="{text}"', f"-DKERNEL_ENTRY={contract.entry}", *instantiation.definitions]


def _include_flags(beside: Path, include_dirs: Sequence[Path]) -> list[str]:
    return [f"-I{directory}" for directory in (beside, *include_dirs, KERNELS_DIR)]


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


_ASSEMBLY_FLAGS: Final = ("-std=c++17", "-fno-exceptions", "-fno-rtti", "-w", "-DCUBRIDGE_EMULATE", "-O1")


def assembly(
    source: SourceFile,
    contract: LaunchContract,
    instantiation: Instantiation,
    include_dirs: Sequence[Path] = (KERNELS_DIR,),
) -> str:
    """The text compiled for the CPU, as assembly without places: two texts that do the same things have the same, as far as the
    compiler sees it. "" for a text that it refuses. Errors: CU830."""
    compiler = find_compiler()
    includes = _include_flags(Path(source.name).parent.absolute(), include_dirs)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "kernel.cu")
        text.write_bytes(source.data)
        form = _form_flags(text, contract, instantiation)
        result = _run([compiler.path, *_ASSEMBLY_FLAGS, *form, *includes, "-S", "-o", "-", str(_ENTRY)])
    return result.stdout if result.returncode == 0 else ""


def _temporary(folder: Path, suffix: str) -> Path:
    handle, name = tempfile.mkstemp(suffix=suffix, dir=folder)
    os.close(handle)
    return Path(name)


def _messages(text: str, program: Program) -> list[Diagnostic]:
    """The compiler's errors, those in the kernel text at their places."""
    found = [
        Diagnostic("CU831", message, _place(program, Path(name), int(line), int(column)))
        for name, line, column, message in _MESSAGE.findall(text)[:_MAX_ERRORS]
    ]
    return found or [Diagnostic("CU831", f"the compiler fails: {text.strip()[:500]}")]


def _place(program: Program, file: Path, line: int, column: int) -> Span:
    if file != program.text_file or line > len(program.source.line_starts):
        return NOWHERE
    whole = Span.whole_line(program.source, line)
    start = min(program.source.offset(line, column), whole.end)
    return Span(program.source, start, whole.end)
