// Atomics, strong accesses and fences: how threads of different warps and blocks order their memory without barriers. What a thread
// released at an address (by its fence before, or by the access itself) is known to whoever acquires there.
#include "order.h"
#include "rows.h"

namespace ptx {
enum Order : int { RELAXED = 0, ACQUIRE = 1, RELEASE = 2, BOTH = 3 };

// One key for a place however it is addressed.
static u64 key_of(Step& s, Space space, u64 address) {
    if (space == Space::shared || address >> SPACE_SHIFT == (u64)Space::shared) {
        const Place p = shared_place(s, (u32)address, 4, "atomic access");
        return (u64)s.c.serial << 32 | 1ull << 63 | (p.rank << RANK_SHIFT) | p.at;
    }
    return address;
}

static void release_at(Step& s, int lane, u64 key, bool orders) {
    std::shared_ptr<const Clock> known;
    if (orders)
        known = std::make_shared<Clock>(release(s, 1u << lane));
    else if (s.w.fence_release[lane])
        known = std::make_shared<Clock>(*s.w.fence_release[lane]);
    if (!known) return;
    for (auto& [cluster, clock] : s.m.locations[key]) {
        if (cluster != s.c.serial) continue;
        auto both = std::make_shared<Clock>(*clock);
        both->join(*known);
        clock = both;
        return;
    }
    s.m.locations[key].emplace_back(s.c.serial, known);
}

static void acquire_at(Step& s, int lane, u64 key, bool orders) {
    const auto found = s.m.locations.find(key);
    if (found == s.m.locations.end()) return;
    Clock known;
    for (const auto& [cluster, clock] : found->second) {
        if (cluster == s.c.serial)
            known.join(*clock);
        else
            known.know_cluster(cluster, clock);
        for (const Foreign& f : clock->foreign) {
            if (f.first != s.c.serial) known.know_cluster(f.first, f.second);
        }
    }
    if (orders) {
        acquire(s, 1u << lane, known);
        return;
    }
    auto& waiting = s.w.fence_acquire[lane];
    if (!waiting) waiting = std::make_unique<Clock>();
    waiting->join(known);
}

enum Operation : int { ADD, MIN, MAX, AND, OR, XOR_BITS, EXCHANGE, COMPARE };
struct Kind {
    const char* name;
    int bytes, type;  // type: 0 unsigned, 1 signed, 2 float
};
constexpr Kind KINDS[] = {{"u32", 4, 0}, {"s32", 4, 1}, {"b32", 4, 0}, {"u64", 8, 0}, {"s64", 8, 1}, {"b64", 8, 0}, {"f32", 4, 2}};

static u64 combined(int operation, int type, int bytes, u64 old, u64 a, u64 b) {
    const auto less = [&](u64 x, u64 y) { return type == 1 ? (bytes == 4 ? (s32)x < (s32)y : (s64)x < (s64)y) : x < y; };
    switch (operation) {
        case ADD: return type == 2 ? bits_as<u32>(bits_as<f32>((u32)old) + bits_as<f32>((u32)a)) : old + a;
        case MIN: return less(a, old) ? a : old;
        case MAX: return less(old, a) ? a : old;
        case AND: return old & a;
        case OR: return old | a;
        case XOR_BITS: return old ^ a;
        case EXCHANGE: return a;
        default: return old == a ? b : old;
    }
}

// row: a operation, b kind, c space and order
static Next atomic(Step& s) {
    const Row& row = *s.i.row;
    const Kind& kind = KINDS[row.b];
    const Space space = (Space)((row.c >> 4) - 1);
    const int order = row.c & 3;
    each_lane(s.mask, [&](int l) {
        const u64 address = s.address(0, l), key = key_of(s, space, address);
        if (order & RELEASE || s.w.fence_release[l]) release_at(s, l, key, order & RELEASE);
        u8* at = strong_access(s, space, address, kind.bytes, l, true, true);
        u64 old = 0;
        memcpy(&old, at, kind.bytes);
        const u64 now =
            combined(row.a, kind.type, kind.bytes, old, s.wide(s.source(1), l), row.a == COMPARE ? s.wide(s.source(2), l) : 0);
        memcpy(at, &now, kind.bytes);
        if (s.i.results && s.operand(0).slot >= 0) s.set_wide(s.operand(0), l, old);
        acquire_at(s, l, key, order & ACQUIRE);
    });
    s.happened();
    return Next::go_on;
}

// row: a bytes, b 1 a store, c space and order
static Next strong(Step& s) {
    const Row& row = *s.i.row;
    const Space space = (Space)((row.c >> 4) - 1);
    const int order = row.c & 3;
    each_lane(s.mask, [&](int l) {
        const u64 address = s.address(0, l), key = key_of(s, space, address);
        if (row.b) release_at(s, l, key, order & RELEASE);
        u8* at = strong_access(s, space, address, row.a, l, row.b, !row.b);
        u64 value = 0;
        if (row.b) {
            value = s.wide(s.source(1), l);
            memcpy(at, &value, row.a);
            return;
        }
        memcpy(&value, at, row.a);
        s.set_wide(s.operand(0), l, value);
        acquire_at(s, l, key, order & ACQUIRE);
    });
    if (row.b) s.happened();
    return Next::go_on;
}

static Next fence(Step& s) {
    each_lane(s.mask, [&](int l) {
        if (auto& known = s.w.fence_acquire[l]) {
            acquire(s, 1u << l, *known);
            known.reset();
        }
        s.w.fence_release[l] = std::make_unique<Clock>(release(s, 1u << l));
    });
    return Next::go_on;
}

static Next proxy_fence(Step& s) {
    fence_mbarriers(s);
    each_lane(s.mask, [&](int l) { s.w.proxy_fence[l] = s.w.epoch; });
    ++s.w.epoch;
    return Next::go_on;
}

struct SpaceName {
    const char* name;
    Space space;
};
constexpr SpaceName SPACES[] = {{"", Space::generic},
                                {".global", Space::tensor},
                                {".shared", Space::shared},
                                {".shared::cta", Space::shared},
                                {".shared::cluster", Space::shared}};
static int code_of(Space space, int order) {
    return ((int)space + 1) << 4 | order;
}

static void add_atomics(Rows& rows, const SpaceName& where, const std::string& order_name, int order, const std::string& scope) {
    const struct {
        const char* name;
        int operation;
        const char* kinds;
    } operations[] = {{"add", ADD, "u32 s32 u64 f32"}, {"min", MIN, "u32 s32 u64 s64"}, {"max", MAX, "u32 s32 u64 s64"},
                      {"and", AND, "b32 b64"},         {"or", OR, "b32 b64"},           {"xor", XOR_BITS, "b32 b64"},
                      {"exch", EXCHANGE, "b32 b64"},   {"cas", COMPARE, "b32 b64"}};
    for (const auto& o : operations) {
        for (int k = 0; k < (int)std::size(KINDS); ++k) {
            if ((" " + std::string(o.kinds) + " ").find(std::string(" ") + KINDS[k].name + " ") == std::string::npos) continue;
            const std::string r = KINDS[k].bytes == 8 ? "R" : "r",
                              tail = order_name + scope + where.name + "." + o.name + "." + KINDS[k].name;
            const std::string values = o.operation == COMPARE ? "A " + r + " " + r : "A " + r;
            const auto set = [&](Row& row) {
                row.a = o.operation;
                row.b = k;
                row.c = code_of(where.space, order);
            };
            set(add(rows, "atom" + tail, r + " = " + values, "the value at an address, which becomes another, as one access",
                    atomic, Undefined::strict));
            if (o.operation != EXCHANGE && o.operation != COMPARE)
                set(add(rows, "red" + tail, "= " + values, "the value at an address becomes another, as one access", atomic,
                        Undefined::strict));
        }
    }
}

static void add_strong(Rows& rows, const SpaceName& where) {
    const struct {
        const char* name;
        int order;
        bool load, store;
    } modes[] = {{".volatile", RELAXED, true, true},         {".relaxed.cta", RELAXED, true, true},
                 {".relaxed.gpu", RELAXED, true, true},      {".relaxed.sys", RELAXED, true, true},
                 {".relaxed.cluster", RELAXED, true, true},  {".acquire.cta", ACQUIRE, true, false},
                 {".acquire.gpu", ACQUIRE, true, false},     {".acquire.sys", ACQUIRE, true, false},
                 {".acquire.cluster", ACQUIRE, true, false}, {".release.cta", RELEASE, false, true},
                 {".release.gpu", RELEASE, false, true},     {".release.sys", RELEASE, false, true},
                 {".release.cluster", RELEASE, false, true}};
    for (const auto& mode : modes) {
        for (const char* type : {"b32", "u32", "s32", "f32", "b64", "u64", "s64"}) {
            const int bytes = std::string(type).find("64") == std::string::npos ? 4 : 8;
            const std::string r = bytes == 8 ? "R" : "r", tail = std::string(mode.name) + where.name + "." + type;
            const auto set = [&](Row& row, int store) {
                row.a = bytes;
                row.b = store;
                row.c = code_of(where.space, mode.order);
            };
            if (mode.load)
                set(add(rows, "ld" + tail, r + " = A", "the value at an address, as one access", strong, Undefined::strict), 0);
            if (mode.store)
                set(add(rows, "st" + tail, "= A " + r, "puts a value at an address, as one access", strong, Undefined::strict), 1);
        }
    }
}

void add_atomic_rows(Rows& rows) {
    for (const SpaceName& where : SPACES) {
        add_atomics(rows, where, "", RELAXED, "");
        for (const char* scope : {".cta", ".cluster", ".gpu", ".sys"}) {
            add_atomics(rows, where, ".relaxed", RELAXED, scope);
            add_atomics(rows, where, ".acquire", ACQUIRE, scope);
            add_atomics(rows, where, ".release", RELEASE, scope);
            add_atomics(rows, where, ".acq_rel", BOTH, scope);
        }
        add_strong(rows, where);
    }
    for (const char* name : {"membar.cta", "membar.gl", "membar.sys"})
        add(rows, name, "=", "accesses of the thread before it precede those after it", fence);
    for (const char* kind : {"fence.sc", "fence.acq_rel"}) {
        for (const char* scope : {".cta", ".cluster", ".gpu", ".sys"})
            add(rows, std::string(kind) + scope, "=", "accesses of the thread before it precede those after it", fence);
    }
    for (const char* space : {"", ".shared::cta", ".global"})
        add(rows, std::string("fence.proxy.async") + space, "=", "the async proxy sees what the thread wrote before", proxy_fence);
}
}  // namespace ptx
