// The plan of a launch whose mask reads data: the lists of key tiles that a kernel walks (docs/cuir.md, tile lists). This header stands
// behind the whole text of the kernel. Before it stand: LIST_ENTRIES, LIST_ROWS, LIST_BATCH, LIST_HEADS_Q, LIST_HEADS_KV, LIST_LEN_ROWS,
// LIST_LEN_KEYS, what is read of the kernel's Params `p`; LIST_AXES, 0 for one list for all, 1 for one a batch, 2 for one a head;
// LIST_KEYS, the keys of a tile; and the mask: LIST_KEEP, is key.j visible to row.i; LIST_TRUTH, the same by the bounds of some rows and
// keys; LIST_ROW_DATA and LIST_KEY_DATA, what they read of a row and of a key, as DO(of, type, name, value). Where LIST_OF_QUERIES is
// true, what is called keys here are queries, and what is called rows are keys.
//
// Launch: a block of LIST_THREADS for each list. A warp takes a tile: its positions may decide it, or the bounds of its data; else its
// elements do, until one is visible and one is not.
#pragma once
#include "common/spans.cuh"

constexpr int LIST_HEAD = 2;  // entries before the first tile: how many tiles, how many of them are masked
constexpr int LIST_MOST = 32768;  // tiles
constexpr int LIST_THREADS = 1024, LIST_WARPS = LIST_THREADS / 32;
constexpr int LIST_HELD = (LIST_KEYS + 31) / 32;  // keys of a tile that a lane holds
enum class Seen : unsigned char { NONE, PART, WHOLE };

DEVICE int list_lane() { return threadIdx.x % 32; }
DEVICE int list_warp() { return threadIdx.x / 32; }
DEVICE int list_lanes_below(u32 lanes) { return __popc(lanes & ((1u << list_lane()) - 1)); }

// The kernel's work tile, whatever it calls it.
template <typename Function> struct TileOf;
template <typename T> struct TileOf<void(T&, const Params&)> { typedef T Type; };
typedef TileOf<decltype(tile_setup)>::Type ListTile;

// ---- rows and keys: one of them, and bounds of some ----
#define LIST_FIELD(of, type, name, value) type name;
#define LIST_SPAN(of, type, name, value) SpanOf<type>::Type name;
#define LIST_LOAD(of, type, name, value) of.name = value;
#define LIST_UNKNOWN(of, type, name, value) , unknown<SpanOf<type>::Type>()
#define LIST_ONE(of, type, name, value) , SpanOf<type>::Type(of.name)
#define LIST_HULL(of, type, name, value) of.name = hull(of.name, SpanOf<type>::Type(other.name));
#define LIST_WARP(of, type, name, value) of.name = warp_hull(of.name);
#define LIST_SIDE(One, Some, one, some, at, DATA)                                                          \
    struct One { int at; DATA(LIST_FIELD, one) };                                                          \
    struct Some { IntSpan at; DATA(LIST_SPAN, some) };                                                     \
    DEVICE One one##_of(int at, const ListTile& tile, const Params& p) {                                   \
        One one;                                                                                           \
        one.at = at;                                                                                       \
        DATA(LIST_LOAD, one)                                                                               \
        return one;                                                                                        \
    }                                                                                                      \
    DEVICE Some some##_at(IntSpan at) { return Some{at DATA(LIST_UNKNOWN, some)}; }                        \
    DEVICE Some some##_of(const One& one) { return Some{IntSpan(one.at) DATA(LIST_ONE, one)}; }            \
    DEVICE void take_in(Some& some, const One& other) { DATA(LIST_HULL, some) }                            \
    DEVICE void take_in_warp(Some& some, IntSpan at) { some.at = at; DATA(LIST_WARP, some) }
LIST_SIDE(ListRow, ListRows, row, rows, i, LIST_ROW_DATA)
LIST_SIDE(ListKey, ListKeys, key, keys, j, LIST_KEY_DATA)

DEVICE bool visible(const ListRow& row, const ListKey& key, const ListTile& tile, const Params& p) { return LIST_KEEP; }
DEVICE Truth visible(const ListRows& row, const ListKeys& key, const ListTile& tile, const Params& p) { return LIST_TRUTH; }

DEVICE ListRows bounds_of_rows(IntSpan i, const ListTile& tile, const Params& p) {
    ListRows rows = rows_of(row_of(imin(i.lo + list_lane(), i.hi), tile, p));
    for (int x = i.lo + list_lane() + 32; x <= i.hi; x += 32) take_in(rows, row_of(x, tile, p));
    take_in_warp(rows, i);
    return rows;
}

