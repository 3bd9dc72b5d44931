// The block's shared memory. It starts as NaN. Each 16 bytes remember who wrote and read them when, so that an access that nothing
// orders after another is an error in every schedule.
#pragma once
#include "emulate/fibers.h"

namespace emu {
constexpr size_t SHARED_MAX = 227 << 10;  // what a block can have on sm_90; sm_80 has less, which its contract must respect
constexpr int GRANULE = 16;
constexpr unsigned char NEVER = 255;

struct Granule {
    unsigned char writer = NEVER;     // clock component of the last write
    bool in_flight = false;           // an asynchronous copy owns it
    unsigned short unfinished_reads = 0;
    u32 write_epoch = 0;
    Place write_place = nullptr, read_place = nullptr;
};

alignas(1024) inline unsigned char arena[SHARED_MAX];
inline size_t shared_used = 0, shared_limit = 0;
inline std::vector<Granule> granules(SHARED_MAX / GRANULE);
inline std::vector<u32> read_epochs;  // [granule][warp]

inline void reset_shared_memory() {
    memset(arena, 0xff, shared_limit);
    std::fill(granules.begin(), granules.end(), Granule());
    read_epochs.assign(granules.size() * warps.size(), 0);
    shared_used = 0;
}

inline u32 arena_offset(const void* p) { return (u32)(static_cast<const unsigned char*>(p) - arena); }

inline void check_inside(u32 offset, u32 bytes, const char* what) {
    if (offset + bytes <= shared_used && offset <= shared_used) return;
    print_fault(Fault::bounds, "%s at shared memory offset %u, %u bytes; the block has %zu", what, offset, bytes, shared_used);
    print_place(self->place, "here");
    stop(Fault::bounds);
}

inline void check_read(u32 granule) {
    const Granule& g = granules[granule];
    if (g.in_flight) race("shared memory is read while a copy into it is on its way", g.write_place, "the copy");
    if (g.writer == NEVER) race("shared memory is read that nothing has written");
    if (own_clock().at[g.writer] < g.write_epoch) {
        race("shared memory is read without a wait that orders it after the write", g.write_place, "the write");
    }
}

inline void record_read(u32 granule, int warp, u32 epoch) {
    read_epochs[granule * warps.size() + warp] = epoch;
    granules[granule].read_place = self->place;
}

inline void read_granule(u32 granule) {
    check_read(granule);
    record_read(granule, self->warp(), own_clock().at[self->warp()]);
}

// A write may start: everything that read or wrote these bytes is ordered before this thread.
inline void check_write(u32 granule) {
    const Granule& g = granules[granule];
    if (g.in_flight) race("shared memory is written while a copy into it is on its way", g.write_place, "the copy");
    if (g.unfinished_reads) {
        race("shared memory is overwritten while an unfinished wgmma reads it", g.read_place, "the wgmma");
    }
    if (g.writer != NEVER && own_clock().at[g.writer] < g.write_epoch) {
        race("shared memory is overwritten without a wait that orders it after the last write", g.write_place, "the write");
    }
    const u32* reads = &read_epochs[granule * warps.size()];
    for (size_t warp = 0; warp < warps.size(); ++warp) {
        if (own_clock().at[warp] < reads[warp]) {
            race("shared memory is overwritten without a wait that orders it after the last read", g.read_place, "the read");
        }
    }
}

inline void start_copy(u32 granule) {
    check_write(granule);
    granules[granule].in_flight = true;
    granules[granule].write_place = self->place;
}

inline void finish_write(u32 granule, int writer, u32 epoch) {
    Granule& g = granules[granule];
    g.in_flight = false;
    g.writer = (unsigned char)writer;
    g.write_epoch = epoch;
}

// ---- calls ----
void* shared_memory(size_t bytes, size_t alignment) {
    EMU_ENTER();
    if (bytes > shared_limit || alignment > 1024) {
        print_fault(Fault::launch, "the kernel uses %zu bytes of shared memory, its launch gives %zu", bytes, shared_limit);
        stop(Fault::launch);
    }
    shared_used = bytes;
    return arena;
}

u32 shared_offset(const void* p) { return arena_offset(p); }

void shared_read(const void* p, int bytes) {
    EMU_ENTER();
    check_inside(arena_offset(p), (u32)bytes, "read");
    read_granule(arena_offset(p) / GRANULE);
}

void shared_write(const void* p, int bytes) {
    EMU_ENTER();
    check_inside(arena_offset(p), (u32)bytes, "write");
    const u32 granule = arena_offset(p) / GRANULE;
    check_write(granule);
    finish_write(granule, self->warp(), own_clock().at[self->warp()]);
    granules[granule].write_place = self->place;
}
}  // namespace emu
