// A launch on the machine. What it judges: accesses that nothing orders (shared memory to the byte, global memory between and
// inside blocks), undefined registers and memory, waits without end, instructions used against their rules, accesses outside of
// memory.
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <unordered_map>

#include "memory.h"
#include "shadow.h"
#include "warp.h"

namespace ptx {
struct Mbarrier {
    int id = 0;
    u32 count = 0;
    s64 pending = 0, bytes = 0, phase = 0;
    int init_pc = -1, init_warp = -1;
    bool fenced = false;  // visible to the async proxy
    Clock gathering, done;
};

// Data of a bulk copy on its way to the shared memory of one CTA.
struct Landing {
    u32 rank, at, mbarrier;
    std::vector<u8> data;
    int pc;
};

// The shared memory that one wgmma of a warpgroup reads; its four warps issue it one after the other.
struct WgmmaRead {
    u32 number;
    int pc;
    u64 b;
    std::vector<u32> chunks;
};

struct Warpgroup {
    std::deque<WgmmaRead> reads;  // of operations that no warp has waited for
};

struct Block {
    u32 index[3];
    Shadow* shadow = nullptr;
    std::shared_ptr<Round> named[16];
    Warpgroup warpgroups[8];
    long free_registers = 0;
    int released_pc = -1;
    bool registers_taken = false;
};

struct Cluster {
    u32 serial = 0;
    u32 index[3] = {};  // of its first block
    std::vector<Block> blocks;
    std::vector<std::unique_ptr<Warp>> warps;
    std::vector<std::unique_ptr<Shadow>> shadows;
    std::unordered_map<u32, Mbarrier> mbarriers;  // by address with rank
    std::deque<Landing> landings;
    std::shared_ptr<Round> cluster_round;
    u64 progress = 1;
    bool done = false;
};

struct Config {
    u32 grid[3], block[3], cluster, shared_bytes;
    s32 schedule, registers, traced;  // traced: the block whose steps are logged, -1 for none
    f64 seconds;
};

enum Schedule : int { FORWARD = 0, REVERSED = 1, HOSTILE = 2 };

// What threads released through one address of atomics: cluster, what was known.
using Location = std::vector<std::pair<u32, std::shared_ptr<const Clock>>>;

// Where the ways of a condition meet, and what they may write before. `join` -1: they do more than that.
struct Detour {
    int join = -1;
    std::vector<Operand> results;
};

struct Machine {
    const Program& program;
    Config config;
    std::vector<u8> params;
    std::vector<Tensor> tensors;
    std::vector<TensorMap> maps;
    std::vector<u8> data;
    std::vector<Event> events{1};
    std::unordered_map<u64, Location> locations;
    std::vector<std::unique_ptr<Cluster>> spare;
    std::unordered_map<int, Detour> detours;  // by the instruction that asks
    u64 steps = 0;
    std::vector<u64> log, addresses;  // see log.h; those of the instruction that runs
    std::chrono::steady_clock::time_point end;

    explicit Machine(const Program& p, const Config& c) : program(p), config(c), data(p.data) {}
    void run();
    void check_time() const;
    int warps_of_block() const { return (int)((config.block[0] * config.block[1] * config.block[2] + LANES - 1) / LANES); }
};

// One instruction of one warp, by the lanes of `mask`.
struct Step {
    Machine& m;
    Cluster& c;
    Warp& w;
    const Instruction& i;
    u32 mask;
    int pc;

    Block& block() const { return c.blocks[w.rank]; }
    const Operand& operand(int k) const { return i.x[k]; }
    const Operand& source(int k) const { return i.x[i.results + k]; }
    int sources() const { return i.count - i.results; }

    template <class T>
    T* lanes(const Operand& x) const {
        return reinterpret_cast<T*>(w.file + m.program.offsets[x.slot]);
    }
    template <class T>
    T* out(int k = 0) const {
        return lanes<T>(operand(k));
    }
    template <class T>
    const T* in(int k) const {
        return lanes<T>(source(k));
    }
    u64 wide(const Operand& x, int lane) const { return x.bytes == 8 ? lanes<u64>(x)[lane] : lanes<u32>(x)[lane]; }
    void set_wide(const Operand& x, int lane, u64 value) const {
        if (x.bytes == 8)
            lanes<u64>(x)[lane] = value;
        else
            lanes<u32>(x)[lane] = (u32)value;
    }
    u64 address(int k, int lane) const { return wide(source(k), lane) + (s64)source(k).offset; }
    u32 predicate(int k) const {
        const u32 value = w.predicates[source(k).slot];
        return source(k).negated ? ~value : value;
    }
    void set_predicate(int k, u32 value, u32 undefined = 0) const {
        const int slot = operand(k).slot;
        if (slot < 0) return;
        w.predicates[slot] = (w.predicates[slot] & ~mask) | (value & mask);
        w.predicates_undefined[slot] = (w.predicates_undefined[slot] & ~mask) | (undefined & mask);
    }
    u32 undefined_of(const Operand& x) const {
        if (x.slot < 0) return 0;
        return x.bytes ? w.undefined[x.slot] : w.predicates_undefined[x.slot];
    }
    int origin_of(const Operand& x) const { return x.bytes ? w.origin[x.slot] : w.predicates_origin[x.slot]; }
    // marks lanes of a result; `from` is the instruction whose value was not there
    void set_undefined(const Operand& x, u32 lanes, int from) const {
        if (x.slot < 0) return;
        u32& marks = x.bytes ? w.undefined[x.slot] : w.predicates_undefined[x.slot];
        marks = (marks & ~mask) | (lanes & mask);
        if (lanes & mask) (x.bytes ? w.origin : w.predicates_origin)[x.slot] = from;
    }
    // the value that all lanes have; a fault if they differ
    u32 uniform(int k, const char* what) const;
    // are all lanes of `mask_needed` that are alive here?
    u64 uniform_wide(int k, const char* what) const;
    bool together(u32 needed) const { return (mask & needed & w.alive) == (needed & w.alive); }

    [[noreturn]] void fault(FaultKind kind, std::string said, std::vector<Remark> remarks = {}) const {
        throw Fault{kind, std::move(said), pc, std::move(remarks)};
    }
    [[noreturn]] void misuse(std::string said, std::vector<Remark> remarks = {}) const {
        fault(FaultKind::misuse, std::move(said), std::move(remarks));
    }
    [[noreturn]] void race(std::string said, std::vector<Remark> remarks = {}) const {
        fault(FaultKind::race, std::move(said), std::move(remarks));
    }
    void happened() const { ++c.progress; }
};

template <class D, class F>
inline void assign(D* results, u32 mask, F f) {
    if (mask == ALL) {
        for (int lane = 0; lane < LANES; ++lane) results[lane] = f(lane);
    } else {
        each_lane(mask, [&](int lane) { results[lane] = f(lane); });
    }
}
}  // namespace ptx
