// mbarriers: a phase ends when its arrivals have come and its bytes have landed. Those who wait for it know what those who arrived
// knew.
#include "order.h"
#include "rows.h"

namespace ptx {
u32 mbarrier_key(Place p) {
    return p.rank << RANK_SHIFT | p.at;
}

Mbarrier& mbarrier_at(Step& s, u32 key) {
    const auto found = s.c.mbarriers.find(key);
    if (found == s.c.mbarriers.end()) s.misuse("a barrier is used that nothing initialised");
    const Mbarrier& b = found->second;
    if (b.count == 0) s.misuse("a barrier is used whose phases take no arrivals", {{b.init_pc, "the initialisation"}});
    return found->second;
}

void fence_mbarriers(Step& s) {
    for (auto& [key, b] : s.c.mbarriers) b.fenced |= b.init_warp == s.w.id;
}

void end_phase_if_complete(Machine&, Cluster& c, Mbarrier& b, int) {
    if (b.pending != 0 || b.bytes != 0) return;
    ++b.phase;
    b.pending = b.count;
    b.gathering.at[FIRST_MBARRIER + b.id] = (u32)b.phase;
    b.done.join(b.gathering);
    ++c.progress;
}

static u32 key_of(Step& s, int source, int lane) {
    const u64 address = s.address(source, lane);
    if (address % 8) s.misuse("a barrier is not aligned to 8 bytes");
    if (address >> SPACE_SHIFT && address >> SPACE_SHIFT != (u64)Space::shared) s.misuse("a barrier lies in shared memory");
    return mbarrier_key(shared_place(s, (u32)address, 8, "barrier"));
}

// The barrier for a use by a lane, which must come after its initialisation.
static Mbarrier& used(Step& s, u32 key, int lane) {
    Mbarrier& b = mbarrier_at(s, key);
    const Place p = {key >> RANK_SHIFT, key & SHARED_BITS};
    if (!knows_write(s, p, lane))
        s.race("a barrier is used without a synchronisation after its initialisation", {{b.init_pc, "the initialisation"}});
    return b;
}

static Next init(Step& s) {
    each_lane(s.mask, [&](int l) {
        const u32 key = key_of(s, 0, l), count = s.in<u32>(1)[l];
        const Place p = {key >> RANK_SHIFT, key & SHARED_BITS};
        if (s.c.mbarriers.count(key)) s.misuse("a barrier is initialised twice", {{s.c.mbarriers[key].init_pc, "first"}});
        if (count >= 1u << 20) s.misuse("a barrier is initialised with more arrivals than it can count");
        if (s.c.mbarriers.size() == MAX_MBARRIERS) s.fault(FaultKind::launch, "more barriers than the emulator supports");
        check_shared_write(s, p, 8, l);
        note_shared_write(s, p, 8, l, false);
        Mbarrier& b = s.c.mbarriers[key];
        b.id = (int)s.c.mbarriers.size() - 1;
        b.count = count;
        b.pending = count;
        b.init_pc = s.pc;
        b.init_warp = s.w.id;
    });
    return Next::go_on;
}

static Next invalidate(Step& s) {
    each_lane(s.mask, [&](int l) {
        Mbarrier& b = used(s, key_of(s, 0, l), l);
        b.init_warp = -1;
    });
    return Next::go_on;
}

static Next init_fence(Step& s) {
    fence_mbarriers(s);
    return Next::go_on;
}

static void take_arrivals(Step& s, Mbarrier& b, u32 lanes, s64 count) {
    if (b.pending < count) s.misuse("one arrival too many in this phase of a barrier", {{b.init_pc, "its count is set"}});
    b.gathering.join(release(s, lanes));
    b.pending -= count;
}

// row: a expects bytes, b takes a count. Lanes that arrive at one barrier do so as one.
static Next arrive(Step& s) {
    u32 keys[LANES];
    each_lane(s.mask, [&](int l) { keys[l] = key_of(s, 0, l); });
    for (u32 rest = s.mask; rest;) {
        const u32 key = keys[first_lane(rest)];
        u32 same = 0;
        s64 count = 0, bytes = 0;
        each_lane(rest, [&](int l) {
            if (keys[l] != key) return;
            same |= 1u << l;
            count += s.i.row->b && s.sources() > 1 ? (s64)s.in<u32>(1)[l] : 1;
            if (s.i.row->a) bytes += s.in<u32>(1)[l];
        });
        rest &= ~same;
        Mbarrier* b = nullptr;
        each_lane(same, [&](int l) { b = &used(s, key, l); });
        if (s.i.results && s.operand(0).slot >= 0) each_lane(same, [&](int l) { s.out<u64>()[l] = (u64)b->phase; });
        b->bytes += bytes;
        take_arrivals(s, *b, same, count);
        end_phase_if_complete(s.m, s.c, *b, s.pc);
    }
    s.happened();
    return Next::go_on;
}

// row: a +1 expects, -1 completes
static Next change_bytes(Step& s) {
    each_lane(s.mask, [&](int l) {
        Mbarrier& b = used(s, key_of(s, 0, l), l);
        b.bytes += (s64)s.in<u32>(1)[l] * s.i.row->a;
        end_phase_if_complete(s.m, s.c, b, s.pc);
    });
    s.happened();
    return Next::go_on;
}

// row: a by parity, else by the state that an arrival gave; b returns at once
static Next test(Step& s) {
    u32 ended = 0;
    each_lane(s.mask, [&](int l) {
        const u32 key = key_of(s, 0, l);
        Mbarrier& b = used(s, key, l);
        const bool over = s.i.row->a ? (u32)(b.phase & 1) != (s.in<u32>(1)[l] & 1) : (u64)b.phase > s.in<u64>(1)[l];
        PhaseWait& waits = s.w.phase_wait[l];
        const bool again = waits.phase >= 0 && waits.key == key && waits.pc == s.pc;
        if (again && b.phase > waits.phase + 1) s.misuse("a barrier went on by two phases while this wait had not returned");
        if (!over) {
            waits = {key, s.pc, b.phase};
            s.w.reason = {Reason::PHASE, key, 0};
            return;
        }
        waits = {};
        ended |= 1u << l;
    });
    // lanes that wait for one barrier know the same
    u32 first_key = ended ? key_of(s, 0, first_lane(ended)) : 0, same = 0;
    each_lane(ended, [&](int l) { same |= (u32)(key_of(s, 0, l) == first_key) << l; });
    if (same) acquire(s, same, mbarrier_at(s, first_key).done);
    each_lane(ended & ~same, [&](int l) { acquire(s, 1u << l, mbarrier_at(s, key_of(s, 0, l)).done); });
    s.set_predicate(0, ended);
    if (ended != s.mask) s.w.spins = true;
    return Next::go_on;
}

void add_mbarrier_rows(Rows& rows) {
    const auto set = [](Row& row, int a, int b) {
        row.a = a;
        row.b = b;
    };
    for (const char* space : {"", ".shared", ".shared::cta"}) {
        add(rows, std::string("mbarrier.init") + space + ".b64", "= A r", "a phase takes b arrivals", init, Undefined::strict);
        add(rows, std::string("mbarrier.inval") + space + ".b64", "= A", "the barrier's use ends", invalidate, Undefined::strict);
        for (const char* sem : {"", ".acquire.cta", ".acquire.cluster"}) {
            for (const char* name : {"mbarrier.try_wait", "mbarrier.test_wait"}) {
                set(add(rows, std::string(name) + ".parity" + sem + space + ".b64", "p = A r r?",
                        "whether the phase of parity b has ended", test, Undefined::strict),
                    1, 0);
                set(add(rows, std::string(name) + sem + space + ".b64", "p = A R r?", "whether the phase of the state b has ended",
                        test, Undefined::strict),
                    0, 0);
            }
        }
    }
    for (const char* space : {"", ".shared", ".shared::cta", ".shared::cluster"}) {
        for (const char* sem : {"", ".release.cta", ".release.cluster"}) {
            const std::string tail = std::string(sem) + space + ".b64";
            set(add(rows, "mbarrier.arrive" + tail, "R = A r?", "b arrivals (one) a thread; releases memory", arrive,
                    Undefined::strict),
                0, 1);
            set(add(rows, "mbarrier.arrive.expect_tx" + tail, "R = A r", "one arrival; the phase also waits for b bytes", arrive,
                    Undefined::strict),
                1, 0);
        }
        for (const char* sem : {"", ".relaxed.cta", ".relaxed.cluster"}) {
            const std::string tail = std::string(sem) + space + ".b64";
            set(add(rows, "mbarrier.expect_tx" + tail, "= A r", "the phase also waits for b bytes", change_bytes,
                    Undefined::strict),
                1, 0);
            set(add(rows, "mbarrier.complete_tx" + tail, "= A r", "b bytes have come", change_bytes, Undefined::strict), -1, 0);
        }
    }
    add(rows, "fence.mbarrier_init.release.cluster", "=", "the async proxy sees the barriers that the warp initialised",
        init_fence);
}
}  // namespace ptx
