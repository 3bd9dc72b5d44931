// All blocks of a launch. They run one after the other as long as they can; a block that waits for another lets it start.
#include "schedule.h"

namespace ptx {
constexpr size_t MOST_RESIDENT = 32;

static void check_tensors_at_end(const Machine& m) {
    for (const Tensor& t : m.tensors) {
        const bool zero = std::all_of(t.bytes.begin(), t.bytes.end(), [](u8 byte) { return byte == 0; });
        if ((t.flags & STARTS_AND_ENDS_ZERO) && !zero)
            throw Fault{FaultKind::misuse, text("`%s` is not zero again when the kernel ends", t.name.c_str())};
    }
}

constexpr u32 MOST_SHARED = 227 << 10, MOST_LOCAL = 64 << 10;
constexpr u64 MOST_REGISTER_BYTES = 1ull << 28;

static void check_config(const Machine& m) {
    const Config& g = m.config;
    const auto refuse = [](std::string said) { throw Fault{FaultKind::launch, std::move(said)}; };
    if (!g.cluster || g.grid[0] % g.cluster) refuse("the grid is no multiple of its clusters");
    const u64 threads = (u64)g.block[0] * g.block[1] * g.block[2];
    if (threads < 1 || threads > 1024 || m.warps_of_block() * (int)g.cluster > MAX_WARPS) {
        refuse("the block or its cluster is larger than the emulator supports");
    }
    const u64 shared = (u64)m.program.shared_bytes + g.shared_bytes;
    if (shared > MOST_SHARED)
        refuse(text("a block needs %llu bytes of shared memory; there are %u", (unsigned long long)shared, MOST_SHARED));
    if (m.program.local_bytes > MOST_LOCAL)
        refuse(text("a thread needs %u bytes of local memory; the emulator has %u", m.program.local_bytes, MOST_LOCAL));
    const u64 registers = (u64)m.program.file_bytes * (u64)m.warps_of_block() * g.cluster;
    if (registers > MOST_REGISTER_BYTES) refuse("the block needs more registers than the emulator has");
}

// The clusters of a launch that have begun and not ended.
struct Residents {
    Machine& m;
    u32 count, started = 0, turn = 0;
    std::vector<std::unique_ptr<Cluster>> all, spare;

    void start() {
        auto c = std::make_unique<Cluster>();
        if (!spare.empty()) {
            c = std::move(spare.back());
            spare.pop_back();
        }
        start_cluster(m, *c, m.config.schedule == FORWARD ? started : count - 1 - started);
        ++started;
        all.push_back(std::move(c));
    }
    void retire(size_t x) {
        for (const auto& w : all[x]->warps) m.steps += w->steps;
        spare.push_back(std::move(all[x]));
        all.erase(all.begin() + (long)x);
    }
    // Turns until one moves something: the first that can, or each in its turn where the schedule is hostile.
    Turn run_one() {
        Turn best = Turn::stuck;
        ++turn;
        for (size_t k = 0; k < all.size(); ++k) {
            const size_t x = m.config.schedule == HOSTILE ? (k + turn) % all.size() : k;
            const Turn found = run_turn(m, *all[x]);
            if (all[x]->done) retire(x);
            if (found == Turn::moved) return found;
            if (found == Turn::spins) best = found;
        }
        return best;
    }
};

void Machine::run() {
    check_config(*this);
    end = std::chrono::steady_clock::now() + std::chrono::microseconds((s64)(config.seconds * 1e6));
    Residents residents{*this, config.grid[0] / config.cluster * config.grid[1] * config.grid[2], 0, 0, {}, {}};
    const size_t wanted = config.schedule == HOSTILE ? 4 : 1;
    while (residents.started < residents.count || !residents.all.empty()) {
        while (residents.started < residents.count && residents.all.size() < wanted) residents.start();
        const Turn found = residents.run_one();
        if (found == Turn::moved) continue;
        check_time();
        if (residents.started < residents.count && residents.all.size() < MOST_RESIDENT)
            residents.start();
        else if (found == Turn::stuck)
            deadlock(*this, *residents.all[0]);
    }
    check_tensors_at_end(*this);
}
}  // namespace ptx
