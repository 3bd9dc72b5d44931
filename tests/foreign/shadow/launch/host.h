// A host on the device: what a launch path calls writes down what it is asked for.
#pragma once
#include <cuda.h>

// A launch as numbers, and the bytes of its parameters. A stream is where to write it.
struct Launched {
    unsigned grid[3], block[3], cluster, shared_bytes, param_bytes, pad;
    unsigned char params[4096];
};

template <class Params>
inline int note_launch(cudaStream_t stream, dim3 grid, dim3 block, dim3 cluster, size_t shared_bytes, const Params& params) {
    Launched& l = *(Launched*)stream;
    l.grid[0] = grid.x, l.grid[1] = grid.y, l.grid[2] = grid.z;
    l.block[0] = block.x, l.block[1] = block.y, l.block[2] = block.z;
    l.cluster = cluster.x * cluster.y * cluster.z, l.shared_bytes = shared_bytes, l.param_bytes = sizeof params;
    static_assert(sizeof params <= sizeof l.params);
    for (int n = 0; n < sizeof params; ++n) l.params[n] = ((const volatile unsigned char*)&params)[n];
    return 0;
}

// A descriptor in clear.
struct ClearMap {
    unsigned long long magic, tensor, extents[5], strides[4];
    unsigned box[5], rank, type, swizzle;
};
static_assert(sizeof(ClearMap) <= sizeof(CUtensorMap));

inline CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* tensor, const cuuint64_t* extents,
                             const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    for (int n = 0; n < sizeof *map / 8; ++n) ((unsigned long long*)map)[n] = 0;
    ClearMap& m = *(ClearMap*)map;
    m.magic = 0x70616d7261656c63, m.tensor = (unsigned long long)tensor, m.rank = rank, m.type = type, m.swizzle = swizzle;
    for (int n = 0; n < rank; ++n) m.extents[n] = extents[n], m.box[n] = box[n];
    for (int n = 0; n + 1 < rank; ++n) m.strides[n] = strides[n];
    return CUDA_SUCCESS;
}
#define CUTLASS_CUDA_DRIVER_WRAPPER_CALL(function) encode_tiled
