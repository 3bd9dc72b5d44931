// The plan of a launch whose mask reads data: the lists of key tiles that a kernel walks (docs/cuir.md, tile lists). This header stands
// behind the whole text of the kernel, whose own `tile_setup` and `mask` say what is seen: scores of 0 stay 0 where a row sees a key.
// Before it stand: LIST_ENTRIES, LIST_ROWS, LIST_BATCH, LIST_HEADS_Q, LIST_HEADS_KV, LIST_LEN_Q, LIST_LEN_KV, what is read of the
// kernel's Params `p`; LIST_AXES, 0 for one list for all, 1 for one a batch, 2 for one a head; LIST_QUERIES, LIST_KEYS, the sizes of
// its tiles; LIST_THREADS, the threads of its blocks.
//
// Launch: any whole number of blocks for each list, with the threads of the kernel. LIST_ENTRIES is the address of zeros, as ListMemory
// lays them out. The blocks of a list share its tiles; the last to finish puts them in order.
#pragma once

DEVICE int list_thread() { return threadIdx.x; }
DEVICE int list_block() { return blockIdx.x; }
DEVICE int list_blocks() { return gridDim.x; }
DEVICE bool list_any(bool x) { return __any_sync(0xffffffffu, x); }
DEVICE void list_sync() { __syncthreads(); }
DEVICE int list_load(const short* p) { return __ldcg(p); }  // what other blocks wrote
DEVICE int list_arrive(int* p) {  // the last to arrive reads what the others wrote
    __threadfence();
    const int before = atomicAdd(p, 1);
    __threadfence();
    return before;
}

constexpr int LIST_HEAD = 2;  // entries before the first tile: how many tiles, how many of them are masked
enum Seen { NONE = 0, PART = 1, WHOLE = 2 };

// What `mask` takes: scores [R][C] a thread holds, and the query tile.
template <typename Function> struct MaskOf;
template <int R, int C, typename T> struct MaskOf<void(float (&)[R][C], int, const T&, const Params&)> {
    static constexpr int ROWS_HELD = R, COLS_HELD = C;
    typedef T Tile;
};
typedef MaskOf<decltype(mask)> ListMask;

struct ListShared {
    int warps[2][LIST_THREADS / 32];  // what the warps saw of a tile, of two tiles in turn
    int parts[LIST_THREADS], wholes[LIST_THREADS];
    int is_last;
};

// [lists][LIST_HEAD + tiles] entries; then, for the blocks that make them, [lists][tiles] what is seen, and an int for each list.
struct ListMemory {
    int lists, tiles, per_head, heads;
    short* entries;
    short* seen;
    int* arrived;
};
DEVICE ListMemory list_memory(const Params& p) {
    ListMemory m;
    m.tiles = (LIST_LEN_KV + LIST_KEYS - 1) / LIST_KEYS;
    m.per_head = (LIST_LEN_Q + LIST_ROWS - 1) / LIST_ROWS;
    m.heads = LIST_AXES == 2 ? LIST_HEADS_Q : 1;
    m.lists = (LIST_AXES >= 1 ? LIST_BATCH : 1) * m.heads * m.per_head;
    m.entries = const_cast<short*>(LIST_ENTRIES);
    m.seen = m.entries + (i64)m.lists * (LIST_HEAD + m.tiles);
    const i64 shorts = (i64)m.lists * (LIST_HEAD + 2 * m.tiles);
    m.arrived = reinterpret_cast<int*>(m.entries + (shorts + 1) / 2 * 2);
    return m;
}

