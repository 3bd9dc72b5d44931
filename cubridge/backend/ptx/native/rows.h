// The table of instructions. A row's `operands` are its results, `=`, its sources, each a token:
//   r  4 bytes a lane (smaller types lie in its low bits)    R  8 bytes    w  4 or 8    p  predicate
//   A  an address [base+offset]     T5  [base, {5 coordinates}]    i  a number of the text
//   r*8  a group {..} of eight    ?  may be missing; missing results are dropped, missing sources are not passed
// A row with `name form` takes that form: `mov.b64 pack`. Hints that change neither value nor order are stripped before a row is
// looked up (encode.py names them).
#pragma once
#include <cmath>
#include <string_view>

#include "machine.h"

namespace ptx {
using Rows = std::vector<Row>;

Row& add(Rows& rows, std::string_view name, std::string_view operands, std::string_view meaning, Run run,
         Undefined undefined = Undefined::flow);

void add_integer_rows(Rows& rows);
void add_float_rows(Rows& rows);
void add_convert_rows(Rows& rows);
void add_move_rows(Rows& rows);
void add_compare_rows(Rows& rows);
void add_control_rows(Rows& rows);
void add_warp_rows(Rows& rows);
void add_memory_rows(Rows& rows);
void add_atomic_rows(Rows& rows);
void add_matrix_rows(Rows& rows);
void add_copy_rows(Rows& rows);
void add_bulk_rows(Rows& rows);
void add_barrier_rows(Rows& rows);
void add_mbarrier_rows(Rows& rows);
void add_wgmma_rows(Rows& rows);

const Rows& all_rows();

// ---- lane by lane: D results from sources of types A, B, C ----
template <class D, class A, auto F>
Next unary(Step& s) {
    D* d = s.out<D>();
    const A* a = s.in<A>(0);
    assign(d, s.mask, [&](int l) { return (D)F(a[l]); });
    return Next::go_on;
}
template <class D, class A, class B, auto F>
Next binary(Step& s) {
    D* d = s.out<D>();
    const A* a = s.in<A>(0);
    const B* b = s.in<B>(1);
    assign(d, s.mask, [&](int l) { return (D)F(a[l], b[l]); });
    return Next::go_on;
}
template <class D, class A, class B, class C, auto F>
Next ternary(Step& s) {
    D* d = s.out<D>();
    const A* a = s.in<A>(0);
    const B* b = s.in<B>(1);
    const C* c = s.in<C>(2);
    assign(d, s.mask, [&](int l) { return (D)F(a[l], b[l], c[l]); });
    return Next::go_on;
}

// ---- numbers ----
inline f32 canonical(f32 x) {
    return x != x ? bits_as<f32>(0x7fffffffu) : x;
}
inline f32 flushed(f32 x) {
    return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.f, x) : x;
}
inline f32 of_bf16(u32 bits) {
    return bits_as<f32>(bits << 16);
}
inline u32 to_bf16(f32 x) {
    const u32 bits = bits_as<u32>(x);
    return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
f32 of_f16(u32 bits);
u32 to_f16(f32 x);
}  // namespace ptx
