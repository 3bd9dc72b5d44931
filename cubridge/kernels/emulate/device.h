// What base.cuh needs so that kernel text compiles as C++ for a CPU. The wrappers of ptx_*.cuh get their meaning in ptx_*.h.
#pragma once
#include <cmath>
#include <cstring>
#include <type_traits>

#include "emulate/calls.h"

#define DEVICE inline __attribute__((always_inline))
#define KERNEL(threads, blocks_per_sm)          \
    extern "C" const int emu_threads = threads; \
    static void
#define __grid_constant__
#define SHARED_TILES(type, name) type& name = *static_cast<type*>(emu::shared_memory(sizeof(type), alignof(type)))

// One int in shared memory whose accesses are checked like those of the tiles.
struct shared_int {
    int value;
    operator int() const {
        emu::shared_read(this, sizeof value);
        return value;
    }
    void operator=(int x) {
        emu::shared_write(this, sizeof value);
        value = x;
    }
};

template <typename T> DEVICE void emu_poison_one(T& local) {
    if constexpr (std::is_trivially_default_constructible<T>::value) memset(static_cast<void*>(&local), 0xff, sizeof local);
}
// A local that nothing has written: NaN, or -1. Calls of it are put behind declarations without initialiser before the text is
// compiled (cubridge/backend/emulate/text.py).
template <typename... T> DEVICE void emu_poison(T&... locals) { (emu_poison_one(locals), ...); }

DEVICE float __int_as_float(int bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
