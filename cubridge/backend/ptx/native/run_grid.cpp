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

static void check_config(const Machine& m) {
    const Config& g = m.config;
    if (g.grid[0] % g.cluster) throw Fault{FaultKind::launch, "the grid is no multiple of its clusters"};
    if (m.warps_of_block() > 32 || m.warps_of_block() * (int)g.cluster > MAX_WARPS)
        throw Fault{FaultKind::launch, "the block is larger than the emulator supports"};
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
