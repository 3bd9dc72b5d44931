// The real header as a host sees it, for its host functions; what it includes, as NVRTC sees it.
#pragma once
#include <cute/algorithm/prefetch.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cute/atom/copy_traits_sm90_tma_swizzle.hpp>
#include <cute/numeric/integral_ratio.hpp>
#include <cutlass/cuda_host_adapter.hpp>
#include <iostream>
#undef __CUDACC_RTC__
#include <include/cute/atom/copy_traits_sm90_tma.hpp>
#define __CUDACC_RTC__ 1
