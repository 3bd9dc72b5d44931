// Generic addresses. Bits 56 and up say the space; a tensor has a window of 2^36 bytes of its own, most of which traps.
#pragma once
#include <string>
#include <vector>

#include "base.h"

namespace ptx {
constexpr int SPACE_SHIFT = 56, TENSOR_SHIFT = 36;
enum class Space : int { generic = -1, tensor = 0, shared = 1, local = 2, param = 3, data = 4 };

constexpr u64 window(Space space) {
    return (u64)space << SPACE_SHIFT;
}
constexpr u64 OFFSET_BITS = (1ull << SPACE_SHIFT) - 1;
// shared addresses: a CTA's own from 0; of a CTA of the cluster, its rank + 1 from bit 24
constexpr int RANK_SHIFT = 24;
constexpr u32 SHARED_BITS = (1u << RANK_SHIFT) - 1;

// MAY_BE_UNKNOWN: what nothing wrote may be put there, such as the padding of a structure. STARTS_AS_IT_IS: an output that is not
// unwritten at first.
enum TensorFlags : u32 { OUTPUT = 1, STARTS_AND_ENDS_ZERO = 2, MAY_BE_UNKNOWN = 4, STARTS_AS_IT_IS = 8 };

constexpr u64 STRONG_ACCESS = 1ull << 32;

// Global memory of a launch. `bytes` are the machine's own copy; `written` and `read` say who did so last, see shadow.h.
struct Tensor {
    std::string name;
    u64 base = 0;
    u32 flags = 0;
    std::vector<u8> bytes;
    std::vector<u64> written, read;  // stamps; STRONG_ACCESS set where atomics or strong accesses did it
    bool starts_known() const { return flags & (STARTS_AND_ENDS_ZERO | STARTS_AS_IT_IS); }
    bool writable() const { return flags & (OUTPUT | STARTS_AND_ENDS_ZERO); }
};

constexpr u64 MAP_MAGIC = 0x50414d5854504243ull;  // what the parameters hold in place of a map, before its number

struct TensorMap {
    int tensor;
    int rank, element_bytes, swizzle;  // swizzle: log2 of the bytes / 16; 0 none
    u64 extents[5], strides[5];        // strides in bytes, [0] the element's
    u32 box[5];
};
}  // namespace ptx
