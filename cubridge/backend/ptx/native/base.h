// Numbers, faults and lane masks that every part of the machine uses.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace ptx {
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;

constexpr int LANES = 32;
constexpr u32 ALL = ~0u;  // every lane of a warp

inline int first_lane(u32 mask) {
    return __builtin_ctz(mask);
}
inline int count_lanes(u32 mask) {
    return __builtin_popcount(mask);
}

template <class F>
inline void each_lane(u32 mask, F f) {
    for (; mask; mask &= mask - 1) f(first_lane(mask));
}

inline std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
inline std::string text(const char* format, ...) {
    char buffer[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

enum class FaultKind : int { deadlock = 1, race, misuse, bounds, crash, launch, time };

// A second place that explains a fault.
struct Remark {
    int pc;
    std::string said;
};

// What ends a run. `pc`: the instruction, -1 for none.
struct Fault {
    FaultKind kind;
    std::string said;
    int pc = -1;
    std::vector<Remark> remarks = {};
};

template <class T, class U>
inline T bits_as(U value) {
    static_assert(sizeof(T) == sizeof(U));
    T result;
    memcpy(&result, &value, sizeof result);
    return result;
}
}  // namespace ptx
