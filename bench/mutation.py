"""The judge judged: code of judge, engines and verifier is changed on purpose, one place at a time, and tests must notice.

    python -m bench.mutation 60 --seed 1 --module cubridge.judge.bound

Each mutant is loaded into a child of this process in place of the module, and runs the module's tests until one fails. Prints what
survived, with its line, and a table; ends with 1 if a survivor is not in `EQUIVALENT`."""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).parents[1]

TARGETS: Final[dict[str, tuple[str, ...]]] = {
    "judge.bound": ("tests/judge/test_bound.py", "tests/judge/test_problem.py", "tests/judge/test_checker.py"),
    "judge.problem": ("tests/judge/test_problem.py", "tests/judge/test_bound.py", "tests/judge/test_checker.py"),
    "judge.checker": ("tests/judge/test_checker.py", "tests/judge/test_mutants.py", "tests/judge/test_list_mutants.py"),
    "judge.long_lengths": ("tests/judge/test_long_lengths.py",),
    "judge.proof.induction": ("tests/judge/proof",),
    "judge.proof.compare": ("tests/judge/proof",),
    "judge.proof.keys": ("tests/judge/proof",),
    "judge.proof.read": ("tests/judge/proof",),
    "engine.order.run": ("tests/engine/test_order.py",),
    "engine.order.steps": ("tests/engine/test_order.py",),
    "engine.order.machine": ("tests/engine/test_order.py",),
    "engine.values.run": ("tests/engine/test_values.py",),
    "engine.values.machine": ("tests/engine/test_values.py",),
    "verify.body": ("tests/verify", "tests/test_cases.py"),
    "verify.barriers": ("tests/verify", "tests/test_cases.py"),
    "verify.waits": ("tests/verify", "tests/test_cases.py"),
    "verify.pipeline": ("tests/verify", "tests/test_cases.py"),
    "verify.keys": ("tests/verify", "tests/test_cases.py"),
    "verify.fences": ("tests/verify", "tests/test_cases.py"),
    "verify.roles": ("tests/verify", "tests/test_cases.py"),
    "verify.skips": ("tests/verify", "tests/test_cases.py"),
    "verify.state": ("tests/verify", "tests/test_cases.py"),
    "verify.budget": ("tests/verify", "tests/test_cases.py", "tests/frontend/cuda/test_contract_fit.py"),
    "verify.ranges": ("tests/verify", "tests/passes/test_wide.py", "tests/test_cases.py"),
}
"""Modules of the package, and the tests that must notice what is wrong in them."""

EQUIVALENT: Final[dict[str, str]] = {
    "engine.values.run:accessors: isinstance(tile, SimpleNamespace) and hasattr(tile, 'q_start') -> hasattr(tile, 'q_start')": (
        "of all values only the namespaces that `work_tile` returns have a `q_start`"
    ),
}
"""Survivors that change nothing, `module:function: change`, with the reason."""

SECONDS: Final = 150
"""A mutant that takes longer is noticed: its tests would not end."""
_NO_TESTS: Final = 5
_FLIPPED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """`change` in the words of the source; `text`: the whole module with it."""

    module: str
    function: str
    line: int
    change: str
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.function}: {self.change}"


# ---- the changes -----------------------------------------------------------------------------------------------------


def mutants(module: str, source: str) -> list[Mutant]:
    """Every change of every function, in the order of the text."""
    tree = ast.parse(source)
    return [
        Mutant(module, function.name, at, change, text)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for at, change, text in _changes(source, function)
    ]


def _changes(source: str, function: ast.FunctionDef) -> Iterator[tuple[int, str, str]]:
    says_yes = isinstance(function.returns, ast.Name) and function.returns.id == "bool"
    for node in _own_nodes(function):
        for replacement in _replacements(node, says_yes):
            old, new = ast.unparse(node), ast.unparse(replacement)
            text = _replaced(source, node, new)
            if text is not None:
                yield node.lineno, f"{_short(old)} -> {_short(new)}", text  # pyright: ignore[reportAttributeAccessIssue]


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop(0)
        if not isinstance(node, ast.FunctionDef):
            yield node
            stack += ast.iter_child_nodes(node)


