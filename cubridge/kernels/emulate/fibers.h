// The threads of one block as fibers, their clocks and their scheduler.
//
// Order is judged by vector clocks, one component per warp and per mbarrier: an access is ordered after another if some chain of
// synchronisation carries the other's component. So a missing wait is found in any schedule, not only in one where it bites. On
// top of it the schedule is hostile: a warp runs as far as it can before another starts, and asynchronous copies land only when
// nothing else can run (schedule 0), or all is drawn from a seed.
#pragma once
#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#include "emulate/calls.h"
#include "emulate/fault.h"

namespace emu {
constexpr int WARP = 32, WARPGROUP = 128, MAX_WARPS = 32, MAX_BARRIERS = 64;
constexpr int COMPONENTS = MAX_WARPS + MAX_BARRIERS;

struct Clock {
    u32 at[COMPONENTS] = {};
    void join(const Clock& other) {
        for (int x = 0; x < COMPONENTS; ++x) at[x] = std::max(at[x], other.at[x]);
    }
};

struct CopyOf16 {
    void* dst;
    unsigned char data[16];
    Place place;
};

struct Thread {
    int index = 0;
    bool done = false, started = false;
    const long* counter = nullptr;  // waits until *counter >= target; null: may run
    long target = 0;
    Place place = nullptr;          // its last call into the runtime
    int registers = 0;
    bool wgmma_fenced = false;
    std::vector<CopyOf16> open_copies;
    std::vector<std::vector<CopyOf16>> copy_groups;
    ucontext_t start;
    jmp_buf context;

