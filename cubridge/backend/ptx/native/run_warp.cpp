// One warp: which of its lanes run next, and the checks that every instruction shares.
#include "log.h"
#include "order.h"
#include "schedule.h"

namespace ptx {
constexpr int TURN = 20000;  // instructions after which another warp has its turn

u32 Step::uniform(int k, const char* what) const {
    return (u32)uniform_wide(k, what);
}

u64 Step::uniform_wide(int k, const char* what) const {
    const u64 value = wide(source(k), first_lane(mask));
    each_lane(mask, [&](int l) {
        if (wide(source(k), l) != value) misuse(text("%s differs between the lanes of a warp", what));
    });
    return value;
}

// Lanes at one instruction run as one; the ones furthest behind first, those that wait last.
static Split* pick(Warp& w, u64 progress) {
    std::vector<Split>& all = w.splits;
    if (all.size() > 1) {
        std::sort(all.begin(), all.end(), [](const Split& a, const Split& b) { return a.pc < b.pc; });
        for (size_t x = 0; x + 1 < all.size();) {
            if (all[x].pc != all[x + 1].pc) {
                ++x;
                continue;
            }
            all[x].mask |= all[x + 1].mask;
            all[x].gathering = false;
            all[x].stalled = NEVER;
            all.erase(all.begin() + (long)x + 1);
        }
    }
    for (Split& s : all) {
        if (!s.gathering && s.stalled != progress) return &s;
    }
    return nullptr;
}

static void check_gathering(const Machine& m, const Warp& w) {
    std::vector<Remark> remarks;
    for (const Split& s : w.splits) {
        if (!s.gathering) return;
        remarks.push_back({s.pc, text("%d threads from thread %d on wait here for the other lanes of their warp",
                                      count_lanes(s.mask), w.index * LANES + first_lane(s.mask))});
    }
    (void)m;
    throw Fault{FaultKind::deadlock, "no thread can go on", w.splits[0].pc, std::move(remarks)};
}

// Registers of an unfinished wgmma may only be handed on.
static void check_in_flight(Step& s) {
    Warp& w = s.w;
    if (s.i.row->touch == Touch::is_wgmma) return;
    if (s.i.row->touch == Touch::uses) {
        for (int k = 0; k < s.sources(); ++k) {
            const Operand& x = s.source(k);
            if (x.bytes && w.accumulates[x.slot] > w.wgmma_finished)
                s.race("an accumulator of an unfinished wgmma is read before its wait");
        }
    }
    for (int k = 0; k < s.i.results; ++k) {
        const Operand& x = s.operand(k);
        if (!x.bytes || x.slot < 0) continue;
        if (w.accumulates[x.slot] > w.wgmma_finished) s.race("an accumulator of an unfinished wgmma is written before its wait");
        if (w.frozen[x.slot] > w.wgmma_finished) s.race("a register operand of a wgmma is overwritten before its wait");
    }
}

static void note_registers(Step& s) {
    Warp& w = s.w;
    const Row& row = *s.i.row;
    if (row.touch == Touch::is_wgmma) return;
    for (int k = 0; k < s.i.results; ++k) {
        const Operand& x = s.operand(k);
        if (!x.bytes || x.slot < 0) continue;
        const bool moves = row.touch == Touch::moves;
        w.written[x.slot] = moves ? w.written[s.source(0).slot] : w.wgmma_fences;
        w.accumulates[x.slot] = moves ? w.accumulates[s.source(0).slot] : 0;
    }
}

static Next run_instruction(Step& s) {
    const Row& row = *s.i.row;
    if (s.w.wgmma_issued > s.w.wgmma_finished) check_in_flight(s);
    if (row.undefined == Undefined::own) {
        const Next next = row.run(s);
        if (next == Next::go_on) note_registers(s);
        return next;
    }
    u32 undefined = 0;
    int from = -1;
    for (int k = 0; k < s.sources(); ++k) {
        const u32 marks = s.undefined_of(s.source(k)) & s.mask;
        if (marks && !undefined) from = s.origin_of(s.source(k));
        undefined |= marks;
    }
    if (undefined && row.undefined == Undefined::strict)
        undefined_fault(s, text("an operand of `%s`", row.name.c_str()).c_str(), from);
    const Next next = row.run(s);
    if (next != Next::go_on) return next;
    for (int k = 0; k < s.i.results; ++k) s.set_undefined(s.operand(k), undefined, from);
    note_registers(s);
    return next;
}

// Lanes whose condition nothing wrote go on where its ways meet. What either may write is unknown to them.
static void leave_unknown(Machine& m, Cluster& c, Warp& w, const Instruction& i, Split& at) {
    const u32 unknown = w.predicates_undefined[i.guard] & at.mask;
    Step s{m, c, w, i, unknown, at.pc};
    const int from = w.predicates_origin[i.guard];
    const Detour& way = detour_of(m, at.pc);
    if (way.join < 0) undefined_fault(s, "a condition", from);
    for (const Operand& x : way.results) s.set_undefined(x, unknown, from);
    at.mask &= ~unknown;
    if (at.mask)
        w.splits.push_back({way.join, unknown});
    else
        at = {way.join, unknown};
}

static u32 guarded(const Warp& w, const Instruction& i, const Split& at) {
    return at.mask & (i.guard < 0 ? ALL : i.negated ? ~w.predicates[i.guard] : w.predicates[i.guard]);
}

static void branch(Warp& w, Split& at, u32 taken, int target) {
    if (taken == at.mask) {
        at.pc = target;
    } else if (!taken) {
        ++at.pc;
    } else {
        const Split rest{at.pc + 1, at.mask & ~taken};
        at = {target, taken};
        w.splits.push_back(rest);
    }
}

static void end_lanes(Cluster& c, Warp& w, Split& at, u32 lanes) {
    w.alive &= ~lanes;
    each_lane(lanes & w.apart, [&](int l) { w.own[l].reset(); });
    w.apart &= ~lanes;
    at.mask &= ~lanes;
    ++at.pc;
    ++c.progress;
    if (!at.mask) w.splits.erase(w.splits.begin() + (&at - w.splits.data()));
    // collectives may be complete without them
    for (Split& s : w.splits) s.gathering = false;
    if (w.alive) return;
    int alive = 0;
    for (const auto& other : c.warps) alive += other->rank == w.rank && other->alive;
    for (auto& round : c.blocks[w.rank].named) {
        if (!round || !round->whole) continue;
        round->expected = alive * LANES;
        if (round->arrived < round->expected) continue;
        round->complete = true;
        round.reset();
    }
}

void run_warp(Machine& m, Cluster& c, Warp& w) {
    for (int turn = 0; turn < TURN && !w.splits.empty(); ++turn) {
        Split* at = pick(w, c.progress);
        if (!at) {
            check_gathering(m, w);
            return;
        }
        if ((++w.steps & 4095) == 0) m.check_time();
        const Instruction& i = m.program.code[at->pc];
        if (i.guard >= 0 && (w.predicates_undefined[i.guard] & at->mask)) {
            leave_unknown(m, c, w, i, *at);
            continue;
        }
        const u32 mask = guarded(w, i, *at);
        const bool traced = is_traced(m, c, w);
        if (i.target >= 0) {
            if (traced) log_branch(m, w, *at, mask);
            branch(w, *at, mask, i.target);
            continue;
        }
        if (!mask) {
            ++at->pc;
            continue;
        }
        Step s{m, c, w, i, mask, at->pc};
        if (traced) keep_addresses(s);
        switch (run_instruction(s)) {
            case Next::go_on:
                if (traced) log_step(s);
                ++at->pc;
                if (w.spins) at->stalled = c.progress;
                w.spins = false;
                break;
            case Next::wait: at->stalled = c.progress; break;
            case Next::gather: at->gathering = true; break;
            case Next::leave: end_lanes(c, w, *at, mask); break;
        }
    }
}

void Machine::check_time() const {
    if (std::chrono::steady_clock::now() > end)
        throw Fault{FaultKind::time, text("the kernel does not end within %g s", config.seconds)};
}
}  // namespace ptx
