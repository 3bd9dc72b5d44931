// Asynchronous copies. cp.async data lands at the wait of the thread that issued it, TMA data when the phase of its barrier ends;
// until then the destination is NaN and owned by the copy.
#pragma once
#include <deque>

#include "emulate/global_memory.h"
#include "emulate/meeting.h"

namespace emu {
// ---- cp.async ----
void copy_16(void* dst, const void* src, int valid_bytes) {
    EMU_ENTER();
    const u32 offset = arena_offset(dst);
    check_inside(offset, 16, "copy");
    check_aligned(dst, 16);
    check_aligned(src, 16);
    if (valid_bytes < 0 || valid_bytes > 16) misuse("a copy of 16 bytes has from 0 to 16 valid bytes");
    if (valid_bytes) check_global(src, (size_t)valid_bytes, false);
    start_copy(offset / GRANULE);
    CopyOf16 copy = {dst, {}, self->place};
    memcpy(copy.data, src, (size_t)valid_bytes);
    memset(dst, POISON, 16);
    self->open_copies.push_back(copy);
}

void copy_commit() {
    EMU_ENTER();
    self->copy_groups.push_back(self->open_copies);
    self->open_copies.clear();
}

void copy_wait(int pending) {
    EMU_ENTER();
    auto& groups = self->copy_groups;
    while ((int)groups.size() > pending) {
        for (const auto& copy : groups.front()) {
            memcpy(copy.dst, copy.data, 16);
            finish_write(arena_offset(copy.dst) / GRANULE, self->warp(), own_clock().at[self->warp()]);
        }
        groups.erase(groups.begin());
    }
}

// ---- TMA ----
struct TensorMap {
    const unsigned char* base;
    int dims[4], box[4];  // columns, rows, heads, batches
    long long stride_bytes[4];
};
inline std::vector<TensorMap> tensor_maps;
constexpr u64 MAP_MAGIC = 0x70616d2d756d65ull;  // first word of a handle; the second is the index of the map

struct TensorCopy {
    u32 offset;
    std::vector<unsigned char> data;
    Mbarrier* barrier;
    Place place;
};
inline std::deque<TensorCopy> tensor_copies;    // issued in this block
inline std::deque<TensorCopy*> copies_on_their_way;

inline const TensorMap& map_of(const void* handle) {
    u64 words[2];
    memcpy(words, handle, sizeof words);
    if (words[0] != MAP_MAGIC || words[1] >= tensor_maps.size()) misuse("this is not a tensor map");
    return tensor_maps[words[1]];
}

// One box row by row; 16-byte chunks are XORed with the row of 128 bytes they lie in, by address, as the 128-byte swizzle does.
inline void read_box(const TensorMap& map, u32 offset, std::vector<unsigned char>& data, const int (&at)[4]) {
    const int row_bytes = map.box[0] * 2;
    for (int row = 0; row < map.box[1]; ++row) {
        const int y = at[1] + row;
        const bool inside = y >= 0 && y < map.dims[1] && at[2] >= 0 && at[2] < map.dims[2] && at[3] >= 0 && at[3] < map.dims[3];
        const long long row_at = y * map.stride_bytes[1] + at[2] * map.stride_bytes[2] + at[3] * map.stride_bytes[3];
        const unsigned char* from = inside ? map.base + row_at : nullptr;
        for (int x = 0; inside && x < map.box[0]; ++x) {
            if (at[0] + x < 0 || at[0] + x >= map.dims[0]) continue;
            const u32 plain = offset + (u32)(row * row_bytes + x * 2);
            const u32 swizzled = plain ^ ((plain >> 7) & 7) << 4;
            memcpy(&data[swizzled - offset], from + (at[0] + x) * 2, 2);
        }
    }
}

void tensor_load(void* dst, const void* handle, void* full, int column, int row, int head, int batch) {
    EMU_ENTER();
    const TensorMap& map = map_of(handle);
    Mbarrier& barrier = barrier_at(full);
    if (!barrier.visible_to_copies) {
        race("a copy signals a barrier whose initialisation no fence has made visible", barrier.init_place, "the initialisation");
    }
    TensorCopy copy;
    copy.offset = arena_offset(dst);
    copy.data.assign((size_t)(map.box[0] * map.box[1] * 2), 0);
    copy.barrier = &barrier;
    copy.place = self->place;
    check_inside(copy.offset, (u32)copy.data.size(), "copy");
    if (copy.offset % 1024) misuse("a swizzled copy's destination is not aligned to 1024 bytes");
    for (u32 at = 0; at < copy.data.size(); at += GRANULE) start_copy((copy.offset + at) / GRANULE);
    read_box(map, copy.offset, copy.data, {column, row, head, batch});
    memset(dst, POISON, copy.data.size());
    tensor_copies.push_back(std::move(copy));
    copies_on_their_way.push_back(&tensor_copies.back());
}

inline void land_tensor_copies() {
    while (!copies_on_their_way.empty()) {
        TensorCopy* copy = copies_on_their_way.front();
        copies_on_their_way.pop_front();
        copy->barrier->bytes_due -= (long)copy->data.size();
        copy->barrier->landed.push_back(copy);
        end_phase_if_due(*copy->barrier);
    }
}

inline void show_tensor_copies(Mbarrier& barrier) {
    for (const TensorCopy* copy : barrier.landed) {
        memcpy(arena + copy->offset, copy->data.data(), copy->data.size());
        for (u32 at = 0; at < copy->data.size(); at += GRANULE) {
            finish_write((copy->offset + at) / GRANULE, MAX_WARPS + barrier.id, (u32)barrier.completed);
        }
    }
    barrier.landed.clear();
}

inline void reset_copies() {
    tensor_copies.clear();
    copies_on_their_way.clear();
    land_copies = land_tensor_copies;
    copies_pending = [] { return !copies_on_their_way.empty(); };
    show_copies = show_tensor_copies;
}

inline void check_copies_at_end() {
    for (const auto& g : granules) {
        if (g.in_flight) fault(Fault::misuse, "the block ends while a copy is on its way", g.write_place);
    }
}
}  // namespace emu