    int warp() const { return index / WARP; }
    int lane() const { return index % WARP; }
    bool runnable() const { return !done && (!counter || *counter >= target); }
};

struct Warp {
    Clock clock;
    int arrived = 0;      // lanes at the open warp operation
    long generation = 0;  // warp operations completed
    union Message {
        u32 value;
        struct { u32* registers[4]; u32 address; } matrix;
        struct { float* d[4]; const u32* a; u32 b[2]; } product;
    } messages[2][WARP];
};

inline std::vector<Thread> threads;
inline std::vector<Warp> warps;
inline Thread* self = nullptr;
inline jmp_buf scheduler_context;
inline void (*land_copies)() = nullptr;        // lands what is on its way
inline bool (*copies_pending)() = nullptr;
inline void (*describe_wait)(const Thread&, char*, size_t) = nullptr;

// Faults of the call that this thread is in.
[[noreturn]] inline void race(const char* reason, Place other = nullptr, const char* other_text = "") {
    fault(Fault::race, reason, self->place, other, other_text);
}
[[noreturn]] inline void misuse(const char* reason, Place other = nullptr, const char* other_text = "") {
    fault(Fault::misuse, reason, self->place, other, other_text);
}

// First statement of every call from the kernel text.
#define EMU_ENTER() (self->place = __builtin_return_address(0))

inline Warp& own_warp() { return warps[self->warp()]; }
inline Clock& own_clock() { return own_warp().clock; }

// What this warp did so far, for others to acquire; what it does from now on is later.
inline Clock release_clock() {
    const Clock released = own_clock();
    own_clock().at[self->warp()]++;
    return released;
}

__attribute__((noinline)) inline void suspend() {
    if (_setjmp(self->context) == 0) _longjmp(scheduler_context, 1);
}

inline void wait_until(const long& counter, long target) {
    while (counter < target) {
        self->counter = &counter;
        self->target = target;
        suspend();
    }
    self->counter = nullptr;
}

// All 32 lanes meet; the last to come runs `work` for all of them.
template <typename Work> void warp_meet(Work work) {
    Warp& warp = own_warp();
    if (++warp.arrived == WARP) {
        warp.arrived = 0;
        work();
        warp.generation++;
    } else {
        wait_until(warp.generation, warp.generation + 1);
    }
}

// The messages of the open warp operation. Two buffers: a lane may write the next operation's before another has read this one's.
inline Warp::Message (&warp_messages())[WARP] { return own_warp().messages[own_warp().generation & 1]; }

// ---- stacks ----
constexpr size_t STACK_BYTES = 256 << 10, GUARD_BYTES = 64 << 10;
inline unsigned char* stacks = nullptr;

inline void reserve_stacks(int count) {
    if (stacks) return;
    constexpr int FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    stacks = static_cast<unsigned char*>(mmap(nullptr, count * STACK_BYTES, PROT_READ | PROT_WRITE, FLAGS, -1, 0));
    if (stacks == MAP_FAILED) fault(Fault::launch, "no memory for the stacks of the block's threads", nullptr);
    for (int x = 0; x < count; ++x) mprotect(stacks + x * STACK_BYTES, GUARD_BYTES, PROT_NONE);
}

inline bool in_stack_guard(const void* address) {
    const auto at = static_cast<const unsigned char*>(address) - stacks;
    return stacks && at >= 0 && at < (long)(threads.size() * STACK_BYTES) && at % STACK_BYTES < GUARD_BYTES;
}

// ---- scheduler ----
inline void (*thread_main)() = nullptr;

inline void run_thread() {
    thread_main();
    self->done = true;
    suspend();
}

__attribute__((noinline)) inline void resume(Thread& thread) {
    self = &thread;
    if (_setjmp(scheduler_context) != 0) return;
    if (thread.started) _longjmp(thread.context, 1);
    thread.started = true;
    setcontext(&thread.start);
}

inline void make_threads(int count) {
    reserve_stacks(count);
    threads.assign(count, Thread());
    warps.assign(count / WARP, Warp());
    for (int x = 0; x < count; ++x) {
        Thread& thread = threads[x];
        thread.index = x;
        getcontext(&thread.start);
        thread.start.uc_stack.ss_sp = stacks + x * STACK_BYTES + GUARD_BYTES;
        thread.start.uc_stack.ss_size = STACK_BYTES - GUARD_BYTES;
        makecontext(&thread.start, run_thread, 0);
    }
    for (size_t w = 0; w < warps.size(); ++w) warps[w].clock.at[w] = 1;  // epoch 0 is "before the block"
}

// Every lane that can runs until it waits. True if one ran.
inline bool run_warp(int warp, int turn) {
    bool ran = false;
    for (int x = 0; x < WARP; ++x) {
        Thread& thread = threads[warp * WARP + (x * 13 + turn) % WARP];
        if (!thread.runnable()) continue;
        resume(thread);
        ran = true;
    }
    return ran;
}

[[noreturn]] inline void report_deadlock() {
    print_fault(Fault::deadlock, "no thread can go on");
    std::vector<bool> told(threads.size());
    for (const Thread& first : threads) {
        if (first.done || told[first.index]) continue;
        int count = 0;
        for (const Thread& other : threads) {
            if (other.done || other.place != first.place) continue;
            told[other.index] = true;
            count++;
        }
        char text[256], state[128] = "";
        describe_wait(first, state, sizeof state);
        snprintf(text, sizeof text, "%d threads from thread %d on wait here%s", count, first.index, state);
        print_place(first.place, text);
    }
    stop(Fault::deadlock);
}

struct Random {
    u64 state;
    u32 below(u32 n) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (u32)(state >> 32) % n;
    }
};

inline void run_threads(int schedule) {
    const int count = (int)warps.size();
    Random random{0x9e3779b97f4a7c15ull * (u64)(schedule + 1)};
    for (int turn = 0;; ++turn) {
        bool ran = false;
        for (int x = 0; x < count; ++x) {
            if (schedule == 0) {
                while (run_warp((x + turn) % count, turn)) ran = true;
            } else {
                ran |= run_warp((int)random.below((u32)count), (int)random.below(WARP));
                if (copies_pending() && random.below(4) == 0) land_copies();
            }
        }
        if (std::all_of(threads.begin(), threads.end(), [](const Thread& t) { return t.done; })) return;
        if (ran || std::any_of(threads.begin(), threads.end(), [](const Thread& t) { return t.runnable(); })) continue;
        if (!copies_pending()) report_deadlock();
        land_copies();
    }
}
}  // namespace emu