// ---- what rows see of a key tile, together: by one warp, the same in all lanes ----
DEVICE Seen seen_by_elements(IntSpan i, const ListKey (&held)[LIST_HELD], bool filled, const ListTile& tile, const Params& p) {
    const int rows = i.hi - i.lo + 1;
    bool some = false, every = filled;
    for (int x = 0; x < rows; ++x) {
        // from both ends: what rows see changes there last
        const ListRow row = row_of(x % 2 == 0 ? i.lo + x / 2 : i.hi - x / 2, tile, p);
        bool any = false, all = true;
        #pragma unroll
        for (int c = 0; c < LIST_HELD; ++c) {
            const bool keep = visible(row, held[c], tile, p);
            any = any | keep;
            all = all & keep;
        }
        some = some | __any_sync(0xffffffffu, any);
        every = every & __all_sync(0xffffffffu, all);
        if (some & !every) return Seen::PART;
    }
    return some ? Seen::WHOLE : Seen::NONE;
}
DEVICE Seen seen_of(int n, const ListRows& rows, const ListTile& tile, const Params& p) {
    const int first = n * LIST_KEYS, end = imin(first + LIST_KEYS, LIST_LEN_KEYS);
    const bool filled = (end == first + LIST_KEYS) & (!LIST_OF_QUERIES | rows.i.hi - rows.i.lo + 1 == LIST_ROWS);
    const IntSpan j(first, end - 1);
    if (!visible(rows, keys_at(j), tile, p).some) return Seen::NONE;
    ListKey held[LIST_HELD];  // beyond the last key the last one
    #pragma unroll
    for (int c = 0; c < LIST_HELD; ++c) held[c] = key_of(imin(first + list_lane() + 32 * c, end - 1), tile, p);
    ListKeys keys = keys_of(held[0]);
    #pragma unroll
    for (int c = 1; c < LIST_HELD; ++c) take_in(keys, held[c]);
    take_in_warp(keys, j);
    const Truth seen = visible(rows, keys, tile, p);
    if (!seen.some) return Seen::NONE;
    if (seen.every) return filled ? Seen::WHOLE : Seen::PART;
    return seen_by_elements(rows.i, held, filled, tile, p);
}

// ---- lists ----
struct ListShared {
    Seen seen[LIST_MOST];
    int parts[LIST_MOST / 32], wholes[LIST_MOST / 32];  // of 32 tiles in turn
};
DEVICE int sum_before(const int* counts, int end) {
    int sum = 0;
    for (int x = list_lane(); x < end; x += 32) sum += counts[x];
    return __reduce_add_sync(0xffffffffu, sum);
}
// The tile that comes as the x-th of its kind: from the right, or from tile `start` on and then from the left; -1 for none.
DEVICE int tile_in_turn(int x, int start, int tiles) {
    if (x >= tiles) return -1;
    if (!LIST_OF_QUERIES) return tiles - 1 - x;
    return start + x < tiles ? start + x : start + x - tiles;
}
// The list from what is seen of its tiles: those seen in part, then those seen whole, each in turn.
DEVICE void put_in_order(ListShared& shared, short* entries, int start, int tiles) {
    const int groups = (tiles + 31) / 32;
    for (int g = list_warp(); g < groups; g += LIST_WARPS) {
        const int n = tile_in_turn(32 * g + list_lane(), start, tiles);
        const Seen what = n < 0 ? Seen::NONE : shared.seen[n];
        const u32 parts = __ballot_sync(0xffffffffu, what == Seen::PART), wholes = __ballot_sync(0xffffffffu, what == Seen::WHOLE);
        if (list_lane() == 0) {
            shared.parts[g] = __popc(parts);
            shared.wholes[g] = __popc(wholes);
        }
    }
    __syncthreads();
    const int parts = sum_before(shared.parts, groups), count = parts + sum_before(shared.wholes, groups);
    if (threadIdx.x == 0) {
        entries[0] = (short)count;
        entries[1] = (short)parts;
    }
    short* to = entries + LIST_HEAD;
    for (int g = list_warp(); g < groups; g += LIST_WARPS) {
        const int n = tile_in_turn(32 * g + list_lane(), start, tiles);
        const Seen what = n < 0 ? Seen::NONE : shared.seen[n];
        const int part = sum_before(shared.parts, g) + list_lanes_below(__ballot_sync(0xffffffffu, what == Seen::PART));
        const int whole = parts + sum_before(shared.wholes, g) + list_lanes_below(__ballot_sync(0xffffffffu, what == Seen::WHOLE));
        if (what != Seen::NONE) to[what == Seen::PART ? part : whole] = (short)n;
    }
    for (int x = count + threadIdx.x; x < tiles; x += LIST_THREADS) to[x] = -1;  // no tile: what walks too far is found out
}

extern "C" __global__ void __launch_bounds__(LIST_THREADS) list_tiles(const __grid_constant__ Params p) {
    __shared__ ListShared shared;
    const int tiles = (LIST_LEN_KEYS + LIST_KEYS - 1) / LIST_KEYS;
    const int per_head = (LIST_LEN_ROWS + LIST_ROWS - 1) / LIST_ROWS;
    const int heads = LIST_AXES == 2 ? LIST_HEADS_Q : 1;
    const int list = blockIdx.x, head = list / per_head, first = list % per_head * LIST_ROWS;
    ListTile tile;
    tile.b = head / heads;
    tile.h = head % heads;
    tile.hk = tile.h / (LIST_HEADS_Q / LIST_HEADS_KV);
    if (list_warp() < tiles) {
        const ListRows rows = bounds_of_rows(IntSpan(first, imin(first + LIST_ROWS, LIST_LEN_ROWS) - 1), tile, p);
        for (int n = list_warp(); n < tiles; n += LIST_WARPS) {
            const Seen what = seen_of(n, rows, tile, p);
            if (list_lane() == 0) shared.seen[n] = what;
        }
    }
    __syncthreads();
    put_in_order(shared, const_cast<short*>(LIST_ENTRIES) + (i64)list * (LIST_HEAD + tiles), first / LIST_KEYS % tiles, tiles);
}
