// What blocks that work off many tiles share, whatever the tiles are of: rings of slots, and counters that deal work out.
#pragma once
#include "common/ptx_sm90a.cuh"

// CuIR: slot, phase of step t of a ring of N slots; next() goes to step t + 1
template <int N> struct Ring {
    int slot = 0, phase = 0;
    DEVICE void next() {
        if (++slot == N) {
            slot = 0;
            phase ^= 1;
        }
    }
};

// CuIR: counters.finish()      the last block to finish leaves both counters zero for the next launch
// Its stores come after the adds of all blocks: a fence before each block's last add, and one after the add that finds itself last.
DEVICE void finish_counters(int* counters) {
    memory_fence();
    if (atomic_add(counters + 1, 1) == grid_size_x() - 1) {
        memory_fence();
        counters[0] = 0;
        counters[1] = 0;
    }
}
