// Beside each byte of a block's shared memory: who wrote it and who read it when. An access that nothing orders after an earlier
// one is a race in every schedule.
#pragma once
#include "clock.h"

namespace ptx {
constexpr int CHUNK = 16;  // bytes; what asynchronous operations move and freeze

// One access of an instruction by an agent.
struct Event {
    u32 epoch;
    int pc;
    u32 cluster;
    u16 agent;
};
// The number of an event from bit 6 on, and a lane (or MANY_LANES) below. 0: no access.
using Stamp = u32;
constexpr int LANE_BITS = 6;
constexpr u32 MAX_EVENTS = 1u << (32 - LANE_BITS);

enum ByteState : u8 { IN_FLIGHT = 1, UNDEFINED = 2, STRONG = 4 };  // STRONG: the last write was an atomic or strong access

struct Shadow {
    std::vector<u8> bytes, state;
    Stamp first = 0;  // stamps below are of a block that was here before
    std::vector<Stamp> written;
    std::vector<std::vector<Stamp>> read;        // [warp of the cluster][byte]; empty until it reads
    std::vector<std::vector<Stamp>> chunk_read;  // [warpgroup][chunk]; empty until it reads
    std::vector<u16> frozen;                     // [chunk]: unfinished asynchronous reads
    std::vector<int> frozen_by;                  // [chunk]: pc

    void start(u32 size, Stamp now) {
        if (written.size() != size) {
            written.assign(size, 0);
            read.assign(MAX_WARPS, {});
            chunk_read.assign(MAX_WARPGROUPS, {});
        }
        first = now;
        bytes.assign(size, 0xff);
        state.assign(size, UNDEFINED);
        frozen.assign((size + CHUNK - 1) / CHUNK, 0);
        frozen_by.assign(frozen.size(), -1);
    }
    std::vector<Stamp>& row(std::vector<std::vector<Stamp>>& rows, int index, size_t size) {
        if (rows[index].empty()) rows[index].assign(size, 0);
        return rows[index];
    }
};
}  // namespace ptx
