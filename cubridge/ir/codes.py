"""Every diagnostic code with its one-line explanation. Codes go by stage; a test finds any that no case shows."""

from __future__ import annotations

from typing import Final

CODES: Final[dict[str, str]] = {
    # CU1 parse
    "CU101": "the text is not CuIR syntax",
    "CU102": "the text carries no CuIR version, or another one",
    "CU103": "a name, operation or keyword argument that CuIR does not have",
    "CU104": "a node path that leads nowhere",
    # CU2 verify
    # CU25x, CU26x order
    "CU250": "a deadlock",
    "CU251": "two accesses to shared memory that nothing orders",
    "CU252": "shared memory is read before anything was written to it, or has no such slot",
    "CU253": "a copy whose data nobody reads",
    "CU254": "a register tile is used while an asynchronous gemm writes or reads it",
    "CU255": "a register tile or row state is read before it is written",
    "CU256": "an operation that all threads of a warp or warpgroup must take together",
    "CU257": "a barrier is used before, or unordered with, its initialisation",
    "CU258": "an arrival too many, or a wait that may see another phase than the one meant",
    "CU259": "a copy brings more bytes than its barrier expects",
    "CU260": "something is left over when the kernel ends",
    "CU261": "a named barrier that is not used alike by all",
    "CU262": "a fence is missing before a wgmma",
    "CU263": "a tile skips or repeats a step from scores to output",
    "CU264": "a tile is of another place than its use says",
    "CU265": "register budgets that do not add up",
    "CU266": "work tiles that are not taken in turn, once each",
    "CU267": "a kernel that does not come to an end",
    # CU3 interpret
    "CU301": "an expression has no value here",
    # CU4 frontend
    "CU451": "a launch contract that cannot be read: TOML, version, a key or a value",
    "CU452": "a line of Params that is no field",
    "CU453": "an annotation of a Params field that cannot be read",
    "CU454": "an annotation that does not fit its field or the contract",
    "CU455": "a kernel text without Params, or without the kernel that its contract names",
    # CU5 pass
    # CU6 patch
    "CU601": "a source map is older than its text",
    "CU602": "a change outside the regions that a patch may write",
    "CU603": "CuIR that the CUDA text of a region cannot say",
    "CU604": "a name that CUDA text cannot have there",
    "CU605": "two edits of a text overlap",
    "CU606": "a region whose text is not laid out as its CuIR is",
    # CU7 model reply
    "CU701": "a model provider failed",
    "CU702": "a model gave no reply in time",
    "CU703": "a reply is empty or too long",
    "CU704": "the package of a model provider is not installed",
    "CU705": "no recorded reply is left",
    "CU706": "a proposer that the tool does not have",
    "CU707": "a transcript cannot be read",
    "CU708": "the budget of a model is used up",
    "CU711": "the fences of a reply do not match",
    "CU712": "a reply has no block, or several, of the kind that was asked for",
    # CU8 compile and launch
    "CU801": "not an architecture that this tool compiles for",
    "CU802": "the kernel is written for another architecture",
    "CU803": "a block needs more shared memory than the architecture has",
    "CU804": "one header name stands for two texts",
    "CU805": "NVRTC is not installed or failed",
    "CU806": "the CUDA compiler refuses the text, or warns",
    "CU807": "the assembler refuses the text, or serialises its wgmma",
    "CU808": "the text has no kernel of the contract's name",
    "CU809": "the contract lists no form for this element type or head dim",
    "CU810": "a patch makes the kernel spill registers",
    "CU820": "no GPU, or a library that a launch needs is missing",
    "CU821": "an input that the operator does not take: type, device, rank or shape",
    "CU822": "an input requires a gradient; there is no backward",
    "CU823": "the sizes of a call break a precondition",
    "CU824": "a captured value is missing, or not of its declared shape or type",
    "CU825": "the CUDA driver reports an error",
    "CU826": "sizes or strides that the kernel cannot take",
    "CU830": "the emulator needs a C++ compiler",
    "CU831": "the emulator's compiler refuses the kernel text",
    "CU832": "emulated: threads wait forever",
    "CU833": "emulated: an access that nothing orders after another",
    "CU834": "emulated: an instruction used against its rules",
    "CU835": "emulated: an access outside its memory",
    "CU836": "emulated: the kernel crashed, or its launch contract does not describe it",
    "CU837": "emulated: the kernel does not end in time",
}
