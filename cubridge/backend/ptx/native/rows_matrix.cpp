// mma.sync, ldmatrix, stmatrix: operations of a converged warp. Products are exact, sums are single precision in order of k.
#include "order.h"
#include "rows.h"

namespace ptx {
// The undefined elements of a fragment register become those of a matrix.
template <class M, class F>
static void spread(const Step& s, const Operand& x, M& matrix, F place) {
    each_lane(s.undefined_of(x), [&](int l) { place(matrix, l); });
}

template <bool BF16>
static void fragment_pair(u32 bits, f32* to) {
    to[0] = BF16 ? of_bf16(bits & 0xffff) : of_f16(bits & 0xffff);
    to[1] = BF16 ? of_bf16(bits >> 16) : of_f16(bits >> 16);
}

// Which results depend on operands that nothing wrote.
static void mma_undefined(Step& s, int depth) {
    const int a_registers = depth / 4, b_registers = depth / 8;
    u32 any = 0;
    for (int k = 0; k < s.sources(); ++k) any |= s.undefined_of(s.source(k));
    u32 results[4] = {};
    int from = -1;
    if (any) {
        bool rows[16] = {}, columns[8] = {};
        for (int k = 0; k < a_registers; ++k) {
            each_lane(s.undefined_of(s.source(k)),
                      [&](int l) { rows[(l >> 2) + (k & 1) * 8] = true, from = s.origin_of(s.source(k)); });
        }
        for (int k = a_registers; k < a_registers + b_registers; ++k) {
            each_lane(s.undefined_of(s.source(k)), [&](int l) { columns[l >> 2] = true, from = s.origin_of(s.source(k)); });
        }
        for (int q = 0; q < 4; ++q) {
            const Operand& c = s.source(a_registers + b_registers + q);
            if (s.undefined_of(c)) from = s.origin_of(c);
            results[q] = s.undefined_of(c);
            for (int l = 0; l < LANES; ++l)
                results[q] |= (u32)(rows[(l >> 2) + (q >> 1) * 8] || columns[(l & 3) * 2 + (q & 1)]) << l;
        }
    }
    for (int q = 0; q < 4; ++q) s.set_undefined(s.operand(q), results[q], from);
}

template <bool BF16, int DEPTH>
static Next mma(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    if (s.mask != ALL) s.misuse("an operation of the whole warp by a part of it");
    constexpr int A = DEPTH / 4, B = DEPTH / 8;
    f32 a[16][DEPTH], b[DEPTH][8], d[16][8];
    for (int l = 0; l < LANES; ++l) {
        const int group = l >> 2, pair = (l & 3) * 2;
        for (int k = 0; k < A; ++k) fragment_pair<BF16>(s.in<u32>(k)[l], &a[group + (k & 1) * 8][pair + (k >> 1) * 8]);
        for (int k = 0; k < B; ++k) {
            f32 two[2];
            fragment_pair<BF16>(s.in<u32>(A + k)[l], two);
            b[pair + k * 8][group] = two[0];
            b[pair + k * 8 + 1][group] = two[1];
        }
        for (int q = 0; q < 4; ++q) d[group + (q >> 1) * 8][pair + (q & 1)] = s.in<f32>(A + B + q)[l];
    }
    for (int row = 0; row < 16; ++row) {
        for (int k = 0; k < DEPTH; ++k) {
            for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
        }
    }
    mma_undefined(s, DEPTH);
    for (int q = 0; q < 4; ++q) {
        f32* to = s.out<f32>(q);
        for (int l = 0; l < LANES; ++l) to[l] = canonical(d[(l >> 2) + (q >> 1) * 8][(l & 3) * 2 + (q & 1)]);
    }
    return Next::go_on;
}

static void row_places(Step& s, int matrices, Place* places) {
    if (s.undefined_of(s.source(0)) & s.mask) undefined_fault(s, "an address", s.origin_of(s.source(0)));
    for (int l = 0; l < matrices * 8; ++l) {
        const u32 address = (u32)s.address(0, l);
        if (address % 16) s.misuse("a row of a matrix is not aligned to 16 bytes");
        places[l] = shared_place(s, address, 16, "read");
    }
}

// row: a transposed
static Next load_matrices(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    if (s.mask != ALL) s.misuse("an operation of the whole warp by a part of it");
    const int matrices = s.i.results;
    Place places[LANES];
    bool undefined[LANES];
    row_places(s, matrices, places);
    for (int l = 0; l < matrices * 8; ++l) undefined[l] = read_shared(s, places[l], 16, MANY_LANES);
    for (int j = 0; j < matrices; ++j) {
        u32 values[LANES], marks = 0;
        for (int l = 0; l < LANES; ++l) {
            const auto half = [&](int row, int column) -> u32 {
                const Place p = places[j * 8 + row];
                marks |= (u32)undefined[j * 8 + row] << l;
                u16 x;
                memcpy(&x, &shadow_at(s, p.rank).bytes[p.at + column * 2], 2);
                return x;
            };
            const int group = l >> 2, pair = (l & 3) * 2;
            values[l] =
                s.i.row->a ? half(pair, group) | half(pair + 1, group) << 16 : half(group, pair) | half(group, pair + 1) << 16;
        }
        memcpy(s.out<u32>(j), values, sizeof values);
        s.set_undefined(s.operand(j), marks, s.pc);
    }
    return Next::go_on;
}

static Next store_matrices(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    if (s.mask != ALL) s.misuse("an operation of the whole warp by a part of it");
    const int matrices = s.sources() - 1;
    Place places[LANES];
    row_places(s, matrices, places);
    for (int j = 0; j < matrices; ++j) {
        const u32* from = s.in<u32>(1 + j);
        const u32 undefined = s.undefined_of(s.source(1 + j));
        for (int row = 0; row < 8; ++row) {
            const Place p = places[j * 8 + row];
            for (int column = 0; column < 8; ++column) {
                // plain: lane 4 row + column / 2 holds the element; transposed: lane 4 column + row / 2
                const int lane = s.i.row->a ? column * 4 + row / 2 : row * 4 + column / 2, high = s.i.row->a ? row & 1 : column & 1;
                const Place at = {p.rank, p.at + column * 2};
                check_shared_write(s, at, 2, lane);
                note_shared_write(s, at, 2, lane, undefined >> lane & 1);
                const u16 half = (u16)(from[lane] >> 16 * high);
                memcpy(&shadow_at(s, p.rank).bytes[at.at], &half, 2);
            }
        }
    }
    s.happened();
    return Next::go_on;
}

void add_matrix_rows(Rows& rows) {
    add(rows, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "r*4 = r*4 r*2 r*4", "d = a b + c of 16 x 16 and 16 x 8",
        mma<true, 16>, Undefined::own);
    add(rows, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "r*4 = r*4 r*2 r*4", "d = a b + c of 16 x 16 and 16 x 8",
        mma<false, 16>, Undefined::own);
    add(rows, "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "r*4 = r*2 r r*4", "d = a b + c of 16 x 8 and 8 x 8",
        mma<true, 8>, Undefined::own);
    add(rows, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "r*4 = r*2 r r*4", "d = a b + c of 16 x 8 and 8 x 8",
        mma<false, 8>, Undefined::own);
    for (int count : {1, 2, 4}) {
        for (const char* space : {".shared", ".shared::cta"}) {
            const std::string group = count == 1 ? "r" : text("r*%d", count);
            for (int transposed = 0; transposed < 2; ++transposed) {
                // the shape may stand before or behind the count
                const char* trans = transposed ? ".trans" : "";
                for (const std::string& shape : {text(".m8n8.x%d%s", count, trans), text(".x%d%s.m8n8", count, trans)}) {
                    const std::string tail = ".sync.aligned" + shape + space + ".b16";
                    Row& load = add(rows, "ldmatrix" + tail, group + " = A",
                                    "matrices of 8 x 8 halves; lane l gives the address of row l", load_matrices, Undefined::own);
                    load.a = transposed;
                    Row& store =
                        add(rows, "stmatrix" + tail, "= A " + group,
                            "puts matrices of 8 x 8 halves; lane l gives the address of row l", store_matrices, Undefined::own);
                    store.a = transposed;
                }
            }
        }
    }
}
}  // namespace ptx
