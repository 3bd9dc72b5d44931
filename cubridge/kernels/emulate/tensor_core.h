// Matrix instructions. Products are made from tiles converted to float once. The accumulators of an unfinished wgmma hold a poison
// that must still be there when the result lands, and its register operands must not have changed.
#pragma once
#include <cmath>

#include "emulate/copies.h"

extern "C" const bool emu_half_is_fp16;

namespace emu {
// ---- halves: by bits, since not every compiler has the types ----
inline float bits_to_float(u32 bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline u32 float_to_bits(float x) {
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float fp16_to_float(unsigned short bits) {
    const u32 sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00) return bits_to_float(sign | 0x7f800000u | (magnitude & 0x3ff) << 13);  // infinity, NaN
    return bits_to_float(sign | float_to_bits(bits_to_float(magnitude << 13) * 0x1p112f));          // subnormals too
}
inline unsigned short float_to_fp16(float x) {
    const u32 sign = float_to_bits(x) >> 16 & 0x8000u, magnitude = float_to_bits(x) & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fff;
    if (magnitude >= 0x47800000u) return (unsigned short)(sign | 0x7c00);  // from 2^16 on infinity
    if (magnitude < 0x38800000u) return (unsigned short)(sign | (u32)nearbyintf(bits_to_float(magnitude) * 0x1p24f));
    return (unsigned short)(sign | ((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112 << 10));  // to nearest even
}
inline float bf16_to_float(unsigned short bits) { return bits_to_float((u32)bits << 16); }
inline unsigned short float_to_bf16(float x) {
    if (x != x) return 0x7fff;
    return (unsigned short)((float_to_bits(x) + 0x7fff + (float_to_bits(x) >> 16 & 1)) >> 16);  // to nearest even
}

inline float half_to_float(unsigned short bits) { return emu_half_is_fp16 ? fp16_to_float(bits) : bf16_to_float(bits); }
inline unsigned short float_to_half(float x) { return emu_half_is_fp16 ? float_to_fp16(x) : float_to_bf16(x); }

inline void unpack(u32 pair, float& lo, float& hi) {
    lo = half_to_float((unsigned short)pair);
    hi = half_to_float((unsigned short)(pair >> 16));
}

u32 pack_half2(float lo, float hi) { return float_to_half(lo) | (u32)float_to_half(hi) << 16; }

// acc[M][N] += a[M][16] b[16][N]
template <int M> void multiply(float* acc, const float* a, const float* b, int n) {
    for (int i = 0; i < M; ++i) {
        for (int k = 0; k < 16; ++k) {
            const float x = a[i * 16 + k];
            for (int j = 0; j < n; ++j) acc[i * n + j] += x * b[k * n + j];
        }
    }
}

// ---- ldmatrix, mma.sync ----
void load_matrices(u32* (&registers)[4], u32 row_address, bool transposed) {
    EMU_ENTER();
    check_inside(row_address, 16, "ldmatrix");
    if (row_address % 16) misuse("a row that ldmatrix reads is not aligned to 16 bytes");
    read_granule(row_address / GRANULE);
    auto& messages = warp_messages();
    auto& mine = messages[self->lane()].matrix;
    std::copy(registers, registers + 4, mine.registers);
    mine.address = row_address;
    warp_meet([&messages, transposed] {
        for (int x = 0; x < 4; ++x) {
            for (int lane = 0; lane < WARP; ++lane) {
                u32 pair = 0;
                for (int e = 0; e < 2; ++e) {
                    const int row = transposed ? lane % 4 * 2 + e : lane / 4, column = transposed ? lane / 4 : lane % 4 * 2 + e;
                    unsigned short half;
                    memcpy(&half, arena + messages[x * 8 + row].matrix.address + column * 2, 2);
                    pair |= (u32)half << (16 * e);
                }
                *messages[lane].matrix.registers[x] = pair;
            }
        }
    });
}

void multiply_16x8x16(float* (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    EMU_ENTER();
    auto& messages = warp_messages();
    auto& mine = messages[self->lane()].product;
    std::copy(d, d + 4, mine.d);
    mine.a = a;
    mine.b[0] = b0;
    mine.b[1] = b1;
    warp_meet([&messages] {
        float left[16 * 16], right[16 * 8], acc[16 * 8];
        for (int lane = 0; lane < WARP; ++lane) {
            const auto& m = messages[lane].product;
            const int group = lane / 4, pair = lane % 4 * 2;
            for (int x = 0; x < 4; ++x) {  // x: row half, then column half
                float* at = &left[(group + x % 2 * 8) * 16 + pair + x / 2 * 8];
                unpack(m.a[x], at[0], at[1]);
                acc[(group + x / 2 * 8) * 8 + pair + x % 2] = *m.d[x];
            }
            for (int x = 0; x < 2; ++x) unpack(m.b[x], right[(pair + x * 8) * 8 + group], right[(pair + 1 + x * 8) * 8 + group]);
        }
        multiply<16>(acc, left, right, 8);
        for (int lane = 0; lane < WARP; ++lane) {
            for (int x = 0; x < 4; ++x) *messages[lane].product.d[x] = acc[(lane / 4 + x / 2 * 8) * 8 + lane % 4 * 2 + x % 2];
        }
    });
}

// ---- wgmma ----
constexpr u32 WGMMA_POISON = 0x7fc0dead;  // a NaN that arithmetic does not make

struct Accumulator {                      // 64 rows x columns * 4, spread over the warpgroup as d[2][columns]
    float* owner[WARPGROUP] = {};
    int columns = 0, unfinished = 0;
    std::vector<float> tile;
    float& at(int thread, int r, int c) {
        const int row = thread / WARP * 16 + r * 8 + thread % WARP / 4, column = c / 2 * 8 + thread % 4 * 2 + c % 2;
        return tile[row * columns * 4 + column];
    }
};

struct WgmmaOp {
    Accumulator* d = nullptr;
    bool a_in_registers = false, accumulate = false;
    u64 a = 0, b = 0;
    u32 a_copy[WARPGROUP][4];
    const u32* a_own[WARPGROUP] = {};
    long group = -1;
    Place place = nullptr;
};

struct Warpgroup {
    std::deque<WgmmaOp> ops;              // unfinished, in order
    long first_op = 0;                    // number of ops.front()
    long issued[WARPGROUP] = {}, committed[WARPGROUP] = {};
    std::deque<Accumulator> accumulators;
};
inline std::vector<Warpgroup> warpgroups;

inline void reset_tensor_core() { warpgroups.assign((threads.size() + WARPGROUP - 1) / WARPGROUP, Warpgroup()); }

inline Warpgroup& own_warpgroup() { return warpgroups[self->index / WARPGROUP]; }
inline int own_place() { return self->index % WARPGROUP; }

// Descriptors with the 128-byte swizzle. B without transposition: rows along k. With: columns along k.
struct Descriptor {
    u32 base, leading, stride;  // bytes
    static u32 field(u64 bits, int shift) { return (u32)(bits >> shift & 0x3fff) << 4; }
    explicit Descriptor(u64 bits) : base(field(bits, 0)), leading(field(bits, 16)), stride(field(bits, 32)) {
        if (bits >> 62 != 1) misuse("a matrix descriptor without the 128-byte swizzle");
    }
    static u32 swizzled(u32 address) { return address ^ (address >> 7 & 7) << 4; }
    u32 row_major(int row, int k) const { return swizzled(base + row / 8 * stride + row % 8 * 128 + k * 2); }
    u32 column_major(int k, int n) const { return swizzled(base + n / 64 * leading + k / 8 * stride + k % 8 * 128 + n % 64 * 2); }
};

// Calls `visit` with the address of every 16 bytes that the operation reads.
template <typename Visit> void visit_operands(const WgmmaOp& op, Visit visit) {
    const int n = op.d->columns * 4;
    const Descriptor b(op.b);
    if (op.a_in_registers) {
        for (int k = 0; k < 16; ++k) {
            for (int x = 0; x < n; x += 8) visit(b.column_major(k, x));
        }
        return;
    }
    const Descriptor a(op.a);
    for (int k = 0; k < 16; k += 8) {
        for (int row = 0; row < 64; ++row) visit(a.row_major(row, k));
        for (int x = 0; x < n; ++x) visit(b.row_major(x, k));
    }
}

inline float shared_half(u32 address) {
    unsigned short bits;
    memcpy(&bits, arena + address, 2);
    return half_to_float(bits);
}

inline void execute(WgmmaOp& op) {
    const int n = op.d->columns * 4;
    std::vector<float> a(64 * 16), b(16 * n);
    const Descriptor b_at(op.b);
    if (op.a_in_registers) {
        for (int thread = 0; thread < WARPGROUP; ++thread) {
            if (memcmp(op.a_own[thread], op.a_copy[thread], sizeof op.a_copy[thread]) != 0) {
                race("a register operand of a wgmma is overwritten before its wait", op.place, "the wgmma");
            }
            for (int x = 0; x < 4; ++x) {
                float* at = &a[(thread / WARP * 16 + thread % WARP / 4 + x % 2 * 8) * 16 + thread % 4 * 2 + x / 2 * 8];
                unpack(op.a_copy[thread][x], at[0], at[1]);
            }
        }
        for (int k = 0; k < 16; ++k) {
            for (int x = 0; x < n; ++x) b[k * n + x] = shared_half(b_at.column_major(k, x));
        }
    } else {
        const Descriptor a_at(op.a);
        for (int k = 0; k < 16; ++k) {
            for (int row = 0; row < 64; ++row) a[row * 16 + k] = shared_half(a_at.row_major(row, k));
            for (int x = 0; x < n; ++x) b[k * n + x] = shared_half(b_at.row_major(x, k));
        }
    }
    if (!op.accumulate) std::fill(op.d->tile.begin(), op.d->tile.end(), 0.f);
    multiply<64>(op.d->tile.data(), a.data(), b.data(), n);
}

// The accumulator of these registers, which now belongs to the tensor cores; its registers are poisoned.
inline void own_accumulator(Accumulator& acc, float* d, int columns) {
    if (acc.columns == 0) {
        acc.columns = columns;
        acc.tile.resize(64 * columns * 4);
    }
    float*& owner = acc.owner[own_place()];
    if (owner == d) return;
    if (owner || acc.columns != columns) misuse("the accumulators of a wgmma differ between threads");
    owner = d;
    for (int x = 0; x < 2 * columns; ++x) {
        acc.at(own_place(), x / columns, x % columns) = d[x];
        memcpy(&d[x], &WGMMA_POISON, sizeof WGMMA_POISON);
    }
}

inline Accumulator& find_accumulator(Warpgroup& group, float* d) {
    for (auto& acc : group.accumulators) {
        if (acc.unfinished && acc.owner[own_place()] == d) return acc;
    }
    for (auto& acc : group.accumulators) {
        if (acc.unfinished == 0) {
            acc = Accumulator();
            return acc;
        }
    }
    group.accumulators.emplace_back();
    return group.accumulators.back();
}

// This thread's part of the next operation of its warpgroup; the first thread to come makes it.
inline WgmmaOp& issue(float* d, int columns, bool a_in_registers, u64 a, u64 b, bool accumulate) {
    if (!self->wgmma_fenced) race("no wgmma_fence orders the registers of this wgmma after their last use");
    Warpgroup& group = own_warpgroup();
    const long number = group.issued[own_place()]++;
    if (number - group.first_op == (long)group.ops.size()) {
        group.ops.emplace_back();
        WgmmaOp& op = group.ops.back();
        op.d = &find_accumulator(group, d);
        op.d->columns = columns;
        op.d->tile.resize(64 * columns * 4);
        op.a_in_registers = a_in_registers;
        op.accumulate = accumulate;
        op.a = a;
        op.b = b;
        op.place = self->place;
        op.d->unfinished++;
        visit_operands(op, [](u32 at) {
            check_inside(at, 16, "wgmma");
            granules[at / GRANULE].unfinished_reads++;
            granules[at / GRANULE].read_place = self->place;
        });
    }
    WgmmaOp& op = group.ops[number - group.first_op];
    if (op.a_in_registers != a_in_registers || op.accumulate != accumulate || op.a != a || op.b != b || op.place != self->place) {
        misuse("the threads of a warpgroup issue different wgmma operations", op.place, "the other");
    }
    own_accumulator(*op.d, d, columns);
    if (self->lane() == 0) visit_operands(op, [](u32 at) { check_read(at / GRANULE); });
    return op;
}

void wgmma_fence() {
    EMU_ENTER();
    self->wgmma_fenced = true;
}

void wgmma_shared(float* d, int columns, u64 a, u64 b, bool accumulate) {
    EMU_ENTER();
    issue(d, columns, false, a, b, accumulate);
}

void wgmma_registers(float* d, int columns, const u32* a, u64 b) {
    EMU_ENTER();
    WgmmaOp& op = issue(d, columns, true, 0, b, true);
    op.a_own[own_place()] = a;
    memcpy(op.a_copy[own_place()], a, sizeof op.a_copy[0]);
}

void wgmma_commit() {
    EMU_ENTER();
    Warpgroup& group = own_warpgroup();
    const long number = group.committed[own_place()]++;
    for (long x = group.first_op; x < group.issued[own_place()]; ++x) {
        long& of = group.ops[x - group.first_op].group;
        if (of < 0) of = number;
    }
}

// The result of finished operations goes to its registers, which must still hold the poison.
inline void deliver(Accumulator& acc, Place wgmma) {
    for (int thread = 0; thread < WARPGROUP; ++thread) {
        for (int x = 0; x < 2 * acc.columns; ++x) {
            float& to = acc.owner[thread][x];
            if (memcmp(&to, &WGMMA_POISON, sizeof to) != 0) {
                race("an accumulator of an unfinished wgmma is written before its wait", wgmma, "the wgmma");
            }
            to = acc.at(thread, x / acc.columns, x % acc.columns);
        }
    }
}

// Its reads of shared memory are over; every warp of the warpgroup knows it.
inline void finish(Warpgroup& group, WgmmaOp& op, int first_warp, u32 epoch) {
    execute(op);
    visit_operands(op, [first_warp, epoch](u32 at) {
        granules[at / GRANULE].unfinished_reads--;
        const Place place = granules[at / GRANULE].read_place;
        record_read(at / GRANULE, first_warp, epoch);
        granules[at / GRANULE].read_place = place;
    });
    op.d->unfinished--;
    bool more = false;  // a later operation on the same accumulator
    for (const auto& other : group.ops) more |= &other != &op && other.d == op.d;
    if (!more) deliver(*op.d, op.place);
}

inline void finish_groups(Warpgroup& group, long before, int first_warp, u32 epoch) {
    for (int thread = 1; thread < WARPGROUP; ++thread) {
        if (group.committed[thread] != group.committed[0] || group.issued[thread] != group.issued[0]) {
            misuse("the threads of a warpgroup wait for different wgmma groups");
        }
    }
    while (!group.ops.empty() && group.ops.front().group >= 0 && group.ops.front().group < before) {
        finish(group, group.ops.front(), first_warp, epoch);
        group.ops.pop_front();
        group.first_op++;
    }
}

void wgmma_wait(int pending) {
    EMU_ENTER();
    self->wgmma_fenced = false;  // from here on registers may be touched, so the next wgmma needs a fence
    Warpgroup& group = own_warpgroup();
    const int number = self->index / WARPGROUP, first_warp = number * (WARPGROUP / WARP);
    Meeting& m = warpgroup_meetings[number];
    m.gathering.join(release_clock());
    const long generation = m.generation;
    if (++m.arrived == WARPGROUP) {
        finish_groups(group, group.committed[0] - pending, first_warp, m.gathering.at[first_warp]);
        m.complete();
    } else {
        wait_until(m.generation, generation + 1);
    }
    own_clock().join(m.published);
}

inline void check_tensor_core_at_end() {
    for (const auto& group : warpgroups) {
        if (!group.ops.empty()) fault(Fault::misuse, "the block ends while a wgmma is unfinished", group.ops.front().place);
    }
}
}  // namespace emu
