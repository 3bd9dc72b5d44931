// What a step may touch: the checks of order, and what they note.
#pragma once
#include "machine.h"

namespace ptx {
// ---- clocks ----
Stamp stamp_of(Step& s, int lane, int pc);
inline Stamp stamp_of(Step& s, int lane) {
    return stamp_of(s, lane, s.pc);
}
Stamp stamp_of_agent(Machine& m, Cluster& c, int agent, u32 epoch, int pc);
Clock release(Step& s, u32 mask);
void acquire(Step& s, u32 mask, const Clock& clock);
void meet_lanes(Step& s, u32 mask);  // bar.warp.sync: the lanes know what each of them knew

// ---- shared memory; `lane` may be MANY_LANES ----
struct Place {
    u32 rank, at;
};
Place shared_place(Step& s, u32 address, u32 bytes, const char* verb);
Shadow& shadow_at(Step& s, u32 rank);
bool read_shared(Step& s, Place p, u32 bytes, int lane);  // true: some byte is undefined
void check_shared_write(Step& s, Place p, u32 bytes, int lane);
void note_shared_write(Step& s, Place p, u32 bytes, int lane, bool undefined);
void note_write(Shadow& h, u32 at, u32 bytes, Stamp stamp, bool undefined);
void start_flight(Step& s, Place p, u32 bytes, int lane);
void check_async_read(Step& s, Place p, u32 bytes, int lane);  // by the async proxy
bool knows_write(Step& s, Place p, int lane);                  // of the last writes of 8 bytes
void note_read(Step& s, Shadow& h, u32 at, u32 bytes, int lane);
void freeze(Shadow& h, u32 chunk, int pc);

// ---- mbarriers ----
void fence_mbarriers(Step& s);  // what this warp initialised is visible to the async proxy from now on
void end_phase_if_complete(Machine& m, Cluster& c, Mbarrier& b, int pc);
Mbarrier& mbarrier_at(Step& s, u32 key);
u32 mbarrier_key(Place p);

// ---- global memory ----
Tensor& tensor_at(Step& s, u64 address, u32 bytes, const char* verb, bool writes);
bool read_global(Step& s, Tensor& t, u64 offset, u32 bytes, int lane);
void write_global(Step& s, Tensor& t, u64 offset, u32 bytes, int lane);
// Atomics and strong accesses: ordered against others' plain ones, never against each other. The bytes.
u8* strong_access(Step& s, Space space, u64 address, u32 bytes, int lane, bool writes, bool reads);

// ---- generic addresses ----
// The bytes at an address for reading or writing, after the checks of its space.
struct Bytes {
    u8* at;
    bool undefined;
};
Bytes read_memory(Step& s, Space space, u64 address, u32 bytes, int lane);
u8* write_memory(Step& s, Space space, u64 address, u32 bytes, int lane, bool undefined);
[[noreturn]] void undefined_fault(Step& s, const char* where, int origin);
}  // namespace ptx
