// Barriers that count threads: of the block, named, of the cluster. And the pool of registers, which makes warps wait too.
#include "order.h"
#include "rows.h"

namespace ptx {
static int threads_alive(Step& s) {
    int warps = 0;
    for (const auto& w : s.c.warps) warps += w->rank == s.w.rank && w->alive;
    return warps * LANES;
}

static void complete(Step& s, Round& round) {
    round.complete = true;
    s.happened();
}

// Lanes arrive; gives the round that they are in.
static std::shared_ptr<Round> arrive(Step& s, u32 id, u32 lanes, bool aligned, bool waits) {
    std::shared_ptr<Round>& current = s.block().named[id];
    const bool whole = s.sources() < 2;
    const int expected = whole ? threads_alive(s) : (int)s.uniform(1, "a count of threads");
    if (expected % LANES || expected <= 0) s.misuse("a named barrier counts whole warps");
    if (!current) {
        current = std::make_shared<Round>();
        current->pc = s.pc;
        current->expected = expected;
        current->whole = whole;
    }
    Round& round = *current;
    if (round.expected != expected && !whole)
        s.misuse("a named barrier is used with two thread counts in one phase", {{round.pc, "the other"}});
    const std::shared_ptr<Round> joined = current;
    round.clock.join(release(s, lanes));
    round.arrived += aligned ? LANES : count_lanes(lanes);
    round.waiting += waits;
    if (round.arrived > round.expected) s.misuse("more threads arrive at a barrier than it counts", {{round.pc, "the first"}});
    if (round.arrived == round.expected) {
        if (!round.waiting)
            s.misuse("a phase of a named barrier ends by arrivals alone: nobody waits on it", {{round.pc, "the first"}});
        complete(s, round);
        current.reset();
    }
    return joined;
}

// row: a waits, b the whole warp at once
static Next barrier(Step& s) {
    const bool waits = s.i.row->a, aligned = s.i.row->b;
    if (aligned && !s.together(ALL)) return Next::gather;
    const u32 id = s.uniform(0, "the number of a barrier");
    if (id > 15) s.misuse("a named barrier has a number from 0 to 15");
    u32 begun = 0;
    each_lane(s.mask, [&](int l) { begun |= (u32)(s.w.pending[l].pc == s.pc) << l; });
    if (const u32 fresh = s.mask & ~begun) {
        const std::shared_ptr<Round> round = arrive(s, id, fresh, aligned, waits);
        if (!waits) return Next::go_on;
        each_lane(fresh, [&](int l) { s.w.pending[l] = {s.pc, round}; });
    }
    bool all = true;
    each_lane(s.mask, [&](int l) { all &= s.w.pending[l].round->complete; });
    if (!all) return Next::wait;
    acquire(s, s.mask, s.w.pending[first_lane(s.mask)].round->clock);
    each_lane(s.mask, [&](int l) { s.w.pending[l] = {}; });
    return Next::go_on;
}

// row: a releases memory
static Next cluster_arrive(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    if (s.w.cluster_round) s.misuse("a warp arrives twice at the barrier of its cluster");
    if (!s.c.cluster_round) s.c.cluster_round = std::make_shared<Round>();
    s.w.cluster_round = s.c.cluster_round;
    Round& round = *s.c.cluster_round;
    if (s.i.row->a) round.clock.join(release(s, s.mask));
    round.arrived += 1;
    if (round.arrived == (int)s.c.warps.size()) {
        complete(s, round);
        s.c.cluster_round.reset();
    }
    return Next::go_on;
}

static Next cluster_wait(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    if (!s.w.cluster_round) s.misuse("a warp waits at the barrier of its cluster without arriving");
    if (!s.w.cluster_round->complete) return Next::wait;
    acquire(s, s.mask, s.w.cluster_round->clock);
    s.w.cluster_round.reset();
    return Next::go_on;
}

static u32 register_count(Step& s) {
    const u32 count = s.uniform(0, "a register budget");
    if (count % 8 || count < 24 || count > 256) s.misuse("a register budget is a multiple of 8 from 24 to 256");
    return count;
}

static Next release_registers(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    const int count = (int)register_count(s);
    if (count > s.w.registers) s.misuse("more registers are kept than the thread holds");
    s.block().free_registers += (long)(s.w.registers - count) * LANES;
    s.w.registers = count;
    s.block().released_pc = s.pc;
    s.happened();
    return Next::go_on;
}

static Next take_registers(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    const int count = (int)register_count(s);
    const long need = (long)(count - s.w.registers) * LANES;
    if (need < 0) s.misuse("fewer registers are taken than the thread holds");
    if (s.block().free_registers < need) {
        s.w.reason = {Reason::REGISTERS, 0, need};
        return Next::wait;
    }
    s.block().free_registers -= need;
    s.w.registers = count;
    s.block().registers_taken = true;
    return Next::go_on;
}

void add_barrier_rows(Rows& rows) {
    const auto set = [](Row& row, int a, int b) {
        row.a = a;
        row.b = b;
    };
    for (const char* cta : {"", ".cta"}) {
        const std::string old = std::string("bar") + cta, now = std::string("barrier") + cta;
        for (const std::string& name : {old + ".sync", now + ".sync.aligned"})
            set(add(rows, name, "= r r?", "b threads (all of the block) arrive and wait; orders memory", barrier,
                    Undefined::strict),
                1, 1);
        for (const std::string& name : {old + ".arrive", now + ".arrive.aligned"})
            set(add(rows, name, "= r r", "arrives at a barrier of b threads and goes on; orders memory", barrier,
                    Undefined::strict),
                0, 1);
        set(add(rows, now + ".sync", "= r r?", "b threads (all of the block) arrive and wait, lane by lane; orders memory", barrier,
                Undefined::strict),
            1, 0);
        set(add(rows, now + ".arrive", "= r r", "arrives at a barrier of b threads and goes on, lane by lane; orders memory",
                barrier, Undefined::strict),
            0, 0);
    }
    for (const char* mode : {"", ".release"})
        set(add(rows, std::string("barrier.cluster.arrive") + mode + ".aligned", "=",
                "arrives at the barrier of the cluster; releases memory", cluster_arrive),
            1, 0);
    set(add(rows, "barrier.cluster.arrive.relaxed.aligned", "=", "arrives at the barrier of the cluster", cluster_arrive), 0, 0);
    for (const char* mode : {"", ".acquire"})
        add(rows, std::string("barrier.cluster.wait") + mode + ".aligned", "=",
            "waits for all threads of the cluster; acquires memory", cluster_wait);
    add(rows, "setmaxnreg.dec.sync.aligned.u32", "= i", "the budget of the warp's threads becomes a; the others are free",
        release_registers);
    add(rows, "setmaxnreg.inc.sync.aligned.u32", "= i", "the budget of the warp's threads becomes a, once so many are free",
        take_registers);
}
}  // namespace ptx
