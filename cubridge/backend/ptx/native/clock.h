// Who knows what: vector clocks. An agent is a warp, an mbarrier (for what lands through it) or a warpgroup (for what its wgmma
// read). A warp's epoch counts its releases. Lanes of a warp are told apart: `at[warp]` is the epoch up to which all its lanes are
// known, `beyond` holds single lanes that are known further. What other clusters did is known by snapshots of their clocks.
#pragma once
#include <algorithm>
#include <memory>
#include <utility>

#include "base.h"

namespace ptx {
constexpr int MAX_WARPS = 64;  // of a cluster
constexpr int MAX_MBARRIERS = 176;
constexpr int MAX_WARPGROUPS = 16;
constexpr int FIRST_MBARRIER = MAX_WARPS, FIRST_WARPGROUP = FIRST_MBARRIER + MAX_MBARRIERS;
constexpr int AGENTS = FIRST_WARPGROUP + MAX_WARPGROUPS;
constexpr int MANY_LANES = 32;  // in place of a lane: several, or the warp as one

struct Known {
    u16 warp, lane;
    u32 epoch;
};

struct Clock;
using Foreign = std::pair<u32, std::shared_ptr<const Clock>>;  // cluster, and what is known of it

struct Clock {
    u32 at[AGENTS] = {};
    std::vector<Known> beyond;
    std::vector<Foreign> foreign;

    void join(const Clock& other);
    void know(const Known& known);
    void know_cluster(u32 cluster, const std::shared_ptr<const Clock>& clock);
    bool knows(int agent, int lane, u32 epoch) const {
        if (epoch <= at[agent]) return true;
        for (const Known& k : beyond) {
            if (k.warp == agent && k.lane == lane && k.epoch >= epoch) return true;
        }
        return false;
    }
    const Clock* of_cluster(u32 cluster) const {
        for (const Foreign& f : foreign) {
            if (f.first == cluster) return f.second.get();
        }
        return nullptr;
    }
};

inline void Clock::know(const Known& known) {
    if (known.epoch <= at[known.warp]) return;
    for (Known& mine : beyond) {
        if (mine.warp == known.warp && mine.lane == known.lane) {
            mine.epoch = std::max(mine.epoch, known.epoch);
            return;
        }
    }
    beyond.push_back(known);
}

inline void Clock::know_cluster(u32 cluster, const std::shared_ptr<const Clock>& clock) {
    for (Foreign& mine : foreign) {
        if (mine.first != cluster) continue;
        if (mine.second == clock) return;
        auto both = std::make_shared<Clock>(*mine.second);
        both->join(*clock);
        mine.second = both;
        return;
    }
    foreign.emplace_back(cluster, clock);
}

inline void Clock::join(const Clock& other) {
    for (int agent = 0; agent < AGENTS; ++agent) at[agent] = std::max(at[agent], other.at[agent]);
    for (const Known& k : other.beyond) know(k);
    std::erase_if(beyond, [&](const Known& k) { return k.epoch <= at[k.warp]; });
    for (const Foreign& f : other.foreign) know_cluster(f.first, f.second);
}
}  // namespace ptx
