// wgmma: a product of a warpgroup, from shared memory, into registers that nobody may touch until the wait. Its operands stay
// frozen until all four warps have issued it and one has waited for it.
#include "order.h"
#include "rows.h"

namespace ptx {
u32 swizzled(u32 address, int swizzle);

// A matrix in shared memory: where the 16-byte chunks of its rows lie.
struct Descriptor {
    u32 start, leading, stride;
    int swizzle;  // log2 of the bytes / 16
};

static Descriptor descriptor_of(u64 bits) {
    const int kind = (int)(bits >> 62);
    const u32 fields[3] = {(u32)(bits & 0x3fff) << 4, (u32)(bits >> 16 & 0x3fff) << 4, (u32)(bits >> 32 & 0x3fff) << 4};
    return {fields[0], fields[1], fields[2], kind == 1 ? 3 : kind == 2 ? 2 : kind == 3 ? 1 : 0};
}

// The chunk of 8 elements along k, for a matrix whose rows run along k.
static u32 chunk_along_k(const Descriptor& d, int row, int k) {
    if (!d.swizzle) return d.start + (row >> 3) * d.stride + (row & 7) * 16 + (k >> 3) * d.leading;
    const u32 pitch = 16u << d.swizzle;
    return swizzled(d.start + (row >> 3) * d.stride + (row & 7) * pitch + k * 2, d.swizzle);
}
// The chunk of 8 elements along the rows, for a matrix whose columns run along them.
static u32 chunk_along_rows(const Descriptor& d, int row, int k) {
    const int span = 8 << d.swizzle;
    return swizzled(d.start + (row / span) * d.leading + (row % span) * 2 + (k & 7) * span * 2 + (k >> 3) * d.stride, d.swizzle);
}

constexpr int DEPTH = 16, ROWS = 16;

// One operand in single precision, [row][k] for A and [k][row] for B, with the places of its chunks.
template <bool BF16, class F>
static void gather(Step& s, const Descriptor& d, bool transposed, int first_row, int rows, std::vector<u32>& chunks, F put) {
    if (transposed && !d.swizzle) s.misuse("a transposed matrix without swizzle is not supported");
    const Shadow& h = *s.block().shadow;
    const auto chunk = [&](u32 at, auto place) {
        if ((u64)at + CHUNK > h.bytes.size())
            s.fault(FaultKind::bounds, text("a matrix at shared memory offset %u; the block has %zu", at, h.bytes.size()));
        chunks.push_back(at / CHUNK);
        u16 halves[8];
        memcpy(halves, &h.bytes[at], CHUNK);
        for (int x = 0; x < 8; ++x) place(x, BF16 ? of_bf16(halves[x]) : of_f16(halves[x]));
    };
    if (!transposed) {
        for (int row = 0; row < rows; ++row) {
            for (int k = 0; k < DEPTH; k += 8)
                chunk(chunk_along_k(d, first_row + row, k), [&](int x, f32 value) { put(row, k + x, value); });
        }
        return;
    }
    for (int k = 0; k < DEPTH; ++k) {
        for (int row = 0; row < rows; row += 8)
            chunk(chunk_along_rows(d, first_row + row, k), [&](int x, f32 value) { put(row + x, k, value); });
    }
}

static void check_registers(Step& s, const Operand& x, bool writes) {
    if (s.w.written[x.slot] == s.w.wgmma_fences) s.race("no wgmma.fence orders the registers of this wgmma after their last use");
    if (writes && s.w.frozen[x.slot] > s.w.wgmma_finished) s.race("a register operand of a wgmma is overwritten before its wait");
    if (!writes && s.w.accumulates[x.slot] > s.w.wgmma_finished)
        s.race("an accumulator of an unfinished wgmma is read before its wait");
}

// Notes what the operation reads; of its B only once, whichever warp comes first.
static void freeze_operands(Step& s, u64 b, const std::vector<u32>& a_chunks, const std::vector<u32>& b_chunks) {
    Shadow& h = *s.block().shadow;
    for (const auto* list : {&a_chunks, &b_chunks}) {
        for (const u32 chunk : *list) check_async_read(s, {(u32)s.w.rank, chunk * CHUNK}, CHUNK, MANY_LANES);
    }
    Warpgroup& group = s.block().warpgroups[s.w.index / 4];
    const u32 number = s.w.wgmma_issued;
    auto read = std::find_if(group.reads.begin(), group.reads.end(), [&](const WgmmaRead& r) { return r.number == number; });
    if (read == group.reads.end()) {
        group.reads.push_back({number, s.pc, b, b_chunks});
        read = group.reads.end() - 1;
        for (const u32 chunk : b_chunks) freeze(h, chunk, s.pc);
    } else if (read->pc != s.pc || read->b != b) {
        s.misuse("the threads of a warpgroup issue different wgmma operations", {{read->pc, "the other"}});
    }
    read->chunks.insert(read->chunks.end(), a_chunks.begin(), a_chunks.end());
    for (const u32 chunk : a_chunks) freeze(h, chunk, s.pc);
}

// row: a columns, b A lies in registers
template <bool BF16>
static Next wgmma(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    Warp& w = s.w;
    if (s.mask != ALL || w.index / 4 * 4 + 3 >= s.m.warps_of_block()) s.misuse("a wgmma without four whole warps");
    if (!w.wgmma_fences) s.race("no wgmma.fence precedes the first wgmma");
    const int columns = s.i.row->a, a_count = s.i.row->b ? 4 : 1, results = s.i.results;
    const int immediates = s.sources() - a_count - 2;
    const auto immediate = [&](int k) { return k < immediates ? (s32)s.in<u32>(a_count + 2 + k)[0] : 0; };
    const u32 scale = s.predicate(a_count + 1);
    if (s.undefined_of(s.source(a_count + 1)) | s.undefined_of(s.source(a_count))) undefined_fault(s, "an operand of a wgmma", -1);
    if (scale != ALL && scale != 0) s.misuse("scale-d differs between the lanes of a warp");
    const u64 b_bits = s.uniform_wide(a_count, "a matrix descriptor");
    for (int k = 0; k < results; ++k) check_registers(s, s.operand(k), true);
    static thread_local f32 a[ROWS][DEPTH], b[DEPTH][256], d[ROWS][256];
    std::vector<u32> a_chunks, b_chunks;
    u32 undefined_rows[2] = {};  // of A, by lane: rows of the low and the high half
    int from = -1;
    ++w.wgmma_issued;
    if (s.i.row->b) {
        for (int q = 0; q < 4; ++q) {
            check_registers(s, s.source(q), false);
            const u32 marks = s.undefined_of(s.source(q));
            if (marks) from = s.origin_of(s.source(q));
            each_lane(marks, [&](int l) { undefined_rows[q & 1] |= 0xfu << (l & ~3); });
            w.frozen[s.source(q).slot] = w.wgmma_issued;
            for (int l = 0; l < LANES; ++l) {
                f32* to = &a[(l >> 2) + (q & 1) * 8][(l & 3) * 2 + (q >> 1) * 8];
                const u32 bits = s.in<u32>(q)[l];
                to[0] = BF16 ? of_bf16(bits & 0xffff) : of_f16(bits & 0xffff);
                to[1] = BF16 ? of_bf16(bits >> 16) : of_f16(bits >> 16);
            }
        }
    } else {
        const Descriptor of_a = descriptor_of(s.uniform_wide(0, "a matrix descriptor"));
        gather<BF16>(s, of_a, immediate(2), w.index % 4 * ROWS, ROWS, a_chunks,
                     [&](int row, int k, f32 value) { a[row][k] = value; });
    }
    gather<BF16>(s, descriptor_of(b_bits), immediate(s.i.row->b ? 2 : 3), 0, columns, b_chunks,
                 [&](int row, int k, f32 value) { b[k][row] = value; });
    freeze_operands(s, b_bits, a_chunks, b_chunks);
    const f32 sign = (f32)(immediate(0) * immediate(1));
    const auto place = [&](int k, int l) -> f32& { return d[(l >> 2) + (k >> 1 & 1) * 8][k / 4 * 8 + (l & 3) * 2 + (k & 1)]; };
    for (int k = 0; k < results; ++k) {
        for (int l = 0; l < LANES; ++l) place(k, l) = scale ? s.out<f32>(k)[l] : 0.f;
    }
    for (int row = 0; row < ROWS; ++row) {
        for (int k = 0; k < DEPTH; ++k) {
            const f32 factor = a[row][k] * sign;
            for (int column = 0; column < columns; ++column) d[row][column] += factor * b[k][column];
        }
    }
    for (int k = 0; k < results; ++k) {
        const Operand& x = s.operand(k);
        const u32 before = scale ? s.undefined_of(x) : 0;
        if (before) from = s.origin_of(x);
        for (int l = 0; l < LANES; ++l) s.out<f32>(k)[l] = place(k, l);
        s.set_undefined(x, before | undefined_rows[k >> 1 & 1], from);
        w.accumulates[x.slot] = w.wgmma_issued;
    }
    return Next::go_on;
}

static Next fence(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    ++s.w.wgmma_fences;
    return Next::go_on;
}

static Next commit(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    s.w.wgmma_groups.push_back(s.w.wgmma_issued);
    s.w.wgmma_committed = s.w.wgmma_issued;
    s.happened();
    return Next::go_on;
}

// What the operations up to `last` read is free again, for those who know that they have ended.
static void finish(Step& s, u32 last) {
    Warpgroup& group = s.block().warpgroups[s.w.index / 4];
    Shadow& h = *s.block().shadow;
    const int agent = FIRST_WARPGROUP + (s.w.rank * 4 + s.w.index / 4) % MAX_WARPGROUPS;
    while (!group.reads.empty() && group.reads.front().number <= last) {
        const WgmmaRead& read = group.reads.front();
        const Stamp stamp = stamp_of_agent(s.m, s.c, agent, read.number, read.pc);
        std::vector<Stamp>& row = h.row(h.chunk_read, s.w.index / 4, h.frozen.size());
        for (const u32 chunk : read.chunks) {
            --h.frozen[chunk];
            row[chunk] = stamp;
        }
        group.reads.pop_front();
    }
    s.w.clock.at[agent] = std::max(s.w.clock.at[agent], last);
    each_lane(s.w.apart, [&](int l) { s.w.own[l]->at[agent] = std::max(s.w.own[l]->at[agent], last); });
}

static Next wait(Step& s) {
    if (!s.together(ALL)) return Next::gather;
    Warp& w = s.w;
    const u32 pending = s.uniform(0, "the number of groups");
    if (w.wgmma_groups.size() <= pending) return Next::go_on;
    const u32 last = w.wgmma_groups[w.wgmma_groups.size() - pending - 1];
    for (const auto& other : s.c.warps) {
        if (other->rank == w.rank && other->index / 4 == w.index / 4 && other->wgmma_committed < last) return Next::wait;
    }
    while (w.wgmma_groups.size() > pending) w.wgmma_groups.pop_front();
    w.wgmma_finished = last;
    finish(s, last);
    s.happened();
    return Next::go_on;
}

template <bool BF16>
static void add_products(Rows& rows, const char* type) {
    for (int n = 8; n <= 256; n += 8) {
        const std::string name = text("wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s", n, type, type);
        for (int registers = 0; registers < 2; ++registers) {
            Row& row = add(
                rows, name + (registers ? " registers" : ""), text("r*%d = %s R p i i i? i?", n / 2, registers ? "r*4" : "R"),
                "d = a b (+ d if scale-d) of 64 x 16 and 16 x n, by a warpgroup, in its open group", wgmma<BF16>, Undefined::own);
            row.a = n;
            row.b = registers;
            row.touch = Touch::is_wgmma;
        }
    }
}

void add_wgmma_rows(Rows& rows) {
    add_products<true>(rows, "bf16");
    add_products<false>(rows, "f16");
    add(rows, "wgmma.fence.sync.aligned", "=", "register accesses before it precede later wgmma", fence);
    add(rows, "wgmma.commit_group.sync.aligned", "=", "closes the warpgroup's open group", commit);
    add(rows, "wgmma.wait_group.sync.aligned", "= i", "at most a groups of the warpgroup are unfinished", wait, Undefined::strict);
}
}  // namespace ptx
