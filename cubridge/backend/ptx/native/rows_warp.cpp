// Lanes of a warp together: shuffles, votes, reductions. None of them orders memory; bar.warp.sync does.
#include "order.h"
#include "rows.h"

namespace ptx {
// The member mask of a step, the same in all its lanes; false while some of them are not here.
static bool members_here(Step& s, int k, u32* members) {
    *members = s.uniform(k, "a member mask");
    if (!(*members & s.mask)) s.misuse("a lane is not in the member mask that it gives");
    return s.together(*members);
}

enum Shuffle { BUTTERFLY, INDEX, DOWN, UP };

static Next shuffle(Step& s) {
    u32 members;
    if (!members_here(s, 3, &members)) return Next::gather;
    u32 a[LANES], results[LANES] = {}, valid = 0, undefined = 0;
    memcpy(a, s.in<u32>(0), sizeof a);
    const u32 *b = s.in<u32>(1), *c = s.in<u32>(2), source_undefined = s.undefined_of(s.source(0));
    if ((s.undefined_of(s.source(1)) | s.undefined_of(s.source(2))) & s.mask)
        undefined_fault(s, "the lane of a shuffle", s.origin_of(s.source(1)));
    each_lane(s.mask, [&](int l) {
        const int segment = c[l] >> 8 & 31, clamp = c[l] & 31, by = b[l] & 31;
        const int highest = (l & segment) | (clamp & ~segment), lowest = l & segment;
        int from = l;
        bool inside = false;
        switch (s.i.row->a) {
            case BUTTERFLY:
                from = l ^ by;
                inside = from <= highest;
                break;
            case INDEX:
                from = lowest | (by & ~segment);
                inside = from <= highest;
                break;
            case DOWN:
                from = l + by;
                inside = from <= highest;
                break;
            default:
                from = l - by;
                inside = from >= highest;
                break;
        }
        if (!inside) from = l;
        if (!(s.mask >> from & 1)) s.misuse(text("a shuffle reads lane %d, which does not take part", from));
        results[l] = a[from];
        valid |= (u32)inside << l;
        undefined |= (source_undefined >> from & 1) << l;
    });
    const int origin = s.origin_of(s.source(0));
    assign(s.out<u32>(), s.mask, [&](int l) { return results[l]; });
    s.set_undefined(s.operand(0), undefined, origin);
    if (s.i.results > 1) s.set_predicate(1, valid);
    return Next::go_on;
}

enum Vote { ANY, EVERY, UNIFORM, BALLOT };

static Next vote(Step& s) {
    u32 members;
    if (!members_here(s, 1, &members)) return Next::gather;
    const u32 holds = s.predicate(0) & s.mask;
    const bool all = holds == s.mask;
    switch (s.i.row->a) {
        case ANY: s.set_predicate(0, holds ? ALL : 0); break;
        case EVERY: s.set_predicate(0, all ? ALL : 0); break;
        case UNIFORM: s.set_predicate(0, all || !holds ? ALL : 0); break;
        default: assign(s.out<u32>(), s.mask, [&](int) { return holds; });
    }
    return Next::go_on;
}

template <class T, auto F>
static Next reduce(Step& s) {
    u32 members;
    if (!members_here(s, 1, &members)) return Next::gather;
    const T* a = s.in<T>(0);
    T result = a[first_lane(s.mask)];
    each_lane(s.mask & (s.mask - 1), [&](int l) { result = F(result, a[l]); });
    assign(s.out<T>(), s.mask, [&](int) { return result; });
    return Next::go_on;
}

template <class T, bool ALL_SAME>
static Next match(Step& s) {
    u32 members;
    if (!members_here(s, 1, &members)) return Next::gather;
    T a[LANES];
    memcpy(a, s.in<T>(0), sizeof a);
    bool same = true;
    u32 results[LANES] = {};
    each_lane(s.mask, [&](int l) {
        each_lane(s.mask, [&](int other) { results[l] |= (u32)(a[l] == a[other]) << other; });
        same &= results[l] == s.mask;
    });
    assign(s.out<u32>(), s.mask, [&](int l) { return !ALL_SAME || same ? results[l] : 0; });
    if (ALL_SAME && s.i.results > 1) s.set_predicate(1, same ? ALL : 0);
    return Next::go_on;
}

static Next elect(Step& s) {
    u32 members;
    if (!members_here(s, 0, &members)) return Next::gather;
    const int chosen = first_lane(s.mask);
    if (s.operand(0).slot >= 0) assign(s.out<u32>(), s.mask, [&](int) { return (u32)chosen; });
    s.set_predicate(1, 1u << chosen);
    return Next::go_on;
}

static Next active(Step& s) {
    assign(s.out<u32>(), s.mask, [&](int) { return s.mask; });
    return Next::go_on;
}

static Next sync_warp(Step& s) {
    u32 members;
    if (!members_here(s, 0, &members)) return Next::gather;
    meet_lanes(s, s.mask);
    s.happened();
    return Next::go_on;
}

template <class T>
static void add_reductions(Rows& rows, const std::string& type) {
    add(rows, "redux.sync.max." + type, "r = r r", "the largest of the lanes in b",
        reduce<T, [](T a, T b) { return a < b ? b : a; }>, Undefined::strict);
    add(rows, "redux.sync.min." + type, "r = r r", "the smallest of the lanes in b",
        reduce<T, [](T a, T b) { return a < b ? a : b; }>, Undefined::strict);
    add(rows, "redux.sync.add." + type, "r = r r", "the sum of the lanes in b",
        reduce<T, [](T a, T b) { return (T)((u32)a + (u32)b); }>, Undefined::strict);
}

void add_warp_rows(Rows& rows) {
    const char* shuffles[] = {"bfly", "idx", "down", "up"};
    for (int k = 0; k < 4; ++k) {
        add(rows, std::string("shfl.sync.") + shuffles[k] + ".b32", "r p? = r r r r",
            "a of another lane of the segment; b says which", shuffle, Undefined::own)
            .a = k;
    }
    const char* votes[] = {"any", "all", "uni"};
    for (int k = 0; k < 3; ++k) {
        add(rows, std::string("vote.sync.") + votes[k] + ".pred", "p = p r", "whether a holds in any, all, all or no lanes", vote,
            Undefined::strict)
            .a = k;
    }
    add(rows, "vote.sync.ballot.b32", "r = p r", "the lanes where a holds", vote, Undefined::strict).a = BALLOT;
    add_reductions<u32>(rows, "u32");
    add_reductions<s32>(rows, "s32");
    add(rows, "redux.sync.and.b32", "r = r r", "bits of all lanes in b", reduce<u32, [](u32 a, u32 b) { return a & b; }>,
        Undefined::strict);
    add(rows, "redux.sync.or.b32", "r = r r", "bits of any lane in b", reduce<u32, [](u32 a, u32 b) { return a | b; }>,
        Undefined::strict);
    add(rows, "redux.sync.xor.b32", "r = r r", "bits of an odd number of lanes in b",
        reduce<u32, [](u32 a, u32 b) { return a ^ b; }>, Undefined::strict);
    add(rows, "match.any.sync.b32", "r = r r", "the lanes with the same a", match<u32, false>, Undefined::strict);
    add(rows, "match.all.sync.b32", "r p? = r r", "all lanes if a is the same in all, else none", match<u32, true>,
        Undefined::strict);
    add(rows, "match.any.sync.b64", "r = R r", "the lanes with the same a", match<u64, false>, Undefined::strict);
    add(rows, "elect.sync", "r p = r", "the lowest of the lanes in a", elect, Undefined::strict);
    add(rows, "activemask.b32", "r =", "the lanes that are here", active);
    add(rows, "bar.warp.sync", "= r", "the lanes in a wait for each other; orders their memory", sync_warp, Undefined::strict);
}
}  // namespace ptx
