// Types, constants and integer helpers that every kernel shares. No CUDA or C++ header is needed, so NVRTC takes it as it is.
// With -D CUBRIDGE_EMULATE the hardware's meaning comes from emulate/ and the kernel text runs on a CPU.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned short half_t;  // storage only: bf16 bits, or fp16 bits with -D HALF_FP16=1

#ifdef CUBRIDGE_EMULATE
#include "emulate/device.h"
#else
typedef int shared_int;  // one int in shared memory
#define DEVICE __device__ __forceinline__
#define KERNEL(threads, blocks_per_sm) extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm)
#endif

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;

DEVICE int imin(int a, int b) { return a < b ? a : b; }
DEVICE int imax(int a, int b) { return a > b ? a : b; }
DEVICE int iabs(int a) { return a < 0 ? -a : a; }
// for b > 0
DEVICE int ceil_div(int a, int b) { return a / b + (a % b > 0); }
// Python's // and % (C truncates): the quotient is rounded down and the remainder has the sign of b.
DEVICE int floor_div(int a, int b) { return a / b - ((a % b != 0) & ((a % b < 0) != (b < 0))); }
DEVICE int floor_mod(int a, int b) { return a - floor_div(a, b) * b; }
// Both values are computed: no branch around long arithmetic, which wgmma in flight does not bear.
DEVICE float select(bool which, float a, float b) { return which ? a : b; }
