// Stamps of accesses, and what lanes know of each other.
#include "order_checks.h"

namespace ptx {
Stamp stamp_of(Step& s, int lane, int pc) {
    Warp& w = s.w;
    if (w.event_pc != pc || w.event_epoch != w.epoch) {
        if (s.m.events.size() >= MAX_EVENTS) s.fault(FaultKind::time, "the run has more accesses than can be told apart");
        w.event = (u32)s.m.events.size();
        w.event_pc = pc;
        w.event_epoch = w.epoch;
        s.m.events.push_back({w.epoch, pc, s.c.serial, (u16)w.id});
    }
    return w.event << LANE_BITS | (u32)lane;
}

Stamp stamp_of_agent(Machine& m, Cluster& c, int agent, u32 epoch, int pc) {
    const u32 number = (u32)m.events.size();
    if (number >= MAX_EVENTS) throw Fault{FaultKind::time, "the run has more accesses than can be told apart", pc};
    m.events.push_back({epoch, pc, c.serial, (u16)agent});
    return number << LANE_BITS | MANY_LANES;
}

static void tell_lanes_apart(Warp& w, u32 mask) {
    each_lane(mask & ~w.apart, [&](int lane) { w.own[lane] = std::make_unique<Clock>(w.clock); });
    w.apart |= mask;
}

// What the lanes of `mask` know together, their own accesses up to now included.
static Clock known_to(Warp& w, u32 mask) {
    Clock known = w.clock_of(first_lane(mask));
    each_lane(mask & w.apart, [&](int lane) { known.join(*w.own[lane]); });
    if (mask == w.lanes) {
        known.at[w.id] = w.epoch;
    } else {
        each_lane(mask, [&](int lane) { known.know({(u16)w.id, (u16)lane, w.epoch}); });
    }
    return known;
}

Clock release(Step& s, u32 mask) {
    Clock known = known_to(s.w, mask);
    ++s.w.epoch;
    return known;
}

void acquire(Step& s, u32 mask, const Clock& clock) {
    Warp& w = s.w;
    if (mask == w.alive) {
        w.clock.join(clock);
    } else {
        tell_lanes_apart(w, mask);
    }
    each_lane(mask & w.apart, [&](int lane) { w.own[lane]->join(clock); });
}

void meet_lanes(Step& s, u32 mask) {
    Warp& w = s.w;
    const Clock known = release(s, mask);
    if (mask == w.alive) {
        each_lane(w.apart, [&](int lane) { w.own[lane].reset(); });
        w.apart = 0;
        w.clock = known;
        return;
    }
    tell_lanes_apart(w, mask);
    each_lane(mask, [&](int lane) { *w.own[lane] = known; });
}

static bool ordered_for(Step& s, const Event& e, int stamp_lane, int lane) {
    if (e.cluster == s.c.serial) return s.w.clock_of(lane).knows(e.agent, stamp_lane, e.epoch);
    const Clock* of = s.w.clock_of(lane).of_cluster(e.cluster);
    return of && of->knows(e.agent, stamp_lane, e.epoch);
}

bool ordered(Step& s, Stamp stamp, int lane) {
    const Event& e = s.m.events[stamp >> LANE_BITS];
    const int stamp_lane = stamp & ((1 << LANE_BITS) - 1);
    if (lane != MANY_LANES) {
        if (e.cluster == s.c.serial && e.agent == s.w.id && stamp_lane == lane) return true;
        return ordered_for(s, e, stamp_lane, lane);
    }
    if (!s.w.apart) return ordered_for(s, e, stamp_lane, first_lane(s.w.alive));
    bool all = true;
    each_lane(s.w.alive, [&](int l) { all &= ordered_for(s, e, stamp_lane, l); });
    return all;
}
}  // namespace ptx
