// A launch of clusters is noted, not made.
#pragma once
#include "host.h"
namespace cutlass {
struct ClusterLaunchParams {
    dim3 grid_dims, block_dims, cluster_dims;
    int smem_size_in_bytes;
    cudaStream_t stream;
};
template <class Params>
inline int launch_kernel_on_cluster(const ClusterLaunchParams& l, const void*, const Params& params) {
    return note_launch(l.stream, l.grid_dims, l.block_dims, l.cluster_dims, l.smem_size_in_bytes, params);
}
}
