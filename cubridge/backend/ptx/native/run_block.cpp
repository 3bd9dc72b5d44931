// The warps of a cluster of blocks: whose turn it is, when data lands, how it begins and how it ends.
#include "order.h"
#include "schedule.h"

namespace ptx {
enum ConstantKind : int {
    VALUE,
    TID_X,
    TID_Y,
    TID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    LANE,
    WARP,
    CLUSTER_RANK,
    CLUSTER_X,
    CLUSTER_Y,
    CLUSTER_Z,
    NTID_X = 20,
    NTID_Y,
    NTID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    CLUSTER_SIZE,
    DYNAMIC_SHARED,
    ZERO,
    ONE
};

static u64 constant_of(const Machine& m, const Cluster& c, const Warp& w, const Constant& k, int lane) {
    const u32 thread = (u32)(w.index * LANES + lane), *size = m.config.block;
    const u32* block = c.blocks[w.rank].index;
    switch (k.kind) {
        case TID_X: return thread % size[0];
        case TID_Y: return thread / size[0] % size[1];
        case TID_Z: return thread / size[0] / size[1];
        case CTAID_X: return block[0];
        case CTAID_Y: return block[1];
        case CTAID_Z: return block[2];
        case LANE: return (u64)lane;
        case WARP: return (u64)w.index;
        case CLUSTER_RANK: return (u64)w.rank;
        case CLUSTER_X: return block[0] / m.config.cluster;
        case CLUSTER_Y: return block[1];
        case CLUSTER_Z: return block[2];
        case NTID_X: return size[0];
        case NTID_Y: return size[1];
        case NTID_Z: return size[2];
        case NCTAID_X: return m.config.grid[0];
        case NCTAID_Y: return m.config.grid[1];
        case NCTAID_Z: return m.config.grid[2];
        case CLUSTER_SIZE: return m.config.cluster;
        case DYNAMIC_SHARED: return m.config.shared_bytes;
        case ZERO: return 0;
        case ONE: return 1;
        default: return k.value;
    }
}

static void fill_constants(const Machine& m, const Cluster& c, Warp& w) {
    for (const Constant& k : m.program.constants) {
        u8* at = w.file + m.program.offsets[k.slot];
        for (int lane = 0; lane < LANES; ++lane) {
            const u64 value = constant_of(m, c, w, k, lane);
            memcpy(at + lane * m.program.widths[k.slot], &value, m.program.widths[k.slot]);
        }
        w.undefined[k.slot] = 0;
    }
}

static std::unique_ptr<Warp> new_warp(const Machine& m, std::unique_ptr<Warp> old) {
    auto w = std::make_unique<Warp>();
    const Program& p = m.program;
    if (old) w->storage = std::move(old->storage);
    w->storage.resize(p.file_bytes + 64);
    w->file = w->storage.data() + (-(uintptr_t)w->storage.data() & 63);
    w->undefined.assign(p.offsets.size(), ALL);
    w->origin.assign(p.offsets.size(), -1);
    w->predicates.assign(p.predicates, 0);
    w->predicates_undefined.assign(p.predicates, ALL);
    w->predicates_origin.assign(p.predicates, -1);
    // the last two are the numbers 0 and 1
    w->predicates[p.predicates - 1] = ALL;
    w->predicates_undefined[p.predicates - 1] = w->predicates_undefined[p.predicates - 2] = 0;
    w->accumulates.assign(p.offsets.size(), 0);
    w->frozen.assign(p.offsets.size(), 0);
    w->written.assign(p.offsets.size(), ~0u);
    w->local.assign((size_t)p.local_bytes * 2 * LANES, 0);
    return w;
}

void start_cluster(Machine& m, Cluster& c, u32 number) {
    const Config& g = m.config;
    const u32 per_row = g.grid[0] / g.cluster, threads = g.block[0] * g.block[1] * g.block[2];
    const u32 x = number % per_row * g.cluster, y = number / per_row % g.grid[1], z = number / per_row / g.grid[1];
    const u32 shared = (m.program.shared_bytes + 15) / 16 * 16 + g.shared_bytes;
    std::vector<std::unique_ptr<Warp>> old = std::move(c.warps);
    std::vector<std::unique_ptr<Shadow>> shadows = std::move(c.shadows);
    c = Cluster();
    c.serial = number + 1;
    shadows.resize(g.cluster);
    for (u32 rank = 0; rank < g.cluster; ++rank) {
        if (!shadows[rank]) shadows[rank] = std::make_unique<Shadow>();
        shadows[rank]->start(shared, (Stamp)m.events.size() << LANE_BITS);
        Block b;
        b.index[0] = x + rank;
        b.index[1] = y;
        b.index[2] = z;
        b.shadow = shadows[rank].get();
        c.blocks.push_back(std::move(b));
    }
    c.shadows = std::move(shadows);
    for (u32 rank = 0; rank < g.cluster; ++rank) {
        for (int index = 0; index < m.warps_of_block(); ++index) {
            const size_t id = c.warps.size();
            auto w = new_warp(m, id < old.size() ? std::move(old[id]) : nullptr);
            w->id = (int)id;
            w->rank = (int)rank;
            w->index = index;
            const u32 lanes = std::min<u32>(LANES, threads - (u32)index * LANES);
            w->lanes = w->alive = lanes == LANES ? ALL : (1u << lanes) - 1;
            w->splits.push_back({0, w->lanes});
            w->registers = g.registers;
            fill_constants(m, c, *w);
            c.warps.push_back(std::move(w));
        }
    }
}

// The latest data lands first where a schedule is not forward: nothing may depend on the order.
void land(Machine& m, Cluster& c) {
    const bool first = m.config.schedule == FORWARD;
    Landing l = std::move(first ? c.landings.front() : c.landings.back());
    if (first)
        c.landings.pop_front();
    else
        c.landings.pop_back();
    Mbarrier& b = c.mbarriers[l.mbarrier];
    Shadow& h = *c.blocks[l.rank].shadow;
    memcpy(&h.bytes[l.at], l.data.data(), l.data.size());
    note_write(h, l.at, (u32)l.data.size(), stamp_of_agent(m, c, FIRST_MBARRIER + b.id, (u32)b.phase + 1, l.pc), false);
    b.bytes -= (s64)l.data.size();
    end_phase_if_complete(m, c, b, l.pc);
    ++c.progress;
}

static std::vector<Warp*> order_of(const Machine& m, Cluster& c) {
    std::vector<Warp*> order;
    for (auto& w : c.warps) order.push_back(w.get());
    if (m.config.schedule != FORWARD) std::reverse(order.begin(), order.end());
    // hostile: who is ahead runs further ahead, who is behind stays behind
    if (m.config.schedule == HOSTILE)
        std::stable_sort(order.begin(), order.end(), [](Warp* a, Warp* b) { return a->steps > b->steps; });
    return order;
}

Turn run_turn(Machine& m, Cluster& c) {
    const u64 progress = c.progress;
    bool ran = false;
    c.done = true;
    for (Warp* w : order_of(m, c)) {
        const u64 before = w->steps;
        if (!w->splits.empty()) run_warp(m, c, *w);
        c.done &= w->splits.empty();
        if (w->steps == before) continue;
        ran = true;
        if (m.config.schedule == HOSTILE) break;
    }
    if (m.config.schedule == HOSTILE && ran) {
        c.done = std::all_of(c.warps.begin(), c.warps.end(), [](const auto& w) { return w->splits.empty(); });
    }
    if (c.done) check_ended(m, c);
    if (c.progress != progress || c.done) return Turn::moved;
    if (!c.landings.empty()) {
        land(m, c);
        return Turn::moved;
    }
    return ran ? Turn::spins : Turn::stuck;
}

void check_ended(Machine&, Cluster& c) {
    const auto misuse = [](const char* said, int pc) { throw Fault{FaultKind::misuse, said, pc}; };
    for (const auto& w : c.warps) {
        if (!w->copies.empty()) misuse("the block ends while a copy is on its way", w->copies[0].pc);
        if (!w->bulk_reads.empty()) misuse("the block ends while a bulk copy reads its shared memory", w->bulk_reads[0].pc);
    }
    if (!c.landings.empty()) misuse("the block ends while a copy is on its way", c.landings.front().pc);
    for (const Block& b : c.blocks) {
        for (const Warpgroup& g : b.warpgroups) {
            if (!g.reads.empty()) misuse("the block ends while a wgmma is unfinished", g.reads.front().pc);
        }
        if (b.released_pc >= 0 && !b.registers_taken) misuse("registers are released and nobody takes them", b.released_pc);
    }
}

static std::string state_of(Cluster& c, const Warp& w) {
    switch (w.reason.kind) {
        case Reason::PHASE: {
            const Mbarrier& b = c.mbarriers[w.reason.key];
            return text(": the phase lacks %lld arrivals and %lld bytes", (long long)b.pending, (long long)b.bytes);
        }
        case Reason::REGISTERS: return text(": %ld registers are free, %ld needed", c.blocks[w.rank].free_registers, w.reason.need);
        default: return "";
    }
}

void deadlock(Machine& m, Cluster& c) {
    std::vector<Remark> remarks;
    struct Group {
        int pc, first, count;
        std::string state;
    };
    std::vector<Group> groups;
    for (const auto& w : c.warps) {
        for (const Split& s : w->splits) {
            const std::string state = s.gathering                                           ? " for the other lanes of their warp"
                                      : m.program.code[s.pc].row->name.rfind("bar", 0) == 0 ? ""
                                                                                            : state_of(c, *w);
            // a repeated test waits at the test, not at the branch behind it
            const int pc =
                w->reason.kind == Reason::PHASE && s.pc > 0 && m.program.code[s.pc - 1].row->name.rfind("mbarrier", 0) == 0
                    ? s.pc - 1
                    : s.pc;
            const auto same =
                std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.pc == pc && g.state == state; });
            if (same == groups.end())
                groups.push_back(
                    {pc, (w->rank * m.warps_of_block() + w->index) * LANES + first_lane(s.mask), count_lanes(s.mask), state});
            else
                same->count += count_lanes(s.mask);
        }
    }
    for (const Group& g : groups)
        remarks.push_back({g.pc, text("%d threads from thread %d on wait here%s", g.count, g.first, g.state.c_str())});
    const int first = remarks.empty() ? -1 : remarks[0].pc;
    throw Fault{FaultKind::deadlock, "no thread can go on", first, std::move(remarks)};
}
}  // namespace ptx
