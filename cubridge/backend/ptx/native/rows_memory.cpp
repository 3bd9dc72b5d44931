// Loads and stores of every space. Each lane's bytes are checked by themselves.
#include "order.h"
#include "rows.h"

namespace ptx {
struct Kind {
    const char* name;
    int bytes;
    bool is_signed;
};
constexpr Kind KINDS[] = {{"b8", 1, false},  {"u8", 1, false},  {"s8", 1, true},   {"b16", 2, false},
                          {"u16", 2, false}, {"s16", 2, true},  {"f16", 2, false}, {"bf16", 2, false},
                          {"b32", 4, false}, {"u32", 4, false}, {"s32", 4, true},  {"f32", 4, false},
                          {"b64", 8, false}, {"u64", 8, false}, {"s64", 8, true},  {"f64", 8, false}};

static u64 extended(u64 value, int bytes, bool is_signed) {
    if (!is_signed || bytes == 8) return value;
    const int shift = 64 - 8 * bytes;
    return (u64)((s64)(value << shift) >> shift);
}

static void check_address_known(Step& s, const Operand& x) {
    if (s.undefined_of(x) & s.mask) undefined_fault(s, "an address", s.origin_of(x));
}

// row: a bytes of an element, b signed, c space
static Next load(Step& s) {
    const Row& row = *s.i.row;
    check_address_known(s, s.source(0));
    u32 undefined = 0;
    each_lane(s.mask, [&](int l) {
        const Bytes from = read_memory(s, (Space)row.c, s.address(0, l), row.a * s.i.results, l);
        undefined |= (u32)from.undefined << l;
        u64 values[8];
        for (int k = 0; k < s.i.results; ++k) {
            u64 value = 0;
            memcpy(&value, from.at + k * row.a, row.a);
            values[k] = extended(value, row.a, row.b);
        }
        for (int k = 0; k < s.i.results; ++k) {
            if (s.operand(k).slot >= 0) s.set_wide(s.operand(k), l, values[k]);
        }
    });
    for (int k = 0; k < s.i.results; ++k) s.set_undefined(s.operand(k), undefined, s.pc);
    return Next::go_on;
}

static Next store(Step& s) {
    const Row& row = *s.i.row;
    check_address_known(s, s.source(0));
    const int count = s.sources() - 1;
    u32 undefined = 0;
    for (int k = 1; k <= count; ++k) undefined |= s.undefined_of(s.source(k));
    each_lane(s.mask, [&](int l) {
        const u64 address = s.address(0, l);
        const bool to_tensor =
            row.c != (int)Space::shared && row.c != (int)Space::local && address >> SPACE_SHIFT == (u64)Space::tensor;
        if (to_tensor && (undefined >> l & 1) && !(tensor_at(s, address, row.a * count, "written", true).flags & MAY_BE_UNKNOWN)) {
            for (int k = 1; k <= count; ++k) {
                if (s.undefined_of(s.source(k)) >> l & 1) undefined_fault(s, "a result in global memory", s.origin_of(s.source(k)));
            }
        }
        u8* to = write_memory(s, (Space)row.c, address, row.a * count, l, undefined >> l & 1);
        for (int k = 0; k < count; ++k) {
            const u64 value = s.wide(s.source(k + 1), l);
            memcpy(to + k * row.a, &value, row.a);
        }
    });
    s.happened();
    return Next::go_on;
}

static std::string group_of(int count) {
    return count == 1 ? "w" : text("w*%d", count);
}

static void add_space(Rows& rows, const std::string& space, Space where) {
    const bool read_only = where == Space::param || where == Space::data;
    for (const Kind& kind : KINDS) {
        for (int count : {1, 2, 4, 8}) {
            if (kind.bytes * count > 32 || (count == 8 && kind.bytes != 4)) continue;
            const std::string vector = count == 1 ? "" : text(".v%d", count), type = vector + "." + kind.name;
            const auto set = [&](Row& row) {
                row.a = kind.bytes;
                row.b = kind.is_signed;
                row.c = (int)where;
            };
            set(add(rows, "ld" + space + type, group_of(count) + " = A", "the values at an address", load, Undefined::own));
            if (where == Space::tensor)
                set(add(rows, "ld" + space + ".nc" + type, group_of(count) + " = A",
                        "the values at an address that no thread writes", load, Undefined::own));
            if (!read_only)
                set(add(rows, "st" + space + type, "= A " + group_of(count), "puts values at an address", store, Undefined::own));
        }
    }
}

void add_memory_rows(Rows& rows) {
    add_space(rows, "", Space::generic);
    add_space(rows, ".global", Space::tensor);
    add_space(rows, ".shared", Space::shared);
    add_space(rows, ".shared::cta", Space::shared);
    add_space(rows, ".shared::cluster", Space::shared);
    add_space(rows, ".local", Space::local);
    add_space(rows, ".param", Space::param);
    add_space(rows, ".const", Space::data);
}
}  // namespace ptx
