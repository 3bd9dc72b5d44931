// cp.async: copies of single threads, in groups of single threads. The data lands when its thread waits, never earlier.
#include "order.h"
#include "rows.h"

namespace ptx {
static Next copy(Step& s) {
    const u32 bytes = s.in<u32>(2)[0];
    if (bytes != 4 && bytes != 8 && bytes != 16) s.misuse("a copy of another size than 4, 8 and 16 bytes");
    each_lane(s.mask, [&](int l) {
        const u64 from = s.address(1, l);
        const u32 to = (u32)s.address(0, l), valid = s.sources() > 3 ? s.in<u32>(3)[l] : bytes;
        if (valid > bytes) s.misuse(text("a copy of %u bytes has from 0 to %u valid bytes", bytes, bytes));
        if (to % bytes || (valid && from % bytes)) s.misuse(text("an address is not aligned to the %u bytes that it moves", bytes));
        const Place place = shared_place(s, to, bytes, "write");
        AsyncCopy c = {place.rank, place.at, {}, (int)bytes, s.pc, l, s.w.copy_groups[l], false};
        if (valid) {
            Tensor& t = tensor_at(s, from, valid, "read", false);
            c.undefined = read_global(s, t, from - t.base, valid, l);
            memcpy(c.data, &t.bytes[from - t.base], valid);
        }
        start_flight(s, place, bytes, l);
        s.w.copies.push_back(c);
    });
    return Next::go_on;
}

static Next commit(Step& s) {
    each_lane(s.mask, [&](int l) { ++s.w.copy_groups[l]; });
    return Next::go_on;
}

// Lets the copies of a lane's groups before `group` land.
static void land_before(Step& s, const u32 (&group)[LANES]) {
    size_t kept = 0;
    for (AsyncCopy& c : s.w.copies) {
        if (!(s.mask >> c.lane & 1) || c.group >= group[c.lane]) {
            s.w.copies[kept++] = c;
            continue;
        }
        Shadow& h = shadow_at(s, c.rank);
        memcpy(&h.bytes[c.at], c.data, c.bytes);
        note_write(h, c.at, c.bytes, stamp_of(s, c.lane, c.pc), c.undefined);
    }
    s.w.copies.resize(kept);
}

static Next wait_group(Step& s) {
    const u32 pending = s.uniform(0, "the number of groups");
    u32 group[LANES];
    for (int l = 0; l < LANES; ++l) group[l] = s.w.copy_groups[l] < pending ? 0 : s.w.copy_groups[l] - pending;
    land_before(s, group);
    return Next::go_on;
}

static Next wait_all(Step& s) {
    u32 group[LANES];
    for (u32& g : group) g = ~0u;
    land_before(s, group);
    return Next::go_on;
}

void add_copy_rows(Rows& rows) {
    for (const char* cache : {"ca", "cg"}) {
        for (const char* space : {"shared", "shared::cta"}) {
            add(rows, text("cp.async.%s.%s.global", cache, space), "= A A i r?",
                "copies c bytes, of which d are read and the others 0", copy, Undefined::strict);
        }
    }
    add(rows, "cp.async.commit_group", "=", "closes the thread's open group", commit);
    add(rows, "cp.async.wait_group", "= i", "at most a of the thread's groups are in flight", wait_group);
    add(rows, "cp.async.wait_all", "=", "no copy of the thread is in flight", wait_all);
}
}  // namespace ptx
