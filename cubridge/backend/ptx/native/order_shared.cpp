// Shared memory: who may touch which byte now.
#include "order_checks.h"

namespace ptx {
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
    return (state & UNDEFINED) != 0;
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

u8* strong_shared(Step& s, Place p, u32 bytes, int lane, bool writes, bool reads) {
    Shadow& h = shadow_at(s, p.rank);
    const u8 state = states(h, p.at, bytes);
    if (state & IN_FLIGHT) {
        s.race("shared memory is accessed while a copy into it is on its way", {the(s, flight_of(h, p.at, bytes), "the copy")});
    }
    if (reads && (state & UNDEFINED)) s.race("an atomic access finds a value that nothing has written");
    if (!(state & STRONG)) {
        if (writes)
            check_shared_write(s, p, bytes, lane);
        else
            read_shared(s, p, bytes, lane);
    }
    if (writes) {
        note_shared_write(s, p, bytes, lane, false);
        std::fill_n(&h.state[p.at], bytes, (u8)STRONG);
    }
    return &h.bytes[p.at];
}
}  // namespace ptx
