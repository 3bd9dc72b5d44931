#include "order.h"

namespace ptx {
// ---- clocks ----
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

// Does the lane (MANY_LANES: every lane) know of an access?
static bool ordered(Step& s, Stamp stamp, int lane) {
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

template <class F>
static void each_run(const Stamp* stamps, u32 count, Stamp first, F f) {
    Stamp last = 0;
    for (u32 x = 0; x < count; ++x) {
        const Stamp stamp = stamps[x];
        if (stamp == last || stamp < first || !stamp) continue;
        last = stamp;
        f(stamp);
    }
}

static Remark the(Step& s, Stamp stamp, const char* what) {
    return {s.m.events[stamp >> LANE_BITS].pc, what};
}

// ---- shared memory ----
Place shared_place(Step& s, u32 address, u32 bytes, const char* verb) {
    const u32 window_rank = address >> RANK_SHIFT, at = address & SHARED_BITS;
    const u32 rank = window_rank ? window_rank - 1 : (u32)s.w.rank;
    if (rank >= s.c.blocks.size())
        s.fault(FaultKind::bounds, text("%s at an address that is no shared memory of the cluster", verb));
    const u32 size = (u32)s.c.blocks[rank].shadow->bytes.size();
    if ((u64)at + bytes > size) {
        s.fault(FaultKind::bounds, text("%s at shared memory offset %u, %u bytes; the block has %u", verb, at, bytes, size));
    }
    return {rank, at};
}

Shadow& shadow_at(Step& s, u32 rank) {
    return *s.c.blocks[rank].shadow;
}

static u8 states(const Shadow& h, u32 at, u32 bytes) {
    u8 all = 0;
    for (u32 x = at; x < at + bytes; ++x) all |= h.state[x];
    return all;
}

static Stamp flight_of(const Shadow& h, u32 at, u32 bytes) {
    for (u32 x = at; x < at + bytes; ++x) {
        if (h.state[x] & IN_FLIGHT) return h.written[x];
    }
    return 0;
}

void note_read(Step& s, Shadow& h, u32 at, u32 bytes, int lane) {
    Stamp* row = &h.row(h.read, s.w.id, h.bytes.size())[at];
    const Stamp stamp = stamp_of(s, lane), many = stamp | MANY_LANES;
    const u32 number = stamp >> LANE_BITS;
    Stamp safe = 0;
    for (u32 x = 0; x < bytes; ++x) {
        const Stamp old = row[x];
        if (old == safe || old < h.first || (old ^ stamp) == 0 || (old & 63) == (u32)lane) {
            row[x] = stamp;
        } else if (old >> LANE_BITS == number) {
            row[x] = number << LANE_BITS | MANY_LANES;
        } else if (s.m.events[old >> LANE_BITS].epoch <= s.w.clock.at[s.w.id]) {
            safe = old;
            row[x] = stamp;
        } else {
            row[x] = (many & ~63u) | MANY_LANES;
        }
    }
}

static bool check_read(Step& s, Shadow& h, u32 at, u32 bytes, int lane) {
    const u8 state = states(h, at, bytes);
    if (state & IN_FLIGHT) {
        s.race("shared memory is read while a copy into it is on its way", {the(s, flight_of(h, at, bytes), "the copy")});
    }
    each_run(&h.written[at], bytes, h.first, [&](Stamp stamp) {
        if (!ordered(s, stamp, lane)) {
            s.race("shared memory is read without a wait that orders it after the write", {the(s, stamp, "the write")});
        }
    });
    return state & UNDEFINED;
}

bool read_shared(Step& s, Place p, u32 bytes, int lane) {
    Shadow& h = shadow_at(s, p.rank);
    const bool undefined = check_read(s, h, p.at, bytes, lane);
    note_read(s, h, p.at, bytes, lane);
    return undefined;
}

void check_shared_write(Step& s, Place p, u32 bytes, int lane) {
    Shadow& h = shadow_at(s, p.rank);
    if (states(h, p.at, bytes) & IN_FLIGHT) {
        s.race("shared memory is written while a copy into it is on its way", {the(s, flight_of(h, p.at, bytes), "the copy")});
    }
    for (u32 chunk = p.at / CHUNK; chunk <= (p.at + bytes - 1) / CHUNK; ++chunk) {
        if (h.frozen[chunk]) {
            s.race("shared memory is overwritten while an unfinished asynchronous operation reads it",
                   {{h.frozen_by[chunk], "the operation"}});
        }
    }
    each_run(&h.written[p.at], bytes, h.first, [&](Stamp stamp) {
        if (!ordered(s, stamp, lane)) {
            s.race("shared memory is overwritten without a wait that orders it after the last write", {the(s, stamp, "the write")});
        }
    });
    const auto check = [&](Stamp stamp) {
        if (!ordered(s, stamp, lane)) {
            s.race("shared memory is overwritten without a wait that orders it after the last read", {the(s, stamp, "the read")});
        }
    };
    for (const auto& row : h.read) {
        if (!row.empty()) each_run(&row[p.at], bytes, h.first, check);
    }
    const u32 chunk = p.at / CHUNK, chunks = (p.at + bytes - 1) / CHUNK - chunk + 1;
    for (const auto& row : h.chunk_read) {
        if (!row.empty()) each_run(&row[chunk], chunks, h.first, check);
    }
}

bool knows_write(Step& s, Place p, int lane) {
    Shadow& h = shadow_at(s, p.rank);
    bool known = true;
    each_run(&h.written[p.at], 8, h.first, [&](Stamp stamp) { known &= ordered(s, stamp, lane); });
    return known;
}

void note_write(Shadow& h, u32 at, u32 bytes, Stamp stamp, bool undefined) {
    std::fill_n(&h.written[at], bytes, stamp);
    std::fill_n(&h.state[at], bytes, undefined ? (u8)UNDEFINED : (u8)0);
}

void note_shared_write(Step& s, Place p, u32 bytes, int lane, bool undefined) {
    note_write(shadow_at(s, p.rank), p.at, bytes, stamp_of(s, lane), undefined);
}

void start_flight(Step& s, Place p, u32 bytes, int lane) {
    check_shared_write(s, p, bytes, lane);
    Shadow& h = shadow_at(s, p.rank);
    std::fill_n(&h.written[p.at], bytes, stamp_of(s, lane));
    std::fill_n(&h.state[p.at], bytes, (u8)IN_FLIGHT);
    memset(&h.bytes[p.at], 0xff, bytes);
}

void check_async_read(Step& s, Place p, u32 bytes, int lane) {
    Shadow& h = shadow_at(s, p.rank);
    if (check_read(s, h, p.at, bytes, lane)) s.race("shared memory is read by an asynchronous operation that nothing has written");
    each_run(&h.written[p.at], bytes, h.first, [&](Stamp stamp) {
        const Event& e = s.m.events[stamp >> LANE_BITS];
        if (e.agent >= MAX_WARPS) return;
        const Warp& writer = *s.c.warps[e.agent];
        const int writer_lane = stamp & 63;
        const u32 fenced = writer.proxy_fence[writer_lane == MANY_LANES ? first_lane(writer.lanes) : writer_lane];
        if (e.epoch > fenced) {
            s.race("shared memory that threads wrote is read by the async proxy without fence.proxy.async",
                   {the(s, stamp, "the write")});
        }
    });
}

void freeze(Shadow& h, u32 chunk, int pc) {
    ++h.frozen[chunk];
    h.frozen_by[chunk] = pc;
}

// ---- global memory ----
static std::string describe(const Tensor& t, u64 address) {
    const s64 past = (s64)(address - t.base);
    if (past < 0) return text("%lld bytes before the start of `%s`", (long long)-past, t.name.c_str());
    if (past >= (s64)t.bytes.size()) {
        return text("%lld bytes past the end of `%s` (%zu bytes)", (long long)past - (long long)t.bytes.size(), t.name.c_str(),
                    t.bytes.size());
    }
    return text("byte %lld of `%s`%s", (long long)past, t.name.c_str(), t.writable() ? "" : ", which is an input");
}

Tensor& tensor_at(Step& s, u64 address, u32 bytes, const char* verb, bool writes) {
    const u64 number = (address + (1ull << (TENSOR_SHIFT - 1))) >> TENSOR_SHIFT;
    if (number < 1 || number > s.m.tensors.size()) {
        s.fault(FaultKind::bounds, text("global memory is %s outside its tensor: an address that is no tensor's", verb));
    }
    Tensor& t = s.m.tensors[number - 1];
    const bool inside = address >= t.base && address + bytes <= t.base + t.bytes.size();
    if (inside && !(writes && !t.writable())) return t;
    const bool starts_inside = address >= t.base && address < t.base + t.bytes.size();
    s.fault(FaultKind::bounds, text("global memory is %s outside its tensor: %s", verb,
                                    describe(t, !inside && starts_inside ? t.base + t.bytes.size() : address).c_str()));
}

bool read_global(Step& s, Tensor& t, u64 offset, u32 bytes, int lane) {
    if (!t.writable()) return false;
    bool undefined = false;
    for (u32 x = 0; x < bytes; ++x) {
        const Stamp stamp = (Stamp)t.written[offset + x];
        undefined |= !stamp && !(t.flags & STARTS_AND_ENDS_ZERO);
        if (stamp && !ordered(s, stamp, lane))
            s.race("global memory is read without an order after the write", {the(s, stamp, "the write")});
        t.read[offset + x] = stamp_of(s, lane);
    }
    return undefined;
}

void write_global(Step& s, Tensor& t, u64 offset, u32 bytes, int lane) {
    const Stamp now = stamp_of(s, lane);
    Stamp last_write = 0, last_read = 0;
    for (u32 x = 0; x < bytes; ++x) {
        const Stamp written = (Stamp)t.written[offset + x], read = (Stamp)t.read[offset + x];
        if (written && written != last_write && !ordered(s, written, lane)) {
            s.race("global memory is overwritten without an order after the last write", {the(s, written, "the write")});
        }
        if (read && read != last_read && !ordered(s, read, lane)) {
            s.race("global memory is overwritten without an order after the last read", {the(s, read, "the read")});
        }
        last_write = written;
        last_read = read;
        t.written[offset + x] = now;
    }
}

// ---- generic addresses ----
void undefined_fault(Step& s, const char* where, int origin) {
    if (origin < 0) s.race(text("a register that nothing has written is used as %s", where));
    throw Fault{FaultKind::race, text("memory is read that nothing has written, for %s", where), origin, {{s.pc, "the use"}}};
}

static u8* local_bytes(Step& s, u64 address, u32 bytes, int lane) {
    const u64 at = address & OFFSET_BITS, size = s.m.program.local_bytes;
    if (at + bytes > size)
        s.fault(FaultKind::bounds, text("an index lies outside its array: local memory offset %llu, %u bytes; a thread has %llu",
                                        (unsigned long long)at, bytes, (unsigned long long)size));
    return &s.w.local[(u64)lane * size * 2 + at];
}

// The space of a generic address; of one that code calls global, which constants of the text are too.
static Space narrowed(Step& s, Space said, u64 address) {
    const u64 kind = address >> SPACE_SHIFT;
    if (kind > (u64)Space::data) s.fault(FaultKind::bounds, "memory is accessed at an address that is no tensor's");
    const Space space = (Space)kind;
    if (said == Space::tensor && space != Space::tensor && space != Space::data) {
        s.fault(FaultKind::bounds, "an address of another memory space is used as one of global memory");
    }
    return space;
}

Bytes read_memory(Step& s, Space space, u64 address, u32 bytes, int lane) {
    if (space == Space::generic || space == Space::tensor) space = narrowed(s, space, address);
    if (address % (bytes & -bytes)) s.misuse(text("an address is not aligned to the %u bytes that are read there", bytes));
    switch (space) {
        case Space::shared: {
            const Place p = shared_place(s, (u32)address, bytes, "read");
            const bool undefined = read_shared(s, p, bytes, lane);
            return {&shadow_at(s, p.rank).bytes[p.at], undefined};
        }
        case Space::local: {
            u8* at = local_bytes(s, address, bytes, lane);
            const u8* written = at + s.m.program.local_bytes;
            return {at, !std::all_of(written, written + bytes, [](u8 x) { return x == 1; })};
        }
        case Space::param:
        case Space::data: {
            auto& from = space == Space::param ? s.m.params : s.m.data;
            const u64 at = address & OFFSET_BITS;
            if (at + bytes > from.size())
                s.fault(FaultKind::bounds,
                        text("%s are read at offset %llu, past their %zu bytes", space == Space::param ? "parameters" : "variables",
                             (unsigned long long)at, from.size()));
            return {&from[at], false};
        }
        default: {
            Tensor& t = tensor_at(s, address, bytes, "read", false);
            const bool undefined = read_global(s, t, address - t.base, bytes, lane);
            return {&t.bytes[address - t.base], undefined};
        }
    }
}

u8* write_memory(Step& s, Space space, u64 address, u32 bytes, int lane, bool undefined) {
    if (space == Space::generic || space == Space::tensor) space = narrowed(s, space, address);
    if (address % (bytes & -bytes)) s.misuse(text("an address is not aligned to the %u bytes that are written there", bytes));
    switch (space) {
        case Space::shared: {
            const Place p = shared_place(s, (u32)address, bytes, "write");
            check_shared_write(s, p, bytes, lane);
            note_shared_write(s, p, bytes, lane, undefined);
            return &shadow_at(s, p.rank).bytes[p.at];
        }
        case Space::local: {
            u8* at = local_bytes(s, address, bytes, lane);
            memset(at + s.m.program.local_bytes, undefined ? 0 : 1, bytes);
            return at;
        }
        case Space::tensor: {
            Tensor& t = tensor_at(s, address, bytes, "written", true);
            write_global(s, t, address - t.base, bytes, lane);
            return &t.bytes[address - t.base];
        }
        default: s.fault(FaultKind::bounds, "constant memory is written");
    }
}
}  // namespace ptx
