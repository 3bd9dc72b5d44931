// Floats: IEEE single precision, NaN as 0x7fffffff, with and without flushing of denormals. Approximate functions are more exact
// here.
#include "rows.h"

namespace ptx {
using F1 = f32 (*)(f32);
using F2 = f32 (*)(f32, f32);

static f32 plus(f32 a, f32 b) {
    return a + b;
}
static f32 minus(f32 a, f32 b) {
    return a - b;
}
static f32 times(f32 a, f32 b) {
    return a * b;
}
static f32 divided(f32 a, f32 b) {
    return a / b;
}
// a number before a NaN; +0 above -0
static f32 smaller(f32 a, f32 b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
}
static f32 larger(f32 a, f32 b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? b : a;
    return a > b ? a : b;
}
static f32 smaller_or_nan(f32 a, f32 b) {
    return a != a || b != b ? NAN : smaller(a, b);
}
static f32 larger_or_nan(f32 a, f32 b) {
    return a != a || b != b ? NAN : larger(a, b);
}

template <F2 F, bool FLUSH>
static Next two(Step& s) {
    return binary<f32, f32, f32,
                  [](f32 a, f32 b) { return FLUSH ? flushed(canonical(F(flushed(a), flushed(b)))) : canonical(F(a, b)); }>(s);
}
template <F1 F, bool FLUSH>
static Next one(Step& s) {
    return unary<f32, f32, [](f32 a) { return FLUSH ? flushed(canonical(F(flushed(a)))) : canonical(F(a)); }>(s);
}
template <bool FLUSH>
static Next fused(Step& s) {
    return ternary<f32, f32, f32, f32, [](f32 a, f32 b, f32 c) {
        return FLUSH ? flushed(canonical(__builtin_fmaf(flushed(a), flushed(b), flushed(c)))) : canonical(__builtin_fmaf(a, b, c));
    }>(s);
}
static f32 saturated(f32 x) {
    return x != x || x <= 0 ? 0.f : x > 1 ? 1.f : x;
}

template <F2 F>
static void add_two(Rows& rows, const std::string& name, const std::string& rounding, const std::string& meaning) {
    add(rows, name + rounding + ".f32", "r = r r", meaning, two<F, false>);
    add(rows, name + rounding + ".ftz.f32", "r = r r", meaning + ", denormals as 0", two<F, true>);
}
template <F1 F>
static void add_one(Rows& rows, const std::string& name, const std::string& meaning) {
    add(rows, name + ".f32", "r = r", meaning, one<F, false>);
    add(rows, name + ".ftz.f32", "r = r", meaning + ", denormals as 0", one<F, true>);
}

static f32 exp2_of(f32 a) {
    return exp2f(a);
}
static f32 log2_of(f32 a) {
    return log2f(a);
}
static f32 reciprocal(f32 a) {
    return 1.f / a;
}
static f32 root(f32 a) {
    return sqrtf(a);
}
static f32 reciprocal_root(f32 a) {
    return 1.f / sqrtf(a);
}
static f32 tanh_of(f32 a) {
    return tanhf(a);
}
static f32 sine(f32 a) {
    return sinf(a);
}
static f32 cosine(f32 a) {
    return cosf(a);
}
static f32 negated(f32 a) {
    return -a;
}
static f32 magnitude(f32 a) {
    return std::fabs(a);
}

// Rounding to odd: what is lost stays visible in the last bit, so that a second rounding is that of the exact number.
static f64 sum_to_odd(f64 a, f64 b) {
    const f64 s = a + b, part = s - a, lost = (a - (s - part)) + (b - part);
    if (lost == 0 || lost != lost) return s;
    const u64 bits = bits_as<u64>(s);
    return bits_as<f64>((std::signbit(lost) != std::signbit(s) ? bits - 1 : bits) | 1);
}
static f32 single_to_odd(f64 x) {
    const f32 s = (f32)x;
    if ((f64)s == x || x != x || std::isinf(s)) return s;
    const u32 bits = bits_as<u32>(s);
    return bits_as<f32>((std::fabs((f64)s) > std::fabs(x) ? bits - 1 : bits) | 1);
}

// Directed roundings: what is rounded to odd in double precision is cut to single as the exact number would be.
enum class Cut { zero, down, up };
template <Cut CUT>
static f32 cut(f64 x) {
    const f32 s = (f32)x;
    if ((f64)s == x || x != x) return s;
    const u32 bits = bits_as<u32>(s);
    if (CUT == Cut::zero ? std::fabs((f64)s) > std::fabs(x) : CUT == Cut::down ? (f64)s > x : (f64)s < x)
        return bits_as<f32>(CUT == Cut::zero || std::signbit(s) == (CUT == Cut::up) ? bits - 1 : bits + 1);
    return s;
}
template <Cut CUT, bool FLUSH>
static f32 cut_fma(f32 x, f32 y, f32 z) {
    const f32 a = FLUSH ? flushed(x) : x, b = FLUSH ? flushed(y) : y, c = FLUSH ? flushed(z) : z;
    const f64 product = (f64)a * b, sum = sum_to_odd(product, c);
    const bool cancels = sum == 0 && std::signbit(product) != std::signbit((f64)c);
    const f32 r = canonical(cancels ? (CUT == Cut::down ? -0.f : 0.f) : cut<CUT>(sum));
    return FLUSH ? flushed(r) : r;
}
template <Cut CUT, bool FLUSH>
static f32 cut_product(f32 a, f32 b) {
    const f32 r = canonical(cut<CUT>(FLUSH ? (f64)flushed(a) * flushed(b) : (f64)a * b));
    return FLUSH ? flushed(r) : r;
}
template <Cut CUT, bool FLUSH>
static void add_cut(Rows& rows, const std::string& suffix, const std::string& how) {
    add(rows, "add" + suffix, "r = r r", "a + b, " + how,
        binary<f32, f32, f32, [](f32 a, f32 b) { return cut_fma<CUT, FLUSH>(a, 1.f, b); }>);
    add(rows, "sub" + suffix, "r = r r", "a - b, " + how,
        binary<f32, f32, f32, [](f32 a, f32 b) { return cut_fma<CUT, FLUSH>(b, -1.f, a); }>);
    add(rows, "mul" + suffix, "r = r r", "a * b, " + how, binary<f32, f32, f32, cut_product<CUT, FLUSH>>);
    add(rows, "fma" + suffix, "r = r r r", "a * b + c, rounded once, " + how, ternary<f32, f32, f32, f32, cut_fma<CUT, FLUSH>>);
}
template <Cut CUT>
static void add_cuts(Rows& rows, const std::string& mode, const std::string& how) {
    add_cut<CUT, false>(rows, "." + mode + ".f32", how);
    add_cut<CUT, true>(rows, "." + mode + ".ftz.f32", how + ", denormals as 0");
}

// What CUDA's own sin, cos and tan need of double precision.
static void add_doubles(Rows& rows) {
    for (const std::string rounding : {"", ".rn"}) {
        add(rows, "add" + rounding + ".f64", "R = R R", "a + b, to nearest even", binary<f64, f64, f64, [](f64 a, f64 b) { return a + b; }>);
        add(rows, "sub" + rounding + ".f64", "R = R R", "a - b, to nearest even", binary<f64, f64, f64, [](f64 a, f64 b) { return a - b; }>);
        add(rows, "mul" + rounding + ".f64", "R = R R", "a * b, to nearest even", binary<f64, f64, f64, [](f64 a, f64 b) { return a * b; }>);
    }
    add(rows, "fma.rn.f64", "R = R R R", "a * b + c, rounded once",
        ternary<f64, f64, f64, f64, [](f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }>);
}

// Two halves in a register; each is computed in single precision and rounded once.
template <bool BF16, auto F>
static u32 halves(u32 a, u32 b, u32 c) {
    u32 r = 0;
    for (int k = 0; k < 32; k += 16) {
        const auto value = [&](u32 x) { return BF16 ? of_bf16(x >> k & 0xffff) : of_f16(x >> k & 0xffff); };
        const f32 d = F(value(a), value(b), value(c));
        r |= (BF16 ? to_bf16(d) : d != d ? 0x7fffu : to_f16(d)) << k;
    }
    return r;
}
template <bool BF16>
static void add_halves(Rows& rows, const std::string& type) {
    // the product of two halves is exact in double precision
    add(rows, "fma.rn." + type, "r = r r r", "a * b + c of both halves",
        ternary<u32, u32, u32, u32, halves<BF16, [](f32 a, f32 b, f32 c) { return single_to_odd(sum_to_odd((f64)a * b, c)); }>>);
    const auto two_halves = [&](const std::string& name, const char* meaning, Run run) {
        add(rows, name + "." + type, "r = r r", meaning, run);
    };
    two_halves("add", "a + b of both halves",
               binary<u32, u32, u32, [](u32 a, u32 b) { return halves<BF16, [](f32 x, f32 y, f32) { return x + y; }>(a, b, 0); }>);
    two_halves("add.rn", "a + b of both halves",
               binary<u32, u32, u32, [](u32 a, u32 b) { return halves<BF16, [](f32 x, f32 y, f32) { return x + y; }>(a, b, 0); }>);
    two_halves("sub", "a - b of both halves",
               binary<u32, u32, u32, [](u32 a, u32 b) { return halves<BF16, [](f32 x, f32 y, f32) { return x - y; }>(a, b, 0); }>);
    two_halves("mul", "a * b of both halves",
               binary<u32, u32, u32, [](u32 a, u32 b) { return halves<BF16, [](f32 x, f32 y, f32) { return x * y; }>(a, b, 0); }>);
    two_halves("mul.rn", "a * b of both halves",
               binary<u32, u32, u32, [](u32 a, u32 b) { return halves<BF16, [](f32 x, f32 y, f32) { return x * y; }>(a, b, 0); }>);
    two_halves(
        "min", "the smaller of both halves",
        binary<u32, u32, u32, [](u32 a, u32 b) { return halves<BF16, [](f32 x, f32 y, f32) { return smaller(x, y); }>(a, b, 0); }>);
    two_halves(
        "max", "the larger of both halves",
        binary<u32, u32, u32, [](u32 a, u32 b) { return halves<BF16, [](f32 x, f32 y, f32) { return larger(x, y); }>(a, b, 0); }>);
}

void add_float_rows(Rows& rows) {
    for (const char* rounding : {"", ".rn"}) {
        add_two<plus>(rows, "add", rounding, "a + b, to nearest even");
        add_two<minus>(rows, "sub", rounding, "a - b, to nearest even");
        add_two<times>(rows, "mul", rounding, "a * b, to nearest even");
    }
    add_two<divided>(rows, "div", ".rn", "a / b, to nearest even");
    add_two<divided>(rows, "div", ".full", "a / b within 2 ulp");
    add_two<divided>(rows, "div", ".approx", "a / b within 2 ulp for |b| from 2^-126 to 2^126");
    add_two<smaller>(rows, "min", "", "the smaller; a number before a NaN");
    add_two<larger>(rows, "max", "", "the larger; a number before a NaN");
    add_two<smaller_or_nan>(rows, "min", ".NaN", "the smaller; NaN if one is");
    add_two<larger_or_nan>(rows, "max", ".NaN", "the larger; NaN if one is");
    add(rows, "fma.rn.f32", "r = r r r", "a * b + c, rounded once", fused<false>);
    add(rows, "fma.rn.ftz.f32", "r = r r r", "a * b + c, rounded once, denormals as 0", fused<true>);
    add(rows, "fma.rn.sat.f32", "r = r r r", "a * b + c, rounded once, then in 0 to 1",
        ternary<f32, f32, f32, f32, [](f32 a, f32 b, f32 c) { return saturated(__builtin_fmaf(a, b, c)); }>);
    add(rows, "add.sat.f32", "r = r r", "a + b, then in 0 to 1; NaN as 0",
        binary<f32, f32, f32, [](f32 a, f32 b) { return saturated(a + b); }>);
    add_one<exp2_of>(rows, "ex2.approx", "2^a within 2 ulp");
    add_one<log2_of>(rows, "lg2.approx", "log2(a) within 2^-22 absolute or relative");
    add_one<reciprocal>(rows, "rcp.approx", "1 / a within 1 ulp");
    add_one<reciprocal>(rows, "rcp.rn", "1 / a, to nearest even");
    add_one<root>(rows, "sqrt.rn", "square root, to nearest even");
    add_one<root>(rows, "sqrt.approx", "square root within 2 ulp");
    add_one<reciprocal_root>(rows, "rsqrt.approx", "1 / square root within 2^-22.9");
    add_one<sine>(rows, "sin.approx", "sin(a) within 2^-20.9 for |a| <= pi");
    add_one<cosine>(rows, "cos.approx", "cos(a) within 2^-20.9 for |a| <= pi");
    add(rows, "tanh.approx.f32", "r = r", "tanh(a) within 2^-11", one<tanh_of, false>);
    add_one<negated>(rows, "neg", "-a");
    add_one<magnitude>(rows, "abs", "|a|");
    add(rows, "copysign.f32", "r = r r", "b with the sign of a",
        binary<u32, u32, u32, [](u32 a, u32 b) { return (a & 0x80000000u) | (b & 0x7fffffffu); }>);
    add_cuts<Cut::zero>(rows, "rz", "towards zero");
    add_cuts<Cut::down>(rows, "rm", "down");
    add_cuts<Cut::up>(rows, "rp", "up");
    add_doubles(rows);
    add_halves<true>(rows, "bf16x2");
    add_halves<false>(rows, "f16x2");
}
}  // namespace ptx
