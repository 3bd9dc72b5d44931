// What is known of numbers and truths that many elements have: their bounds. Arithmetic of bounds holds for every element, whatever
// goes with what; what 32 bits may not hold has no bounds.
#pragma once
#include "common/base.cuh"

constexpr int INT_LEAST = -2147483647 - 1, INT_MOST = 2147483647;

// Is it so for some element, and for every one. Unknown: perhaps for some.
struct Truth {
    bool some, every;
    DEVICE Truth(bool x) : some(x), every(x) {}
    DEVICE Truth(bool some, bool every) : some(some), every(every) {}
};
DEVICE Truth unknown_truth() { return Truth(true, false); }

// No less than lo and no more than hi.
struct IntSpan {
    int lo, hi;
    DEVICE IntSpan(int x) : lo(x), hi(x) {}
    DEVICE IntSpan(int lo, int hi) : lo(lo), hi(hi) {}
};
DEVICE IntSpan unknown_int() { return IntSpan(INT_LEAST, INT_MOST); }

// NaN, as both: nothing is known, and some may be NaN. No comparison with it says that it is so for every element, or for none.
struct FloatSpan {
    float lo, hi;
    DEVICE FloatSpan(float x) : lo(x), hi(x) {}
    DEVICE FloatSpan(float lo, float hi) : lo(lo), hi(hi) {}
    DEVICE explicit FloatSpan(IntSpan x) : lo((float)x.lo), hi((float)x.hi) {}
};

template <typename T> struct SpanOf {};
template <> struct SpanOf<bool> { typedef Truth Type; };
template <> struct SpanOf<int> { typedef IntSpan Type; };
template <> struct SpanOf<float> { typedef FloatSpan Type; };
template <typename Span> DEVICE Span unknown();
template <> DEVICE Truth unknown<Truth>() { return unknown_truth(); }
template <> DEVICE IntSpan unknown<IntSpan>() { return unknown_int(); }
template <> DEVICE FloatSpan unknown<FloatSpan>() { return FloatSpan(NAN, NAN); }

// ---- of the elements of both ----
DEVICE float least(float a, float b) { return (b < a) | (b != b) ? b : a; }  // NaN if either is
DEVICE float most(float a, float b) { return (b > a) | (b != b) ? b : a; }
DEVICE Truth hull(Truth a, Truth b) { return Truth(a.some | b.some, a.every & b.every); }
DEVICE IntSpan hull(IntSpan a, IntSpan b) { return IntSpan(imin(a.lo, b.lo), imax(a.hi, b.hi)); }
DEVICE FloatSpan hull(FloatSpan a, FloatSpan b) { return FloatSpan(least(a.lo, b.lo), most(a.hi, b.hi)); }

// Of the elements of all lanes.
DEVICE Truth warp_hull(Truth x) { return Truth(__any_sync(0xffffffffu, x.some), __all_sync(0xffffffffu, x.every)); }
DEVICE IntSpan warp_hull(IntSpan x) {
    return IntSpan(__reduce_min_sync(0xffffffffu, x.lo), __reduce_max_sync(0xffffffffu, x.hi));
}
DEVICE FloatSpan warp_hull(FloatSpan x) {
    #pragma unroll
    for (int lane = 1; lane < 32; lane *= 2) {
        x = hull(x, FloatSpan(__shfl_xor_sync(0xffffffffu, x.lo, lane), __shfl_xor_sync(0xffffffffu, x.hi, lane)));
    }
    return x;
}

// ---- truths ----
DEVICE Truth operator!(Truth a) { return Truth(!a.every, !a.some); }
DEVICE Truth operator&(Truth a, Truth b) { return Truth(a.some & b.some, a.every & b.every); }
DEVICE Truth operator|(Truth a, Truth b) { return Truth(a.some | b.some, a.every | b.every); }
template <typename Span> DEVICE Span choose(Truth which, Span a, Span b) {
    return which.every ? a : which.some ? hull(a, b) : b;
}
template <typename Span> DEVICE Truth less(Span a, Span b) { return Truth(!(a.lo >= b.hi), a.hi < b.lo); }
template <typename Span> DEVICE Truth less_equal(Span a, Span b) { return Truth(!(a.lo > b.hi), a.hi <= b.lo); }
template <typename Span> DEVICE Truth equal(Span a, Span b) {
    return Truth(!((a.hi < b.lo) | (b.hi < a.lo)), (a.lo == a.hi) & (b.lo == b.hi) & (a.lo == b.lo));
}

// ---- integers ----
DEVICE IntSpan fitting(i64 lo, i64 hi) {
    return lo < INT_LEAST || hi > INT_MOST ? unknown_int() : IntSpan((int)lo, (int)hi);
}
DEVICE IntSpan operator-(IntSpan a) { return fitting(-(i64)a.hi, -(i64)a.lo); }
DEVICE IntSpan operator+(IntSpan a, IntSpan b) { return fitting((i64)a.lo + b.lo, (i64)a.hi + b.hi); }
DEVICE IntSpan operator-(IntSpan a, IntSpan b) { return fitting((i64)a.lo - b.hi, (i64)a.hi - b.lo); }
DEVICE IntSpan operator*(IntSpan a, IntSpan b) {
    const i64 x = (i64)a.lo * b.lo, y = (i64)a.lo * b.hi, z = (i64)a.hi * b.lo, w = (i64)a.hi * b.hi;
    const i64 lo = x < y ? x : y, hi = x < y ? y : x, lo2 = z < w ? z : w, hi2 = z < w ? w : z;
    return fitting(lo < lo2 ? lo : lo2, hi < hi2 ? hi2 : hi);
}
DEVICE IntSpan imin(IntSpan a, IntSpan b) { return IntSpan(imin(a.lo, b.lo), imin(a.hi, b.hi)); }
DEVICE IntSpan imax(IntSpan a, IntSpan b) { return IntSpan(imax(a.lo, b.lo), imax(a.hi, b.hi)); }
// By one number above 0.
DEVICE IntSpan floor_div(IntSpan a, IntSpan b) {
    if (b.lo != b.hi || b.lo <= 0) return unknown_int();
    return IntSpan(floor_div(a.lo, b.lo), floor_div(a.hi, b.lo));
}
DEVICE IntSpan floor_mod(IntSpan a, IntSpan b) {
    if (b.lo != b.hi || b.lo <= 0) return unknown_int();
    const int by = b.lo;
    return floor_div(a.lo, by) == floor_div(a.hi, by) ? IntSpan(floor_mod(a.lo, by), floor_mod(a.hi, by)) : IntSpan(0, by - 1);
}