def _replacements(node: ast.AST, says_yes: bool) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in _FLIPPED:
            yield ast.Compare(left, [_FLIPPED[type(op)]()], [right])
        case ast.BoolOp(op, values):
            for n in range(len(values)):
                kept = values[:n] + values[n + 1 :]
                yield kept[0] if len(kept) == 1 else ast.BoolOp(op, kept)
        case ast.BinOp(left, ast.BitAnd() | ast.BitOr(), right):
            yield left
            yield right
        case ast.Return(ast.expr() as value) if says_yes and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(True))
        case ast.Raise() | ast.Expr(ast.Yield() | ast.YieldFrom()) | ast.Expr(ast.Call()):
            yield ast.Pass()
        case ast.If(_, body, orelse) if isinstance(body[0], ast.Raise | ast.Return | ast.Expr):
            yield ast.If(ast.Constant(False), body, orelse)
        case _:
            pass


def _replaced(source: str, node: ast.AST, new: str) -> str | None:
    """The source with one node in other words, on the lines of the old ones."""
    lines = source.split("\n")
    first, last = node.lineno - 1, node.end_lineno - 1  # pyright: ignore
    before = lines[first].encode()[: node.col_offset].decode()  # pyright: ignore[reportAttributeAccessIssue]
    after = lines[last].encode()[node.end_col_offset :].decode()  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(node, ast.expr):
        new = f"({new})"
    middle = (before + new.replace("\n", "\n" + " " * len(before)) + after).split("\n")
    text = "\n".join([*lines[:first], *middle, *lines[last + 1 :]])
    try:
        ast.parse(text)
    except SyntaxError:
        return None
    return text


def _short(code: str) -> str:
    return " ".join(code.split())[:70]


# ---- running ---------------------------------------------------------------------------------------------------------


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module from a text."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        self.name, self.path, self.text = name, path, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(self.path))

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self.path)
        exec(compile(self.text, str(self.path), "exec"), module.__dict__)


def is_noticed(mutant: Mutant) -> bool:
    """Do the tests of its module fail. In a child, with a cache of its own: answers of a wrong prover stay there."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            code = _run_tests(mutant)
        finally:
            os._exit(code)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code == _NO_TESTS:
                raise SystemExit(f"no tests are there for {mutant.module}")
            return code != 0
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _run_tests(mutant: Mutant) -> int:
    import pytest

    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    name = f"cubridge.{mutant.module}"
    path = ROOT / Path(*name.split(".")).with_suffix(".py")
    sys.meta_path.insert(0, _Finder(name, path, mutant.text))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CUBRIDGE_CACHE"] = cache
        os.chdir(ROOT)
        return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TARGETS[mutant.module]]))


def all_mutants(modules: Sequence[str] = tuple(TARGETS)) -> list[Mutant]:
    """Of the package as it is."""
    return [
        mutant
        for module in modules
        for mutant in mutants(module, (ROOT / "cubridge" / Path(*module.split(".")).with_suffix(".py")).read_text())
    ]


def sample(count: int, seed: int, modules: Sequence[str] = tuple(TARGETS)) -> list[Mutant]:
    """As many from each module as from any other, as far as there are."""
    draw = random.Random(seed)
    by_module = {m: all_mutants([m]) for m in modules}
    for found in by_module.values():
        draw.shuffle(found)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(by_module.values()):
        chosen += [found.pop() for found in by_module.values() if found]
    return chosen[:count]


def survivors(chosen: Sequence[Mutant]) -> list[Mutant]:
    """Those that no test notices."""
    import torch  # before the children, which then need not import it

    torch.set_num_threads(1)
    found: list[Mutant] = []
    for mutant in chosen:
        noticed = is_noticed(mutant)
        if not noticed:
            found.append(mutant)
        print(f"{'noticed ' if noticed else 'SURVIVED'} {mutant} (line {mutant.line})", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", action="append", choices=TARGETS, help="of these modules alone")
    options = parser.parse_args()
    chosen = sample(options.count, options.seed, options.module or tuple(TARGETS))
    left = survivors(chosen)
    print("\n| module | mutants | noticed | equivalent | survived |\n| --- | --- | --- | --- | --- |")
    for module in dict.fromkeys(m.module for m in chosen):
        of = [m for m in chosen if m.module == module]
        alive = [m for m in left if m.module == module]
        same = [m for m in alive if str(m) in EQUIVALENT]
        print(f"| {module} | {len(of)} | {len(of) - len(alive)} | {len(same)} | {len(alive) - len(same)} |")
    return 1 if any(str(m) not in EQUIVALENT for m in left) else 0


if __name__ == "__main__":
    sys.exit(main())
