// Comparisons and predicates.
#include "rows.h"

namespace ptx {
enum Combine { PLAIN, AND, OR, XOR };

// What all comparisons do with the lanes where theirs holds.
static Next finish(Step& s, u32 holds) {
    u32 undefined = s.undefined_of(s.source(0)) | s.undefined_of(s.source(1)), second = ~holds;
    int from = s.origin_of(s.source(s.undefined_of(s.source(0)) & s.mask ? 0 : 1));
    if (s.i.row->a != PLAIN) {
        const u32 c = s.predicate(2);
        if (s.undefined_of(s.source(2)) & s.mask) from = s.origin_of(s.source(2));
        undefined |= s.undefined_of(s.source(2));
        const auto with = [&](u32 x) { return s.i.row->a == AND ? x & c : s.i.row->a == OR ? x | c : x ^ c; };
        holds = with(holds);
        second = with(second);
    }
    s.set_predicate(0, holds);
    s.set_undefined(s.operand(0), undefined, from);
    if (s.i.results > 1) {
        s.set_predicate(1, second);
        s.set_undefined(s.operand(1), undefined, from);
    }
    return Next::go_on;
}

template <class T, auto F>
static Next compare(Step& s) {
    const T *a = s.in<T>(0), *b = s.in<T>(1);
    u8 lanes[LANES];
    for (int l = 0; l < LANES; ++l) lanes[l] = F(a[l], b[l]);
    u32 holds = 0;
#pragma clang loop unroll(disable)
    for (int l = 0; l < LANES; ++l) holds |= (u32)lanes[l] << l;
    return finish(s, holds);
}

static void add_forms(Rows& rows, const std::string& name, const std::string& type, const std::string& source,
                      const std::string& meaning, Run run) {
    const std::string plain = "p p? = " + source + " " + source;
    const char* combined[] = {"", ".and", ".or", ".xor"};
    for (int k = 0; k < 4; ++k) {
        add(rows, "setp." + name + combined[k] + "." + type, k ? plain + " p" : plain, k ? meaning + ", then with c" : meaning,
            run, Undefined::own)
            .a = k;
    }
}

template <class T, auto F>
static void add_compare(Rows& rows, const char* name, const char* type, const char* source, const char* meaning) {
    add_forms(rows, name, type, source, meaning, compare<T, F>);
    if constexpr (std::is_same_v<T, f32>) {
        add_forms(rows, name, std::string("ftz.") + type, source, std::string(meaning) + ", denormals as 0",
                  compare<f32, [](f32 a, f32 b) { return F(flushed(a), flushed(b)); }>);
    }
}

template <class T>
static void add_order(Rows& rows, const char* type, const char* source) {
    add_compare<T, [](T a, T b) { return a == b; }>(rows, "eq", type, source, "a = b");
    add_compare<T, [](T a, T b) { return a != b && !(a != a) && !(b != b); }>(rows, "ne", type, source, "a is not b");
    add_compare<T, [](T a, T b) { return a < b; }>(rows, "lt", type, source, "a < b");
    add_compare<T, [](T a, T b) { return a <= b; }>(rows, "le", type, source, "a <= b");
    add_compare<T, [](T a, T b) { return (a > b); }>(rows, "gt", type, source, "a > b");
    add_compare<T, [](T a, T b) { return (a >= b); }>(rows, "ge", type, source, "a >= b");
}
template <class T>
static void add_unsigned_names(Rows& rows, const char* type, const char* source) {
    add_compare<T, [](T a, T b) { return a < b; }>(rows, "lo", type, source, "a < b");
    add_compare<T, [](T a, T b) { return a <= b; }>(rows, "ls", type, source, "a <= b");
    add_compare<T, [](T a, T b) { return (a > b); }>(rows, "hi", type, source, "a > b");
    add_compare<T, [](T a, T b) { return (a >= b); }>(rows, "hs", type, source, "a >= b");
}
template <class T>
static void add_equality(Rows& rows, const char* type, const char* source) {
    add_compare<T, [](T a, T b) { return a == b; }>(rows, "eq", type, source, "a = b");
    add_compare<T, [](T a, T b) { return a != b; }>(rows, "ne", type, source, "a is not b");
}

static bool unordered(f32 a, f32 b) {
    return a != a || b != b;
}

template <auto F>
static void add_unordered(Rows& rows, const char* name, const char* meaning) {
    add_compare<f32, F>(rows, name, "f32", "r", meaning);
}

// 16-bit values: compared by their low bits
template <class T, auto F>
static void add_narrow(Rows& rows, const char* name, const char* type, const char* meaning) {
    add_compare<u32, [](u32 a, u32 b) { return F((T)a, (T)b); }>(rows, name, type, "r", meaning);
}
template <class T>
static void add_narrow_order(Rows& rows, const char* type) {
    add_narrow<T, [](T a, T b) { return a == b; }>(rows, "eq", type, "a = b");
    add_narrow<T, [](T a, T b) { return a != b; }>(rows, "ne", type, "a is not b");
    add_narrow<T, [](T a, T b) { return a < b; }>(rows, "lt", type, "a < b");
    add_narrow<T, [](T a, T b) { return a <= b; }>(rows, "le", type, "a <= b");
    add_narrow<T, [](T a, T b) { return (a > b); }>(rows, "gt", type, "a > b");
    add_narrow<T, [](T a, T b) { return (a >= b); }>(rows, "ge", type, "a >= b");
}

// One predicate that decides the result makes the other's value, known or not, irrelevant.
static Next predicate_and(Step& s) {
    const u32 a = s.predicate(0), b = s.predicate(1), ua = s.undefined_of(s.source(0)), ub = s.undefined_of(s.source(1));
    const u32 undefined = (ua | ub) & ~(~a & ~ua) & ~(~b & ~ub);
    s.set_predicate(0, a & b, undefined);
    s.set_undefined(s.operand(0), undefined, s.origin_of(s.source(ua & s.mask ? 0 : 1)));
    return Next::go_on;
}
static Next predicate_or(Step& s) {
    const u32 a = s.predicate(0), b = s.predicate(1), ua = s.undefined_of(s.source(0)), ub = s.undefined_of(s.source(1));
    const u32 undefined = (ua | ub) & ~(a & ~ua) & ~(b & ~ub);
    s.set_predicate(0, a | b, undefined);
    s.set_undefined(s.operand(0), undefined, s.origin_of(s.source(ua & s.mask ? 0 : 1)));
    return Next::go_on;
}
static Next predicate_xor(Step& s) {
    s.set_predicate(0, s.predicate(0) ^ s.predicate(1));
    return Next::go_on;
}
static Next predicate_not(Step& s) {
    s.set_predicate(0, ~s.predicate(0));
    return Next::go_on;
}

void add_compare_rows(Rows& rows) {
    add_order<s32>(rows, "s32", "r");
    add_order<u32>(rows, "u32", "r");
    add_order<s64>(rows, "s64", "R");
    add_order<u64>(rows, "u64", "R");
    add_order<f32>(rows, "f32", "r");
    add_unsigned_names<u32>(rows, "u32", "r");
    add_unsigned_names<u64>(rows, "u64", "R");
    add_equality<u32>(rows, "b32", "r");
    add_equality<u64>(rows, "b64", "R");
    add_narrow_order<s16>(rows, "s16");
    add_narrow_order<u16>(rows, "u16");
    add_narrow<u16, [](u16 a, u16 b) { return a == b; }>(rows, "eq", "b16", "a = b");
    add_narrow<u16, [](u16 a, u16 b) { return a != b; }>(rows, "ne", "b16", "a is not b");
    add_unordered<[](f32 a, f32 b) { return unordered(a, b) || a == b; }>(rows, "equ", "a = b, or one is NaN");
    add_unordered<[](f32 a, f32 b) { return !(a == b); }>(rows, "neu", "a is not b, or one is NaN");
    add_unordered<[](f32 a, f32 b) { return (!(a >= b)); }>(rows, "ltu", "a < b, or one is NaN");
    add_unordered<[](f32 a, f32 b) { return (!(a > b)); }>(rows, "leu", "a <= b, or one is NaN");
    add_unordered<[](f32 a, f32 b) { return !(a <= b); }>(rows, "gtu", "a > b, or one is NaN");
    add_unordered<[](f32 a, f32 b) { return !(a < b); }>(rows, "geu", "a >= b, or one is NaN");
    add_unordered<[](f32 a, f32 b) { return !unordered(a, b); }>(rows, "num", "neither is NaN");
    add_unordered<[](f32 a, f32 b) { return unordered(a, b); }>(rows, "nan", "one is NaN");
    add(rows, "and.pred", "p = p p", "both", predicate_and, Undefined::own);
    add(rows, "or.pred", "p = p p", "either", predicate_or, Undefined::own);
    add(rows, "xor.pred", "p = p p", "one of both", predicate_xor);
    add(rows, "not.pred", "p = p", "the other", predicate_not);
}
}  // namespace ptx
