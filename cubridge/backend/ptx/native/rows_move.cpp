// Moves, selections, address conversions.
#include "rows.h"

namespace ptx {
template <class T>
static T same(T a) {
    return a;
}

template <class T>
static Next select(Step& s) {
    T* d = s.out<T>();
    const T *a = s.in<T>(0), *b = s.in<T>(1);
    const u32 choice = s.predicate(2), unknown = s.undefined_of(s.source(2));
    const u32 ua = s.undefined_of(s.source(0)), ub = s.undefined_of(s.source(1));
    const u32 undefined = unknown | (choice & ua) | (~choice & ub);
    const int from = s.origin_of(s.source(unknown & s.mask ? 2 : choice & ua & s.mask ? 0 : 1));
    assign(d, s.mask, [&](int l) { return choice >> l & 1 ? a[l] : b[l]; });
    s.set_undefined(s.operand(0), undefined, from);
    return Next::go_on;
}

// {a, b, ..} in one register, the first in its low bits
template <class D, class PART, int N>
static Next pack(Step& s) {
    D* d = s.out<D>();
    assign(d, s.mask, [&](int l) {
        u64 r = 0;
        for (int k = 0; k < N; ++k) r |= (u64)(PART)s.in<u32>(k)[l] << (8 * sizeof(PART) * k);
        return (D)r;
    });
    return Next::go_on;
}
template <class A, class PART, int N>
static Next unpack(Step& s) {
    A a[LANES];
    memcpy(a, s.in<A>(0), sizeof a);
    for (int k = 0; k < N; ++k) {
        if (s.operand(k).slot < 0) continue;
        assign(s.out<u32>(k), s.mask, [&](int l) { return (u32)(PART)(a[l] >> (8 * sizeof(PART) * k)); });
    }
    return Next::go_on;
}

template <Space SPACE>
static u64 to_generic(u64 a) {
    return SPACE == Space::shared ? (a & 0xffffffffu) | window(SPACE) : a | window(SPACE);
}
template <Space SPACE>
static Next from_generic(Step& s) {
    u64* d = s.out<u64>();
    const u64* a = s.in<u64>(0);
    each_lane(s.mask, [&](int l) {
        if (a[l] >> SPACE_SHIFT != (u64)SPACE) s.misuse("an address of another memory space is converted");
        d[l] = a[l] & OFFSET_BITS;
    });
    return Next::go_on;
}

static Next move_predicate(Step& s) {
    const Operand& from = s.source(0);
    s.set_predicate(0, s.predicate(0));
    s.set_undefined(s.operand(0), s.undefined_of(from), s.origin_of(from));
    return Next::go_on;
}

void add_move_rows(Rows& rows) {
    for (const char* t : {"b32", "u32", "s32", "f32", "b16", "u16", "s16"})
        add(rows, std::string("mov.") + t, "r = r", "a", unary<u32, u32, same<u32>>).touch = Touch::moves;
    for (const char* t : {"b64", "u64", "s64", "f64"}) add(rows, std::string("mov.") + t, "R = R", "a", unary<u64, u64, same<u64>>);
    add(rows, "mov.pred", "p = p", "a", move_predicate, Undefined::own);
    for (const char* t : {"b32", "u32", "s32", "f32", "b16", "u16", "s16"})
        add(rows, std::string("selp.") + t, "r = r r p", "a where c holds, else b", select<u32>, Undefined::own);
    for (const char* t : {"b64", "u64", "s64", "f64"})
        add(rows, std::string("selp.") + t, "R = R R p", "a where c holds, else b", select<u64>, Undefined::own);
    add(rows, "mov.b64 pack", "R = r*2", "two words, the first below", pack<u64, u32, 2>);
    add(rows, "mov.b64 pack4", "R = r*4", "four halves, the first below", pack<u64, u16, 4>);
    add(rows, "mov.b32 pack", "r = r*2", "two halves, the first below", pack<u32, u16, 2>);
    add(rows, "mov.b32 pack4", "r = r*4", "four bytes, the first below", pack<u32, u8, 4>);
    add(rows, "mov.b64 unpack", "r*2 = R", "its two words, the low one first", unpack<u64, u32, 2>);
    add(rows, "mov.b64 unpack4", "r*4 = R", "its four halves, the low one first", unpack<u64, u16, 4>);
    add(rows, "mov.b32 unpack", "r*2 = r", "its two halves, the low one first", unpack<u32, u16, 2>);
    add(rows, "mov.b32 unpack4", "r*4 = r", "its four bytes, the low one first", unpack<u32, u8, 4>);
    add(rows, "cvta.global.u64", "R = R", "the generic address", unary<u64, u64, same<u64>>);
    add(rows, "cvta.to.global.u64", "R = R", "the address in global memory", unary<u64, u64, same<u64>>);
    add(rows, "cvta.shared.u64", "R = R", "the generic address", unary<u64, u64, to_generic<Space::shared>>);
    add(rows, "cvta.to.shared.u64", "R = R", "the address in shared memory", from_generic<Space::shared>);
    add(rows, "cvta.local.u64", "R = R", "the generic address", unary<u64, u64, to_generic<Space::local>>);
    add(rows, "cvta.to.local.u64", "R = R", "the address in local memory", from_generic<Space::local>);
    add(rows, "cvta.param.u64", "R = R", "the generic address", unary<u64, u64, to_generic<Space::param>>);
    add(rows, "cvta.to.param.u64", "R = R", "the address in parameter memory", from_generic<Space::param>);
    add(rows, "mapa.shared::cluster.u32", "r = r r", "the address a in the shared memory of CTA b of the cluster",
        binary<u32, u32, u32, [](u32 a, u32 b) { return (b + 1) << RANK_SHIFT | (a & SHARED_BITS); }>);
}
}  // namespace ptx
