// What dropout's headers do with a random generator's state.
#pragma once
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <cuda/std/tuple>
namespace at::cuda::philox {
inline ::cuda::std::tuple<unsigned long long, unsigned long long> unpack(PhiloxCudaState state) { return {state.seed, state.offset}; }
}
