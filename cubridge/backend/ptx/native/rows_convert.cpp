// Conversions between numbers.
#include "rows.h"

namespace ptx {
f32 of_f16(u32 bits) {
    _Float16 h;
    const u16 narrow = (u16)bits;
    memcpy(&h, &narrow, 2);
    return (f32)h;
}
u32 to_f16(f32 x) {
    const _Float16 h = (_Float16)x;  // to nearest even
    u16 bits;
    memcpy(&bits, &h, 2);
    return bits;
}
static u32 half_of(f32 x) {
    return x != x ? 0x7fffu : to_f16(x);
}

// Beyond the target's range the nearest end; NaN is 0 (2^63 to 64 bits).
template <class T>
static T clamped(f64 x, bool nan) {
    if (nan) return sizeof(T) == 8 ? (T)(1ull << 63) : 0;
    if (x >= std::ldexp(1.0, sizeof(T) * 8 - std::is_signed_v<T>)) return std::numeric_limits<T>::max();
    if (x < (f64)std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
    return (T)x;
}
template <class T, class D, auto ROUND>
static D to_integer(f32 a) {
    return (D)clamped<T>(ROUND((f64)a), a != a);
}
static f64 toward_zero(f64 x) {
    return std::trunc(x);
}
static f64 nearest(f64 x) {
    return std::nearbyint(x);
}
static f64 down(f64 x) {
    return std::floor(x);
}
static f64 up(f64 x) {
    return std::ceil(x);
}

template <auto ROUND>
static void add_rounding_to(Rows& rows, const std::string& head, const std::string& how) {
    add(rows, head + ".s32.f32", "r = r", "integer, " + how + ", clamped; NaN is 0",
        unary<u32, f32, to_integer<s32, u32, ROUND>>);
    add(rows, head + ".u32.f32", "r = r", "integer, " + how + ", clamped; NaN is 0",
        unary<u32, f32, to_integer<u32, u32, ROUND>>);
    add(rows, head + ".s64.f32", "R = r", "integer, " + how + ", clamped", unary<u64, f32, to_integer<s64, u64, ROUND>>);
    add(rows, head + ".f32.f32", "r = r", "whole number, " + how,
        unary<f32, f32, [](f32 a) { return canonical((f32)ROUND((f64)a)); }>);
}

template <auto ROUND>
static void add_rounding(Rows& rows, const std::string& mode, const std::string& how) {
    add_rounding_to<ROUND>(rows, "cvt." + mode, how);
    add_rounding_to<[](f64 x) { return ROUND((f64)flushed((f32)x)); }>(rows, "cvt." + mode + ".ftz", how + ", denormals as 0");
}

// integer to integer: the source's type says how it is extended
template <class S, class SOURCE, class D, class DEST>
static void add_integer(Rows& rows, const std::string& to, const std::string& from, const std::string& operands) {
    add(rows, "cvt." + to + "." + from, operands, "the integer, modulo 2^n of the result",
        unary<DEST, SOURCE, [](SOURCE a) { return (DEST)(D)(S)a; }>);
}
template <class S, class SOURCE>
static void add_integers_from(Rows& rows, const std::string& from, const std::string& source) {
    add_integer<S, SOURCE, u8, u32>(rows, "u8", from, "r = " + source);
    add_integer<S, SOURCE, u16, u32>(rows, "u16", from, "r = " + source);
    add_integer<S, SOURCE, u16, u32>(rows, "s16", from, "r = " + source);
    add_integer<S, SOURCE, u32, u32>(rows, "u32", from, "r = " + source);
    add_integer<S, SOURCE, u32, u32>(rows, "s32", from, "r = " + source);
    add_integer<S, SOURCE, u64, u64>(rows, "u64", from, "R = " + source);
    add_integer<S, SOURCE, u64, u64>(rows, "s64", from, "R = " + source);
}

void add_convert_rows(Rows& rows) {
    add_integers_from<u8, u32>(rows, "u8", "r");
    add_integers_from<s8, u32>(rows, "s8", "r");
    add_integers_from<u16, u32>(rows, "u16", "r");
    add_integers_from<s16, u32>(rows, "s16", "r");
    add_integers_from<u32, u32>(rows, "u32", "r");
    add_integers_from<s32, u32>(rows, "s32", "r");
    add_integers_from<u64, u64>(rows, "u64", "R");
    add_integers_from<s64, u64>(rows, "s64", "R");
    add_rounding<toward_zero>(rows, "rzi", "towards zero");
    add_rounding<nearest>(rows, "rni", "to nearest even");
    add_rounding<down>(rows, "rmi", "down");
    add_rounding<up>(rows, "rpi", "up");
    add(rows, "cvt.rn.f32.s32", "r = r", "to nearest even", unary<f32, s32, [](s32 a) { return (f32)a; }>);
    add(rows, "cvt.rn.f32.u32", "r = r", "to nearest even", unary<f32, u32, [](u32 a) { return (f32)a; }>);
    add(rows, "cvt.rn.f32.s64", "r = R", "to nearest even", unary<f32, s64, [](s64 a) { return (f32)a; }>);
    add(rows, "cvt.rn.f32.u64", "r = R", "to nearest even", unary<f32, u64, [](u64 a) { return (f32)a; }>);
    add(rows, "cvt.rn.f32.u16", "r = r", "exact", unary<f32, u32, [](u32 a) { return (f32)(u16)a; }>);
    add(rows, "cvt.rn.f32.s16", "r = r", "exact", unary<f32, u32, [](u32 a) { return (f32)(s16)a; }>);
    add(rows, "cvt.rn.f64.s64", "R = R", "to nearest even", unary<f64, s64, [](s64 a) { return (f64)a; }>);
    add(rows, "cvt.rn.f64.u64", "R = R", "to nearest even", unary<f64, u64, [](u64 a) { return (f64)a; }>);
    add(rows, "cvt.rn.f64.s32", "R = r", "exact", unary<f64, s32, [](s32 a) { return (f64)a; }>);
    add(rows, "cvt.rn.f64.u32", "R = r", "exact", unary<f64, u32, [](u32 a) { return (f64)a; }>);
    add(rows, "cvt.f64.f32", "R = r", "exact", unary<f64, f32, [](f32 a) { return (f64)a; }>);
    add(rows, "cvt.rn.f32.f64", "r = R", "to nearest even; of a NaN the upper bits", unary<f32, f64, [](f64 a) { return (f32)a; }>);
    add(rows, "cvt.f32.bf16", "r = r", "exact", unary<f32, u32, [](u32 a) { return of_bf16(a & 0xffff); }>);
    add(rows, "cvt.f32.f16", "r = r", "exact", unary<f32, u32, [](u32 a) { return canonical(of_f16(a & 0xffff)); }>);
    add(rows, "cvt.rn.bf16.f32", "r = r", "to nearest even; NaN is 0x7fff", unary<u32, f32, to_bf16>);
    add(rows, "cvt.rn.f16.f32", "r = r", "to nearest even; NaN is 0x7fff", unary<u32, f32, half_of>);
    add(rows, "cvt.rn.bf16x2.f32", "r = r r", "a above b, each to nearest even; NaN is 0x7fff",
        binary<u32, f32, f32, [](f32 a, f32 b) { return to_bf16(a) << 16 | to_bf16(b); }>);
    add(rows, "cvt.rn.f16x2.f32", "r = r r", "a above b, each to nearest even; NaN is 0x7fff",
        binary<u32, f32, f32, [](f32 a, f32 b) { return half_of(a) << 16 | half_of(b); }>);
    add(rows, "cvt.sat.f32.f32", "r = r", "in 0 to 1; NaN is 0",
        unary<f32, f32, [](f32 a) { return (a != a || a <= 0 ? 0.f
                                            : a > 1         ? 1.f
                                                            : a); }>);
}
}  // namespace ptx
