// What Python sees: plain C, every pointer valid for the call alone.
#pragma once
#include "machine.h"

extern "C" {
struct PtxInstruction {
    ptx::s32 row, guard, negated, target, first, results, count;
};
struct PtxProgram {
    const PtxInstruction* code;
    const ptx::Operand* operands;
    const ptx::Constant* constants;
    const ptx::u8 *widths, *data;
    ptx::s32 code_count, operand_count, constant_count, register_count, predicates, data_bytes, shared_bytes, local_bytes;
};
struct PtxTensor {
    char name[48];
    ptx::u8* bytes;  // outputs are written back
    ptx::u64 size;
    ptx::u32 flags, align;
};
struct PtxMap {
    ptx::s32 tensor, rank, element_bytes, swizzle;
    ptx::u64 extents[5], strides[5];
    ptx::u32 box[5], param_offset;
};
struct PtxPointer {
    ptx::u32 param_offset, tensor;
};
struct PtxLaunch {
    ptx::Config config;
    const ptx::u8* params;
    const PtxTensor* tensors;
    const PtxMap* maps;
    const PtxPointer* pointers;
    ptx::s32 param_bytes, tensor_count, map_count, pointer_count;
};
struct PtxLog {
    ptx::u64* words;
    ptx::u64 count;
};
#define PTX_API __attribute__((visibility("default")))
PTX_API const char* ptx_digest();
PTX_API ptx::s32 ptx_row_count();
PTX_API const char* ptx_row(ptx::s32 index, ptx::s32 field);  // 0 name, 1 operands, 2 meaning
PTX_API ptx::Program* ptx_load(const PtxProgram* program);
PTX_API void ptx_free(ptx::Program* program);
// 0, or a FaultKind with a text: the fault's pc and words, then a line for each remark. `log`: of the traced block, to be freed
PTX_API ptx::s32 ptx_run(const ptx::Program* program, const PtxLaunch* launch, char* said, ptx::s32 said_bytes, ptx::u64* steps, PtxLog* log);
PTX_API void ptx_free_log(PtxLog* log);
}
