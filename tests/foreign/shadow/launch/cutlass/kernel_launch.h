// A launch is noted, not made.
#pragma once
#include "host.h"
namespace cutlass {
template <class Kernel, class Params>
inline int kernel_launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const Params& params, bool) {
    return note_launch(stream, grid, block, dim3(1, 1, 1), shared_bytes, params);
}
}
