// Where threads meet: warp operations, block_sync, named barriers, mbarriers, and the pool of registers.
#pragma once
#include "emulate/shared_memory.h"

namespace emu {
// ---- warp operations ----
u32 warp_shuffle_xor(u32 value, int lanes) {
    EMU_ENTER();
    auto& messages = warp_messages();
    messages[self->lane()].value = value;
    warp_meet([] {});
    return messages[self->lane() ^ lanes].value;
}

bool warp_any(bool value) {
    EMU_ENTER();
    auto& messages = warp_messages();
    messages[self->lane()].value = value;
    warp_meet([] {});
    return std::any_of(messages, messages + WARP, [](const Warp::Message& m) { return m.value != 0; });
}

int warp_uniform(int value) {
    EMU_ENTER();
    auto& messages = warp_messages();
    messages[self->lane()].value = (u32)value;
    warp_meet([&messages] {
        for (const auto& m : messages) {
            if (m.value != messages[0].value) misuse("a value said to be uniform differs between the lanes of a warp");
        }
    });
    return value;
}

// ---- block_sync and named barriers ----
struct Meeting {
    int arrived = 0, waiting = 0, expected = 0;
    long generation = 0;
    Clock gathering, published;
    Place place = nullptr;  // of the first arrival

    void complete() {
        arrived = waiting = 0;
        published = gathering;
        generation++;
    }
};
inline Meeting block_meeting, named_meetings[16], warpgroup_meetings[MAX_WARPS / 4];

void block_sync() {
    EMU_ENTER();
    Meeting& m = block_meeting;
    m.gathering.join(release_clock());
    const long generation = m.generation;
    if (++m.arrived == (int)threads.size()) {
        m.complete();
    } else {
        wait_until(m.generation, generation + 1);
    }
    own_clock().join(m.published);
}

inline Meeting& arrive_named(int id, int count, bool waits) {
    if (id < 1 || id > 15) misuse("a named barrier has a number from 1 to 15");
    if (count % WARP || count <= 0) misuse("a named barrier counts whole warps");
    Meeting& m = named_meetings[id];
    if (m.arrived == 0) {
        m.expected = count;
        m.place = self->place;
    }
    if (m.expected != count) misuse("a named barrier is used with two thread counts in one phase", m.place, "the other");
    m.gathering.join(release_clock());
    m.waiting += waits;
    if (++m.arrived == count) {
        if (m.waiting == 0) misuse("a phase of a named barrier ends by arrivals alone: nobody waits on it", m.place, "the first");
        m.complete();
    }
    return m;
}

void named_arrive(int id, int count) {
    EMU_ENTER();
    arrive_named(id, count, false);
}

void named_sync(int id, int count) {
    EMU_ENTER();
    const long generation = id >= 1 && id <= 15 ? named_meetings[id].generation : 0;
    Meeting& m = arrive_named(id, count, true);
    wait_until(m.generation, generation + 1);
    own_clock().join(m.published);
}

// ---- mbarriers ----
struct TensorCopy;
struct Mbarrier {
    int id = 0, count = 0, pending = 0;
    long bytes_due = 0, completed = 0;  // bytes that copies of this phase still owe; phases that have ended
    Clock gathering, published;
    int init_warp = 0;
    u32 init_epoch = 0;
    bool visible_to_copies = false;     // barrier_init_fence after its initialisation
    std::vector<TensorCopy*> landed;    // copies of the open phase; their data shows when it ends
    Place init_place = nullptr;
};
inline std::vector<Mbarrier> mbarriers;
inline std::vector<signed char> barrier_ids;  // by offset / 8; -1: none
inline void (*show_copies)(Mbarrier&) = nullptr;

inline void reset_meetings() {
    block_meeting = Meeting();
    for (auto& m : named_meetings) m = Meeting();
    for (auto& m : warpgroup_meetings) m = Meeting();
    mbarriers.clear();
    mbarriers.reserve(MAX_BARRIERS);
    barrier_ids.assign(SHARED_MAX / 8, -1);
}

inline Mbarrier& barrier_at(const void* p) {
    const u32 offset = arena_offset(p);
    check_inside(offset, 8, "barrier");
    if (barrier_ids[offset / 8] < 0) misuse("a barrier is used that nothing initialised");
    Mbarrier& b = mbarriers[barrier_ids[offset / 8]];
    if (own_clock().at[b.init_warp] < b.init_epoch) {
        race("a barrier is used without a synchronisation after its initialisation", b.init_place, "the initialisation");
    }
    return b;
}

inline void end_phase_if_due(Mbarrier& b) {
    if (b.pending != 0 || b.bytes_due != 0) return;
    b.completed++;
    b.pending = b.count;
    b.published = b.gathering;
    b.published.at[MAX_WARPS + b.id] = (u32)b.completed;
    show_copies(b);
}

inline void arrive_at(Mbarrier& b) {
    if (b.pending <= 0) misuse("one arrival too many in this phase of a barrier", b.init_place, "its count is set");
    b.gathering.join(release_clock());
    b.pending--;
    end_phase_if_due(b);
}

void barrier_init(void* p, int arrivals) {
    EMU_ENTER();
    const u32 offset = arena_offset(p);
    check_inside(offset, 8, "barrier");
    const int before = barrier_ids[offset / 8];
    if (before >= 0) misuse("a barrier is initialised twice", mbarriers[before].init_place, "first");
    if (arrivals < 1) misuse("a barrier is initialised with less than one arrival");
    if ((int)mbarriers.size() == MAX_BARRIERS) fault(Fault::launch, "more barriers than the emulator supports", self->place);
    Mbarrier b;
    b.id = (int)mbarriers.size();
    b.count = b.pending = arrivals;
    b.init_warp = self->warp();
    b.init_epoch = own_clock().at[b.init_warp];
    b.init_place = self->place;
    barrier_ids[offset / 8] = (signed char)b.id;
    mbarriers.push_back(b);
}

void barrier_init_fence() {
    EMU_ENTER();
    for (auto& b : mbarriers) b.visible_to_copies |= b.init_warp == self->warp();
}

void barrier_arrive(void* p) {
    EMU_ENTER();
    arrive_at(barrier_at(p));
}

void barrier_expect_bytes(void* p, int bytes) {
    EMU_ENTER();
    Mbarrier& b = barrier_at(p);
    b.bytes_due += bytes;
    arrive_at(b);
}

void barrier_wait(void* p, int parity) {
    EMU_ENTER();
    Mbarrier& b = barrier_at(p);
    if ((b.completed & 1) == (parity & 1)) {
        const long target = b.completed + 1;
        wait_until(b.completed, target);
        if (b.completed > target) misuse("a barrier went on by two phases while this wait had not returned");
    }
    own_clock().join(b.published);
}

// ---- registers: a block holds an equal share at launch; setmaxnreg moves them through a pool ----
inline long register_pool = 0;
inline bool registers_were_released = false, registers_were_taken = false;
inline Place release_place = nullptr;

inline void reset_registers() {
    const int share = std::min(255, 65536 / (int)threads.size()) / 8 * 8;
    for (auto& t : threads) t.registers = share;
    register_pool = 0;
    registers_were_released = registers_were_taken = false;
}

inline void check_register_count(int count) {
    if (count % 8 || count < 24 || count > 256) misuse("a register budget is a multiple of 8 from 24 to 256");
}

void registers_release(int count) {
    EMU_ENTER();
    check_register_count(count);
    if (count > self->registers) misuse("more registers are kept than the thread holds");
    register_pool += self->registers - count;
    self->registers = count;
    registers_were_released = true;
    release_place = self->place;
}

void registers_take(int count) {
    EMU_ENTER();
    check_register_count(count);
    const long need = count - self->registers;
    if (need < 0) misuse("fewer registers are taken than the thread holds");
    wait_until(register_pool, need);
    register_pool -= need;
    self->registers = count;
    registers_were_taken = true;
}

inline void check_meetings_at_end() {
    if (registers_were_released && !registers_were_taken) {
        fault(Fault::misuse, "registers are released and nobody takes them", release_place);
    }
}

inline void describe_wait_of(const Thread& thread, char* text, size_t bytes) {
    for (const auto& b : mbarriers) {
        if (thread.counter != &b.completed) continue;
        snprintf(text, bytes, ": the phase lacks %d arrivals and %ld bytes", b.pending, b.bytes_due);
    }
    if (thread.counter == &register_pool) {
        snprintf(text, bytes, ": %ld registers are free, %ld needed", register_pool, thread.target);
    }
    if (thread.counter == &warps[thread.warp()].generation) snprintf(text, bytes, " for the other lanes of their warp");
}
}  // namespace emu