// What the rows of this block's threads see of key tile n, together: the same in all threads. `turn`: alternates from tile to tile.
DEVICE int seen_of(ListShared& shared, const ListMask::Tile& tile, int n, int turn, const Params& p) {
    float s[ListMask::ROWS_HELD][ListMask::COLS_HELD];
    #pragma unroll
    for (int r = 0; r < ListMask::ROWS_HELD; ++r) {
        #pragma unroll
        for (int c = 0; c < ListMask::COLS_HELD; ++c) s[r][c] = 0.f;
    }
    mask(s, n * LIST_KEYS, tile, p);
    bool some = false, every = true;
    #pragma unroll
    for (int r = 0; r < ListMask::ROWS_HELD; ++r) {
        const int row = frag_row(r);  // before the tile in threads that hold none
        const bool real = (row >= 0) & (tile.q_start + row < LIST_LEN_Q);
        #pragma unroll
        for (int c = 0; c < ListMask::COLS_HELD; ++c) {
            const bool visible = s[r][c] == 0.f;
            some = some | (visible & real);
            every = every & (visible | !real);
        }
    }
    const bool any = list_any(some), missed = list_any(!every);
    if (list_thread() % 32 == 0) shared.warps[turn][list_thread() / 32] = any + 2 * missed;
    list_sync();
    int found = 0;
    for (int w = 0; w < LIST_THREADS / 32; ++w) found = found | shared.warps[turn][w];
    return (found & 1) == 0 ? NONE : (found & 2) == 0 ? WHOLE : PART;
}

// The list from what is seen of its tiles, by all threads: those seen in part, then those seen whole, each from the right.
DEVICE void put_in_order(ListShared& shared, short* entries, const short* seen, int tiles) {
    const int thread = list_thread(), share = (tiles + LIST_THREADS - 1) / LIST_THREADS;
    const int first = thread * share, end = first + share < tiles ? first + share : tiles;
    int parts = 0, wholes = 0;
    for (int x = first; x < end; ++x) {
        const int what = list_load(seen + tiles - 1 - x);
        parts += what == PART;
        wholes += what == WHOLE;
    }
    shared.parts[thread] = parts;
    shared.wholes[thread] = wholes;
    list_sync();
    int part_at = 0, whole_at = 0, all_parts = 0, all_wholes = 0;
    for (int t = 0; t < LIST_THREADS; ++t) {
        const int a = shared.parts[t], b = shared.wholes[t];
        part_at += t < thread ? a : 0;
        whole_at += t < thread ? b : 0;
        all_parts += a;
        all_wholes += b;
    }
    const int count = all_parts + all_wholes;
    if (thread == 0) {
        entries[0] = (short)count;
        entries[1] = (short)all_parts;
    }
    short* to = entries + LIST_HEAD;
    whole_at += all_parts;
    for (int x = first; x < end; ++x) {
        const int n = tiles - 1 - x, what = list_load(seen + n);
        if (what == PART) to[part_at++] = (short)n;
        if (what == WHOLE) to[whole_at++] = (short)n;
    }
    for (int x = count + thread; x < tiles; x += LIST_THREADS) to[x] = -1;  // no tile: what walks too far is found out
}

extern "C" __global__ void __launch_bounds__(LIST_THREADS) list_tiles(const __grid_constant__ Params p) {
    __shared__ ListShared shared;
    const ListMemory m = list_memory(p);
    const int blocks = list_blocks() / m.lists;  // of one list
    const int list = list_block() / blocks, block = list_block() % blocks;
    short* seen = m.seen + (i64)list * m.tiles;
    ListMask::Tile tile;
    const int head = list / m.per_head;
    tile.b = head / m.heads;
    tile.h = head % m.heads;
    tile.hk = tile.h / (LIST_HEADS_Q / LIST_HEADS_KV);
    const int first = list % m.per_head * LIST_ROWS;
    int turn = 0;
    for (int q_start = first; q_start < first + LIST_ROWS && q_start < LIST_LEN_Q; q_start += LIST_QUERIES) {
        tile.q_start = q_start;
        tile_setup(tile, p);
        for (int n = block; n < m.tiles; n += blocks) {
            const int what = seen_of(shared, tile, n, turn, p);
            turn ^= 1;
            // query tiles that share a list: what they do not see alike, they see in part
            if (list_thread() == 0) seen[n] = (short)(q_start == first || seen[n] == what ? what : PART);
        }
    }
    if (list_thread() == 0) shared.is_last = list_arrive(m.arrived + list) == blocks - 1;
    list_sync();
    if (shared.is_last) put_in_order(shared, m.entries + (i64)list * (LIST_HEAD + m.tiles), seen, m.tiles);
}
