"""Rules that the kernel texts keep: KERNELS of the design, checked on the text alone."""

from __future__ import annotations

import re

import pytest

from cubridge.backend.compile.headers import KERNELS_DIR
from cubridge.frontend.contract import read_contract
from cubridge.ir.source_map import SOURCE_REGIONS
from tests.kernels.emulated import ARCHS, kernel_source
from tests.kernels.wgmma_header import BACKWARD, HEADER, backward_header, header

COMMON = KERNELS_DIR / "common"
THREAD_TESTS = (
    "if (thread_index() == 0) {",
    "if (warpgroup_index() == 0) {",
    "const bool leader = thread_index() % WARPGROUP == 0;",
)


def between(text: str, start: str, end: str) -> str:
    at = text.index(start)
    return text[at : text.index(end, at)]


def body_of(arch: str) -> str:
    text = kernel_source(arch).text
    return text[text.index("KERNEL(") :]


def test_wgmma_header_is_what_its_generator_writes() -> None:
    assert HEADER.read_text() == header()
    assert BACKWARD.read_text() == backward_header()


@pytest.mark.parametrize("region", SOURCE_REGIONS)
def test_regions_serve_both_kernels(region: str) -> None:
    first, second = (between(kernel_source(a).text, f"// @region {region}\n", "// @endregion") for a in ARCHS)
    assert first == second


def test_what_is_no_instruction_is_the_same_in_both_kernels() -> None:
    """From the work tile to the kernel: state, regions with their comments, the order of work. Each text is whole, for patches."""
    ends = ("KERNEL(", "// The work tile of these coordinates.")
    texts = zip(ARCHS, ends, strict=True)
    first, second = (between(kernel_source(a).text, "// One (batch, head, query block).", end) for a, end in texts)
    assert "DEVICE WorkTile work_tile(" in first
    assert first == second


def test_asm_stands_in_wrappers_only() -> None:
    files = [*COMMON.glob("*.cuh"), *KERNELS_DIR.glob("sm*/*.cu")]
    with_asm = {f.name for f in files if re.search(r"\basm\b(?!`)", f.read_text())}
    assert with_asm == {
        "ptx_sm80.cuh",
        "ptx_sm90a.cuh",
        "wgmma_sm90a.cuh",
        "ptx_backward_sm90a.cuh",
        "wgmma_backward_sm90a.cuh",
    }


@pytest.mark.parametrize("arch", ARCHS)
def test_body_has_no_pointers_casts_or_other_thread_tests(arch: str) -> None:
    for line in body_of(arch).splitlines():
        code = line.split("//")[0].strip()
        assert not re.search(r"_cast<|\(\w+ ?\*\)|\([iu]\d\d\)|\(int\)|\(float\)|\bp\.\w+ \+|&p\.", code), line
        if "thread_index()" in code or "warpgroup_index()" in code:
            assert code in THREAD_TESTS, line


@pytest.mark.parametrize("arch", ARCHS)
def test_every_helper_of_the_body_says_its_meaning(arch: str) -> None:
    """A tile helper is a lemma: `// CuIR:` stands above it. Wrappers of one instruction and regions need none."""
    lines = [line for path in sorted(COMMON.glob("[ftv]*.cuh")) for line in path.read_text().splitlines()]
    used = set(re.findall(r"\b([a-z]\w*)(?:<\w+>)?\(", body_of(arch)))
    matches = ((at, re.search(r"DEVICE [\w ]+?\b(\w+)\(", line)) for at, line in enumerate(lines))
    definitions = [(at, match[1]) for at, match in matches if match and match[1] in used]
    assert {"load_tile_async", "cast_probs", "store_rows", "row_view"} <= {name for _, name in definitions}
    for at, name in definitions:
        assert any("// CuIR:" in line for line in lines[max(at - 6, 0) : at]), name


@pytest.mark.parametrize("arch", ARCHS)
def test_contract_describes_its_kernel(arch: str) -> None:
    contract = read_contract(KERNELS_DIR / arch / "attention_forward.toml")
    assert contract.equal_work
    assert contract.patchable == SOURCE_REGIONS
    assert [f.name for f in contract.params if f.patched] == ["exponent_scale"]
    macros = {m.name for m in contract.macros} | {name for _, chosen in contract.dtypes for name, _ in chosen}
    sources = kernel_source(arch).text + (COMMON / "ptx_sm80.cuh").read_text()
    assert all(f"#ifndef {m}" in sources or f"#ifdef {m}" in sources for m in macros)
