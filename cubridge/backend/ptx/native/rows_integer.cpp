// Integers: arithmetic modulo 2^n, bits, shifts. 16-bit values lie zero-extended in 4 bytes.
#include "rows.h"

namespace ptx {
template <class U, class S>
static void add_width(Rows& rows, const std::string& n, const std::string& r) {
    const std::string two = r + " = " + r + " " + r, three = two + " " + r, one = r + " = " + r, shift = r + " = " + r + " r";
    for (const char* t : {"s", "u"}) {
        const std::string type = t + n;
        add(rows, "add." + type, two, "a + b, modulo 2^n", binary<U, U, U, [](U a, U b) { return a + b; }>);
        add(rows, "sub." + type, two, "a - b, modulo 2^n", binary<U, U, U, [](U a, U b) { return a - b; }>);
        add(rows, "mul.lo." + type, two, "low half of a * b", binary<U, U, U, [](U a, U b) { return a * b; }>);
        add(rows, "mad.lo." + type, three, "low half of a * b, plus c",
            ternary<U, U, U, U, [](U a, U b, U c) { return a * b + c; }>);
    }
    constexpr int BITS = sizeof(U) * 8;
    add(rows, "min.s" + n, two, "the smaller", binary<S, S, S, [](S a, S b) { return a < b ? a : b; }>);
    add(rows, "max.s" + n, two, "the larger", binary<S, S, S, [](S a, S b) { return a < b ? b : a; }>);
    add(rows, "min.u" + n, two, "the smaller", binary<U, U, U, [](U a, U b) { return a < b ? a : b; }>);
    add(rows, "max.u" + n, two, "the larger", binary<U, U, U, [](U a, U b) { return a < b ? b : a; }>);
    add(rows, "neg.s" + n, one, "-a, modulo 2^n", unary<U, U, [](U a) { return 0 - a; }>);
    add(rows, "abs.s" + n, one, "|a|, modulo 2^n", unary<U, S, [](S a) { return a < 0 ? 0 - (U)a : (U)a; }>);
    add(rows, "not.b" + n, one, "every bit the other", unary<U, U, [](U a) { return ~a; }>);
    add(rows, "xor.b" + n, two, "bits of one of both", binary<U, U, U, [](U a, U b) { return a ^ b; }>);
    add(rows, "shl.b" + n, shift, "a << b; 0 for b >= n", binary<U, U, u32, [](U a, u32 b) { return (b >= BITS ? 0 : a << b); }>);
    for (const char* t : {"u", "b"}) {
        add(rows, std::string("shr.") + t + n, shift, "a >> b; 0 for b >= n",
            binary<U, U, u32, [](U a, u32 b) { return (b >= BITS ? 0 : a >> b); }>);
    }
    add(rows, "shr.s" + n, shift, "a >> b, the sign shifted in; b >= n as n - 1",
        binary<S, S, u32, [](S a, u32 b) { return (a >> (b >= BITS ? BITS - 1 : b)); }>);
    add(rows, "clz.b" + n, "r = " + r, "zeros above the highest one",
        unary<u32, U, [](U a) { return a ? __builtin_clzll((u64)a) - (64 - BITS) : BITS; }>);
    add(rows, "popc.b" + n, "r = " + r, "ones", unary<u32, U, [](U a) { return __builtin_popcountll(a); }>);
}

// A division by zero ends the run: the hardware's result is not specified.
template <class T, bool REMAINDER>
static Next divide(Step& s) {
    T* d = s.out<T>();
    const T* a = s.in<T>(0);
    const T* b = s.in<T>(1);
    each_lane(s.mask, [&](int l) {
        if (b[l] == 0) s.fault(FaultKind::crash, "an integer is divided by zero");
        const bool wraps = std::is_signed_v<T> && b[l] == (T)-1;
        if (REMAINDER)
            d[l] = wraps ? 0 : a[l] % b[l];
        else
            d[l] = wraps ? (T)(0 - (std::make_unsigned_t<T>)a[l]) : a[l] / b[l];
    });
    return Next::go_on;
}

// A zero bit of one operand makes the bit of `and` known, whatever the other is; a one that of `or`. Kept for whole lanes.
template <class U, bool AND>
static Next both_or_one(Step& s) {
    U* d = s.out<U>();
    const U *a = s.in<U>(0), *b = s.in<U>(1);
    const u32 ua = s.undefined_of(s.source(0)), ub = s.undefined_of(s.source(1));
    u32 undefined = ua | ub;
    each_lane(undefined & s.mask, [&](int l) {
        const U known = AND ? (U)0 : (U) ~(U)0;
        const bool decided = (!(ua >> l & 1) && a[l] == known) || (!(ub >> l & 1) && b[l] == known);
        if (decided) undefined &= ~(1u << l);
    });
    const int from = s.origin_of(s.source(ua & s.mask ? 0 : 1));
    assign(d, s.mask, [&](int l) { return AND ? a[l] & b[l] : a[l] | b[l]; });
    s.set_undefined(s.operand(0), undefined, from);
    return Next::go_on;
}

static u32 reversed(u32 a) {
    u32 r = 0;
    for (int k = 0; k < 32; ++k) r |= (a >> k & 1) << (31 - k);
    return r;
}

static Next lop3(Step& s) {
    u32* d = s.out<u32>();
    const u32 *a = s.in<u32>(0), *b = s.in<u32>(1), *c = s.in<u32>(2);
    const u32 table = s.in<u32>(3)[0];
    assign(d, s.mask, [&](int l) {
        u32 r = 0;
        for (int row = 0; row < 8; ++row) {
            if (table >> row & 1) r |= (row & 4 ? a[l] : ~a[l]) & (row & 2 ? b[l] : ~b[l]) & (row & 1 ? c[l] : ~c[l]);
        }
        return r;
    });
    return Next::go_on;
}

// Of 64 bits the compiler makes a sequence that does not cut place and length to 8 bits.
template <class U>
static Next bfi(Step& s) {
    constexpr u32 BITS = sizeof(U) * 8, KEPT = BITS == 32 ? 255 : ~0u;
    U* d = s.out<U>();
    const U *a = s.in<U>(0), *b = s.in<U>(1);
    const u32 *start = s.in<u32>(2), *length = s.in<u32>(3);
    assign(d, s.mask, [&](int l) {
        const u32 at = start[l] & KEPT, n = length[l] & KEPT;
        if (at >= BITS || !n) return b[l];
        const U field = (n >= BITS ? ~(U)0 : ((U)1 << n) - 1) << at;
        return (b[l] & ~field) | (a[l] << at & field);
    });
    return Next::go_on;
}

template <bool SIGNED>
static Next bfe(Step& s) {
    u32* d = s.out<u32>();
    const u32 *a = s.in<u32>(0), *start = s.in<u32>(1), *length = s.in<u32>(2);
    assign(d, s.mask, [&](int l) {
        const u32 at = start[l] & 255, n = length[l] & 255;
        u32 r = 0;
        const u32 sign = SIGNED && n ? a[l] >> std::min(at + n - 1, 31u) & 1 : 0;
        for (u32 k = 0; k < 32; ++k) r |= (k < n && at + k < 32 ? a[l] >> (at + k) & 1 : sign) << k;
        return r;
    });
    return Next::go_on;
}

static u32 bytes_chosen(u32 a, u32 b, u32 choice) {
    const u64 both = (u64)b << 32 | a;
    u32 r = 0;
    for (int k = 0; k < 4; ++k) {
        const u32 which = choice >> 4 * k & 15;
        u32 byte = both >> 8 * (which & 7) & 255;
        if (which & 8) byte = byte & 128 ? 255 : 0;
        r |= byte << 8 * k;
    }
    return r;
}

void add_integer_rows(Rows& rows) {
    add_width<u32, s32>(rows, "32", "r");
    add_width<u64, s64>(rows, "64", "R");
    for (const char* type : {"s16", "u16"}) {
        const std::string t = type;
        add(rows, "add." + t, "r = r r", "a + b, modulo 2^16", binary<u32, u32, u32, [](u32 a, u32 b) { return (u16)(a + b); }>);
        add(rows, "sub." + t, "r = r r", "a - b, modulo 2^16", binary<u32, u32, u32, [](u32 a, u32 b) { return (u16)(a - b); }>);
        add(rows, "mul.lo." + t, "r = r r", "low half of a * b", binary<u32, u32, u32, [](u32 a, u32 b) { return (u16)(a * b); }>);
    }
    add(rows, "not.b16", "r = r", "every bit the other", unary<u32, u32, [](u32 a) { return (u16)~a; }>);
    add(rows, "xor.b16", "r = r r", "bits of one of both", binary<u32, u32, u32, [](u32 a, u32 b) { return (u16)(a ^ b); }>);
    add(rows, "shl.b16", "r = r r", "a << b; 0 for b >= 16",
        binary<u32, u32, u32, [](u32 a, u32 b) { return (b > 15 ? 0 : (u16)(a << b)); }>);
    add(rows, "shr.u16", "r = r r", "a >> b; 0 for b >= 16",
        binary<u32, u32, u32, [](u32 a, u32 b) { return (b > 15 ? 0 : (u16)a >> b); }>);
    add(rows, "shr.s16", "r = r r", "a >> b, the sign shifted in",
        binary<u32, u32, u32, [](u32 a, u32 b) { return ((u16)((s16)a >> (b > 15 ? 15 : b))); }>);
    for (const char* n : {"16", "32"}) {
        add(rows, std::string("and.b") + n, "r = r r", "bits of both", both_or_one<u32, true>, Undefined::own);
        add(rows, std::string("or.b") + n, "r = r r", "bits of either", both_or_one<u32, false>, Undefined::own);
    }
    add(rows, "and.b64", "R = R R", "bits of both", both_or_one<u64, true>, Undefined::own);
    add(rows, "or.b64", "R = R R", "bits of either", both_or_one<u64, false>, Undefined::own);
    add(rows, "div.s32", "r = r r", "a / b, towards zero; b = 0 is a fault", divide<s32, false>);
    add(rows, "div.u32", "r = r r", "a / b; b = 0 is a fault", divide<u32, false>);
    add(rows, "div.s64", "R = R R", "a / b, towards zero; b = 0 is a fault", divide<s64, false>);
    add(rows, "div.u64", "R = R R", "a / b; b = 0 is a fault", divide<u64, false>);
    add(rows, "rem.s32", "r = r r", "a - a / b * b; b = 0 is a fault", divide<s32, true>);
    add(rows, "rem.u32", "r = r r", "a - a / b * b; b = 0 is a fault", divide<u32, true>);
    add(rows, "rem.s64", "R = R R", "a - a / b * b; b = 0 is a fault", divide<s64, true>);
    add(rows, "rem.u64", "R = R R", "a - a / b * b; b = 0 is a fault", divide<u64, true>);
    add(rows, "mul.wide.s32", "R = r r", "all 64 bits of a * b", binary<s64, s32, s32, [](s32 a, s32 b) { return (s64)a * b; }>);
    add(rows, "mul.wide.u32", "R = r r", "all 64 bits of a * b", binary<u64, u32, u32, [](u32 a, u32 b) { return (u64)a * b; }>);
    add(rows, "mul.wide.s16", "r = r r", "all 32 bits of a * b",
        binary<u32, u32, u32, [](u32 a, u32 b) { return (s32)(s16)a * (s16)b; }>);
    add(rows, "mul.wide.u16", "r = r r", "all 32 bits of a * b",
        binary<u32, u32, u32, [](u32 a, u32 b) { return (u32)(u16)a * (u16)b; }>);
    add(rows, "mul.hi.s32", "r = r r", "high half of a * b",
        binary<s32, s32, s32, [](s32 a, s32 b) { return ((s64)a * b >> 32); }>);
    add(rows, "mul.hi.u32", "r = r r", "high half of a * b",
        binary<u32, u32, u32, [](u32 a, u32 b) { return ((u64)a * b >> 32); }>);
    add(rows, "mul.hi.s64", "R = R R", "high half of a * b",
        binary<s64, s64, s64, [](s64 a, s64 b) { return ((s64)((__int128)a * b >> 64)); }>);
    add(rows, "mul.hi.u64", "R = R R", "high half of a * b",
        binary<u64, u64, u64, [](u64 a, u64 b) { return ((u64)((unsigned __int128)a * b >> 64)); }>);
    add(rows, "mad.wide.s32", "R = r r R", "a * b + c, 64 bits",
        ternary<s64, s32, s32, s64, [](s32 a, s32 b, s64 c) { return (u64)((s64)a * b) + (u64)c; }>);
    add(rows, "mad.wide.u32", "R = r r R", "a * b + c, 64 bits",
        ternary<u64, u32, u32, u64, [](u32 a, u32 b, u64 c) { return (u64)a * b + c; }>);
    add(rows, "mad.hi.u32", "r = r r r", "high half of a * b, plus c",
        ternary<u32, u32, u32, u32, [](u32 a, u32 b, u32 c) { return ((u32)((u64)a * b >> 32) + c); }>);
    add(rows, "shf.l.wrap.b32", "r = r r r", "high half of {b, a} << (c mod 32)",
        ternary<u32, u32, u32, u32, [](u32 a, u32 b, u32 c) { return (((u64)b << 32 | a) << (c & 31) >> 32); }>);
    add(rows, "shf.r.wrap.b32", "r = r r r", "low half of {b, a} >> (c mod 32)",
        ternary<u32, u32, u32, u32, [](u32 a, u32 b, u32 c) { return (((u64)b << 32 | a) >> (c & 31)); }>);
    add(rows, "shf.l.clamp.b32", "r = r r r", "high half of {b, a} << min(c, 32)",
        ternary<u32, u32, u32, u32, [](u32 a, u32 b, u32 c) { return (c > 31 ? a : ((u64)b << 32 | a) << c >> 32); }>);
    add(rows, "shf.r.clamp.b32", "r = r r r", "low half of {b, a} >> min(c, 32)",
        ternary<u32, u32, u32, u32, [](u32 a, u32 b, u32 c) { return (c > 31 ? b : ((u64)b << 32 | a) >> c); }>);
    add(rows, "brev.b32", "r = r", "the bits in the other order", unary<u32, u32, reversed>);
    add(rows, "bfind.u32", "r = r", "place of the highest one; 2^32 - 1 for 0",
        unary<u32, u32, [](u32 a) { return a ? 31 - __builtin_clz(a) : ~0u; }>);
    add(rows, "lop3.b32", "r = r r r i", "each bit by the table d at the bits of a, b, c", lop3);
    add(rows, "bfi.b32", "r = r r r r", "b with d bits of a from bit c on", bfi<u32>);
    add(rows, "bfi.b64", "R = R R r r", "b with d bits of a from bit c on", bfi<u64>);
    add(rows, "bfe.u32", "r = r r r", "c bits of a from bit b on", bfe<false>);
    add(rows, "bfe.s32", "r = r r r", "c bits of a from bit b on, the highest repeated", bfe<true>);
    add(rows, "prmt.b32", "r = r r r", "bytes of {b, a} by the digits of c; digit + 8: its sign repeated",
        ternary<u32, u32, u32, u32, bytes_chosen>);
}
}  // namespace ptx
