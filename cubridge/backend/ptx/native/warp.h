// A warp: 32 lanes of every register, the places that its lanes are at, what it knows of others, and its unfinished operations.
#pragma once
#include <deque>
#include <memory>

#include "clock.h"
#include "program.h"

namespace ptx {
constexpr u64 NEVER = ~0ull;

// Lanes that are at one instruction. `stalled`: the progress of the cluster when they found that they must wait.
struct Split {
    int pc;
    u32 mask;
    u64 stalled = NEVER;
    bool gathering = false;
};

// One round of a barrier that counts threads; those that wait hold on to it.
struct Round {
    Clock clock;
    bool complete = false;
    bool whole = false;  // counts all threads of the block that have not ended
    int expected = 0, arrived = 0, waiting = 0;
    int pc = -1;  // of the first arrival
};

// What a lane waits for at an instruction that it has begun and not ended.
struct Pending {
    int pc = -1;
    std::shared_ptr<Round> round;
};

// A wait on an mbarrier that had to be repeated.
struct PhaseWait {
    u32 key = 0;
    int pc = -1;
    s64 phase = -1;
};

struct AsyncCopy {
    u32 rank, at;
    u8 data[16];
    int bytes, pc, lane;
    u32 group;
    bool undefined;
};

struct BulkRead {  // a bulk copy out of shared memory
    u32 rank, at, bytes;
    int pc, lane;
    u32 group;
};

// What a warp that cannot go on waits for, to be told if nothing comes.
struct Reason {
    enum Kind { NOTHING, PHASE, REGISTERS } kind = NOTHING;
    u32 key = 0;
    long need = 0;
};

struct Warp {
    int id = 0, rank = 0, index = 0;  // in its cluster; the CTA; in the CTA
    u32 lanes = ALL, alive = ALL;
    std::vector<u8> storage;
    u8* file = nullptr;
    std::vector<u32> undefined, predicates, predicates_undefined;
    std::vector<int> origin, predicates_origin;  // pc that made lanes undefined, -1: nothing wrote the register
    std::vector<Split> splits;
    u64 steps = 0;

    u32 epoch = 1;
    Clock clock;  // of lanes that have none of their own
    std::unique_ptr<Clock> own[LANES];
    u32 apart = 0;                // lanes that have
    u32 proxy_fence[LANES] = {};  // epoch of each lane's last fence.proxy.async
    std::unique_ptr<Clock> fence_release[LANES], fence_acquire[LANES];
    int event_pc = -1;
    u32 event_epoch = 0, event = 0;

    Pending pending[LANES];
    PhaseWait phase_wait[LANES];
    std::vector<AsyncCopy> copies;
    std::vector<BulkRead> bulk_reads;
    u32 copy_groups[LANES] = {}, bulk_groups[LANES] = {};

    std::shared_ptr<Round> cluster_round;

    u32 wgmma_issued = 0, wgmma_committed = 0, wgmma_finished = 0;  // numbers of operations
    std::deque<u32> wgmma_groups;                                   // the last operation of each group
    std::vector<u32> accumulates, frozen;                           // by slot: the operation that writes it, that reads it
    std::vector<u32> written;                                       // by slot: the fence that was last when code wrote it
    u32 wgmma_fences = 0;

    int registers = 0;  // a thread's, as setmaxnreg counts
    std::vector<u8> local;
    Reason reason;
    bool spins = false;  // the last instruction found that it must wait

    Clock& clock_of(int lane) { return apart >> lane & 1 ? *own[lane] : clock; }
};
}  // namespace ptx
