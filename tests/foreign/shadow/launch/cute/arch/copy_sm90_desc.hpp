// The real header as a host sees it, for its host functions; what it includes, as NVRTC sees it.
#pragma once
#include <cute/arch/copy_sm90.hpp>
#include <cute/container/array.hpp>
#include <cute/container/bit_field.hpp>
#include <cutlass/numeric_types.h>
#include "host.h"
#undef __CUDACC_RTC__
#include <include/cute/arch/copy_sm90_desc.hpp>
#define __CUDACC_RTC__ 1
