// What base.cuh needs so that kernel text compiles as C++ for a CPU. The wrappers of ptx_*.cuh get their meaning in ptx_*.h.
#pragma once
#include <cmath>
#include <cstring>

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

DEVICE float __int_as_float(int bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
