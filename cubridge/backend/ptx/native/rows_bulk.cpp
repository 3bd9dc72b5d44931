// Bulk copies by the async proxy: TMA boxes of tensors, and plain ranges. Loads land when nothing else can run, each as one; stores
// and reductions read shared memory until their thread waits for its group.
#include "order.h"
#include "rows.h"

namespace ptx {

static const TensorMap& map_at(Step& s, u64 address, int lane) {
    // parameters may be named by their offset alone
    const Space space = address < s.m.params.size() ? Space::param : Space::generic;
    u64 handle[2];
    memcpy(handle, read_memory(s, space, address, 16, lane).at, sizeof handle);
    if (handle[0] != MAP_MAGIC || handle[1] >= s.m.maps.size()) s.misuse("this is not a tensor map");
    return s.m.maps[handle[1]];
}

// 128, 64 or 32 byte swizzle: bits 4 and up of an address, changed by bits 7 and up
u32 swizzled(u32 address, int swizzle) {
    return address ^ ((address >> 7 & ((1u << swizzle) - 1)) << 4);
}

struct Box {
    const TensorMap& map;
    s64 start[5] = {};
    u32 bytes = 0;
};

static Box box_at(Step& s, int first_source, int lane) {
    Box box{map_at(s, s.address(first_source, lane), lane)};
    if (box.map.rank != s.i.row->a) s.misuse(text("a tensor map of %d axes is used with %d coordinates", box.map.rank, s.i.row->a));
    box.bytes = (u32)box.map.element_bytes;
    for (int k = 0; k < box.map.rank; ++k) {
        box.start[k] = s.in<s32>(first_source + 1 + k)[lane];
        box.bytes *= box.map.box[k];
    }
    return box;
}

// f(offset in the box as it lies in shared memory, address in global memory or 0 outside of the tensor) for each chunk of 16 bytes
template <class F>
static void each_chunk(Step& s, const Box& box, u32 at, F f) {
    const TensorMap& t = box.map;
    const u64 base = s.m.tensors[t.tensor].base;
    const u32 row = t.box[0] * (u32)t.element_bytes, rows = box.bytes / row;
    u32 x[5] = {};
    for (u32 number = 0; number < rows; ++number) {
        bool inside = true;
        u64 offset = 0;
        for (int k = 1; k < t.rank; ++k) {
            const s64 y = box.start[k] + x[k];
            inside &= y >= 0 && (u64)y < t.extents[k];
            offset += (u64)y * t.strides[k];
        }
        for (u32 byte = 0; byte < row; byte += CHUNK) {
            const s64 element = box.start[0] + (s64)(byte / t.element_bytes);
            const u32 valid = !inside || element < 0 || (u64)element >= t.extents[0]
                                  ? 0
                                  : (u32)std::min<u64>(CHUNK, (t.extents[0] - element) * t.element_bytes);
            f(swizzled(at + number * row + byte, t.swizzle) - at, base + offset + (u64)(element * t.element_bytes), valid);
        }
        for (int k = 1; k < t.rank; ++k) {
            if (++x[k] < t.box[k]) break;
            x[k] = 0;
        }
    }
}

static void check_box(Step& s, const Box& box, u32 address) {
    const u32 alignment = box.map.swizzle ? 128u << box.map.swizzle : 128u;
    if (address % alignment) s.misuse(text("a box in shared memory is not aligned to %u bytes", alignment));
    if (box.map.box[0] * box.map.element_bytes % CHUNK) s.misuse("a row of a box is no multiple of 16 bytes");
}

static void start_landing(Step& s, Place to, u32 mbarrier, std::vector<u8> bytes, int lane) {
    Mbarrier& b = mbarrier_at(s, mbarrier);
    if (!b.fenced)
        s.race("a copy signals a barrier whose initialisation no fence has made visible", {{b.init_pc, "the initialisation"}});
    start_flight(s, to, (u32)bytes.size(), lane);
    s.c.landings.push_back({to.rank, to.at, mbarrier, std::move(bytes), s.pc});
}

// row: a axes, b multicast. Sources: dst, map, coordinates, mbarrier, mask of CTAs
static Next load_box(Step& s) {
    each_lane(s.mask, [&](int l) {
        const Box box = box_at(s, 1, l);
        const int barrier_source = 2 + s.i.row->a;
        const u32 address = (u32)s.address(0, l), barrier = (u32)s.address(barrier_source, l);
        check_box(s, box, address & SHARED_BITS);
        const u32 own = shared_place(s, address, box.bytes, "write").rank;
        const u32 targets = s.i.row->b ? s.in<u32>(barrier_source + 1)[l] & 0xffff : 1u << own;
        if (targets >> s.c.blocks.size()) s.misuse("a copy goes to more CTAs than the cluster has");
        std::vector<u8> bytes(box.bytes, 0);
        each_chunk(s, box, address & SHARED_BITS, [&](u32 at, u64 from, u32 valid) {
            if (!valid) return;
            Tensor& t = tensor_at(s, from, valid, "read", false);
            if (read_global(s, t, from - t.base, valid, l)) s.race("a bulk copy reads global memory that nothing has written");
            memcpy(&bytes[at], &t.bytes[from - t.base], valid);
        });
        each_lane(targets, [&](int rank) {
            const Place to = {(u32)rank, address & SHARED_BITS};
            const u32 barrier_rank = s.i.row->b ? (u32)rank : shared_place(s, barrier, 8, "barrier").rank;
            start_landing(s, to, mbarrier_key({barrier_rank, barrier & SHARED_BITS}), bytes, l);
        });
    });
    return Next::go_on;
}

// Sources: dst, src, bytes, mbarrier
static Next load_range(Step& s) {
    each_lane(s.mask, [&](int l) {
        const u32 bytes = s.in<u32>(2)[l];
        const u64 from = s.address(1, l);
        const u32 address = (u32)s.address(0, l);
        if (!bytes || bytes % 16 || from % 16 || address % 16) s.misuse("a bulk copy is not of whole chunks of 16 bytes");
        Tensor& t = tensor_at(s, from, bytes, "read", false);
        if (read_global(s, t, from - t.base, bytes, l)) s.race("a bulk copy reads global memory that nothing has written");
        const u8* data = &t.bytes[from - t.base];
        start_landing(s, shared_place(s, address, bytes, "write"),
                      mbarrier_key(shared_place(s, (u32)s.address(3, l), 8, "barrier")), {data, data + bytes}, l);
    });
    return Next::go_on;
}

enum Reduction : int { NONE, ADD_F32, ADD_BF16, ADD_F16, ADD_U32 };

static void put(Step& s, int reduction, u64 to, const u8* from, u32 bytes, int lane) {
    Tensor& t = tensor_at(s, to, bytes, "written", true);
    u8* at = &t.bytes[to - t.base];
    if (reduction == NONE) {
        write_global(s, t, to - t.base, bytes, lane);
        memcpy(at, from, bytes);
        return;
    }
    for (u32 x = 0; x < bytes; x += reduction == ADD_BF16 || reduction == ADD_F16 ? 2 : 4) {
        if (reduction == ADD_F32 || reduction == ADD_U32) {
            u32 a, b;
            memcpy(&a, at + x, 4);
            memcpy(&b, from + x, 4);
            a = reduction == ADD_U32 ? a + b : bits_as<u32>(canonical(bits_as<f32>(a) + bits_as<f32>(b)));
            memcpy(at + x, &a, 4);
        } else {
            u16 a, b;
            memcpy(&a, at + x, 2);
            memcpy(&b, from + x, 2);
            a = (u16)(reduction == ADD_BF16 ? to_bf16(of_bf16(a) + of_bf16(b)) : to_f16(of_f16(a) + of_f16(b)));
            memcpy(at + x, &a, 2);
        }
    }
}

// From now until its group is waited for, the operation reads these bytes.
static void start_reading(Step& s, Place from, u32 bytes, int lane) {
    Shadow& h = shadow_at(s, from.rank);
    for (u32 at = from.at; at < from.at + bytes; at += CHUNK) {
        check_async_read(s, {from.rank, at}, CHUNK, lane);
        freeze(h, at / CHUNK, s.pc);
    }
    s.w.bulk_reads.push_back({from.rank, from.at, bytes, s.pc, lane, s.w.bulk_groups[lane]});
}

// row: a axes, b reduction. Sources: map, coordinates, src
static Next store_box(Step& s) {
    each_lane(s.mask, [&](int l) {
        const Box box = box_at(s, 0, l);
        const u32 address = (u32)s.address(1 + s.i.row->a, l);
        check_box(s, box, address & SHARED_BITS);
        const Place from = shared_place(s, address, box.bytes, "read");
        start_reading(s, from, box.bytes, l);
        const u8* bytes = &shadow_at(s, from.rank).bytes[from.at];
        const int width = box.map.element_bytes, kind = s.i.row->b ? (width == 4 ? ADD_F32 : ADD_BF16) : NONE;
        each_chunk(s, box, from.at, [&](u32 at, u64 to, u32 valid) {
            if (valid) put(s, kind, to, bytes + at, valid, l);
        });
    });
    s.happened();
    return Next::go_on;
}

// row: b reduction. Sources: dst, src, bytes
static Next store_range(Step& s) {
    each_lane(s.mask, [&](int l) {
        const u32 bytes = s.in<u32>(2)[l], address = (u32)s.address(1, l);
        const u64 to = s.address(0, l);
        if (!bytes || bytes % 16 || to % 16 || address % 16) s.misuse("a bulk copy is not of whole chunks of 16 bytes");
        const Place from = shared_place(s, address, bytes, "read");
        start_reading(s, from, bytes, l);
        put(s, s.i.row->b, to, &shadow_at(s, from.rank).bytes[from.at], bytes, l);
    });
    s.happened();
    return Next::go_on;
}

static Next commit(Step& s) {
    each_lane(s.mask, [&](int l) { ++s.w.bulk_groups[l]; });
    return Next::go_on;
}

static Next wait_group(Step& s) {
    const u32 pending = s.uniform(0, "the number of groups");
    size_t kept = 0;
    for (BulkRead& r : s.w.bulk_reads) {
        if (!(s.mask >> r.lane & 1) || r.group + pending >= s.w.bulk_groups[r.lane]) {
            s.w.bulk_reads[kept++] = r;
            continue;
        }
        Shadow& h = shadow_at(s, r.rank);
        for (u32 chunk = r.at / CHUNK; chunk < (r.at + r.bytes) / CHUNK; ++chunk) --h.frozen[chunk];
        note_read(s, h, r.at, r.bytes, r.lane);
    }
    s.w.bulk_reads.resize(kept);
    s.happened();
    return Next::go_on;
}

void add_bulk_rows(Rows& rows) {
    for (int n = 1; n <= 5; ++n) {
        const std::string load = text("cp.async.bulk.tensor.%dd.shared::cluster.global", n),
                          bytes = ".mbarrier::complete_tx::bytes";
        for (const char* tile : {"", ".tile"}) {
            add(rows, load + tile + bytes, text("= A T%d A", n),
                "a box of a tensor to shared memory, zeros outside; its bytes complete on a barrier", load_box, Undefined::strict)
                .a = n;
            Row& multicast = add(rows, load + tile + bytes + ".multicast::cluster", text("= A T%d A r", n),
                                 "a box of a tensor to the same place in CTAs of the cluster", load_box, Undefined::strict);
            multicast.a = n;
            multicast.b = 1;
            add(rows, text("cp.async.bulk.tensor.%dd.global.shared::cta%s.bulk_group", n, tile), text("= T%d A", n),
                "a box in shared memory to a tensor; what lies outside is dropped", store_box, Undefined::strict)
                .a = n;
            Row& reduction =
                add(rows, text("cp.reduce.async.bulk.tensor.%dd.global.shared::cta.add%s.bulk_group", n, tile), text("= T%d A", n),
                    "adds a box in shared memory to a tensor (4 bytes: f32, 2 bytes: bf16)", store_box, Undefined::strict);
            reduction.a = n;
            reduction.b = 1;
        }
    }
    add(rows, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "= A A r A",
        "c bytes to shared memory, completed on a barrier", load_range, Undefined::strict);
    add(rows, "cp.async.bulk.global.shared::cta.bulk_group", "= A A r", "c bytes of shared memory to global memory", store_range,
        Undefined::strict);
    add(rows, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", "= A A r",
        "adds c bytes of shared memory to global memory", store_range, Undefined::strict)
        .b = ADD_F32;
    add(rows, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32", "= A A r",
        "adds c bytes of shared memory to global memory", store_range, Undefined::strict)
        .b = ADD_U32;
    add(rows, "cp.async.bulk.commit_group", "=", "closes the thread's open bulk group", commit);
    add(rows, "cp.async.bulk.wait_group", "= i", "at most a of the thread's bulk groups are unfinished", wait_group);
    add(rows, "cp.async.bulk.wait_group.read", "= i", "at most a of the thread's bulk groups still read shared memory", wait_group);
}
}  // namespace ptx
