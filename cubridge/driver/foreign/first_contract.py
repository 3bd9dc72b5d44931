"""A first contract for a kernel in no dialect of ours: entry and parameters as its text says, blanks for what it does not."""

from __future__ import annotations

import re
from typing import Final

from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.source import SourceFile, Span

BLANK: Final = "???"
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY: Final = re.compile(
    r"(?:template\s*<(?P<template>[^<>]*)>\s*)?(?:extern\s+\"C\"\s+)?(?:static\s+)?__global__\s+void\s+"
    r"(?:__launch_bounds__\s*\((?P<bounds>[^()]*)\)\s*)?(?P<name>\w+)\s*\((?P<parameters>[^()]*)\)\s*\{"
)
_TENSORS: Final = {
    "q": ("q", "query", "queries", "q_ptr"), "k": ("k", "key", "keys", "k_ptr"), "v": ("v", "value", "values", "v_ptr"),
    "o": ("o", "out", "output", "o_ptr"), "lse": ("lse", "softmax_lse", "lse_ptr"),
}  # fmt: skip
_SHAPES: Final = {
    "q": ("input", '"B", "Hq", "Lq", "D"'), "k": ("input", '"B", "Hk", "Lk", "D"'), "v": ("input", '"B", "Hk", "Lk", "D"'),
    "o": ("output", '"B", "Hq", "Lq", "D"'), "lse": ("output", '"B", "Hq", "Lq"'),
}  # fmt: skip
_ELEMENTS: Final = {"__nv_bfloat16": "bf16", "nv_bfloat16": "bf16", "__half": "fp16", "half": "fp16"}


def first_contract(source: SourceFile) -> str:
    """TOML. Errors: CU808 where the text has no kernel, or several."""
    text = _COMMENT.sub(lambda m: " " * len(m[0]), source.text)
    entries = list(_ENTRY.finditer(text))
    if len(entries) != 1:
        there = ", ".join(f"`{e['name']}`" for e in entries) or "none"
        message = f"a contract is of one kernel, `__global__ void NAME(..)`, and the text has {there}"
        raise CuError(Diagnostic("CU808", message, Span(source, 0, 0)))
    (entry,) = entries
    parameters = [_parameter(p) for p in entry["parameters"].split(",") if p.strip()]
    known = [t for t in _TENSORS if any(said == f"tensor {t}" for _, said in parameters)]
    dtype = next((d for word, d in _ELEMENTS.items() if re.search(rf"\b{word}\b", entry["parameters"])), BLANK)
    bounds = (entry["bounds"] or "").split(",")[0].strip()
    name = entry["name"] + (f"<{BLANK}>" if entry["template"] else "")
    lines = [
        f"# Fill each {BLANK}. Expressions are over B, Hq, Hk, Lq, Lk, D; docs/foreign.md says what each key is.",
        "version = 1",
        'kind = "foreign"',
        f'entry = "{name}"',
        'arch = "sm_80"',
        f'dtype = "{dtype}"',
        f'head_dim = "{BLANK}"',
        "options = []            # of the compiler, such as --use_fast_math",
        f'grid = ["{BLANK}", "{BLANK}", "{BLANK}"]',
        f"threads = {bounds}" if bounds.isdecimal() else f'threads = "{BLANK}"',
        "shared_bytes = 0        # dynamic, a block",
        "",
        "[parameters]",
        *(f'{parameter} = "{said}"' for parameter, said in parameters),
    ]
    return "\n".join([*lines, *(line for tensor in known or _TENSORS for line in _tensor(tensor))]) + "\n"


def _parameter(text: str) -> tuple[str, str]:
    """Its name, and what can be said of it."""
    *kind, name = re.findall(r"\w+|\*", text.partition("=")[0])
    if "*" in kind:
        tensor = next((t for t, names in _TENSORS.items() if name.lower() in names), BLANK)
        return name, f"tensor {tensor}"
    if "float" in kind:
        return name, f"float {BLANK}"
    return name, f"{'long' if {'int64_t', 'long', 'size_t'} & {*kind} else 'int'} {BLANK}"


def _tensor(name: str) -> list[str]:
    role, shape = _SHAPES[name]
    element = ['element = "f32"'] if name == "lse" else []
    return ["", f"[tensors.{name}]", f'role = "{role}"', *element, f"shape = [{shape}]"]
