// Accesses by address, in whatever space it lies.
#include "order_checks.h"

namespace ptx {
void undefined_fault(Step& s, const char* where, int origin) {
    if (origin < 0) s.race(text("a register that nothing has written is used as %s", where));
    throw Fault{FaultKind::race, text("memory is read that nothing has written, for %s", where), origin, {{s.pc, "the use"}}};
}

static u8* local_bytes(Step& s, u64 address, u32 bytes, int lane) {
    const u64 at = address & OFFSET_BITS, size = s.m.program.local_bytes;
    if (at + bytes > size)
        s.fault(FaultKind::bounds, text("an index lies outside its array: local memory offset %llu, %u bytes; a thread has %llu",
                                        (unsigned long long)at, bytes, (unsigned long long)size));
    return &s.w.local[(u64)lane * size * 2 + at];
}

// The space of a generic address; of one that code calls global, which constants of the text are too.
static Space narrowed(Step& s, Space said, u64 address) {
    const u64 kind = address >> SPACE_SHIFT;
    if (kind > (u64)Space::data) s.fault(FaultKind::bounds, "memory is accessed at an address that is no tensor's");
    const Space space = (Space)kind;
    if (said == Space::tensor && space != Space::tensor && space != Space::data) {
        s.fault(FaultKind::bounds, "an address of another memory space is used as one of global memory");
    }
    return space;
}

Bytes read_memory(Step& s, Space space, u64 address, u32 bytes, int lane) {
    if (space == Space::generic || space == Space::tensor) space = narrowed(s, space, address);
    if (address % (bytes & -bytes)) s.misuse(text("an address is not aligned to the %u bytes that are read there", bytes));
    switch (space) {
        case Space::shared: {
            const Place p = shared_place(s, (u32)address, bytes, "read");
            const bool undefined = read_shared(s, p, bytes, lane);
            return {&shadow_at(s, p.rank).bytes[p.at], undefined};
        }
        case Space::local: {
            u8* at = local_bytes(s, address, bytes, lane);
            const u8* written = at + s.m.program.local_bytes;
            return {at, !std::all_of(written, written + bytes, [](u8 x) { return x == 1; })};
        }
        case Space::param:
        case Space::data: {
            auto& from = space == Space::param ? s.m.params : s.m.data;
            const u64 at = address & OFFSET_BITS;
            if (at + bytes > from.size())
                s.fault(FaultKind::bounds,
                        text("%s are read at offset %llu, past their %zu bytes", space == Space::param ? "parameters" : "variables",
                             (unsigned long long)at, from.size()));
            return {&from[at], false};
        }
        default: {
            Tensor& t = tensor_at(s, address, bytes, "read", false);
            const bool undefined = read_global(s, t, address - t.base, bytes, lane);
            return {&t.bytes[address - t.base], undefined};
        }
    }
}

u8* write_memory(Step& s, Space space, u64 address, u32 bytes, int lane, bool undefined) {
    if (space == Space::generic || space == Space::tensor) space = narrowed(s, space, address);
    if (address % (bytes & -bytes)) s.misuse(text("an address is not aligned to the %u bytes that are written there", bytes));
    switch (space) {
        case Space::shared: {
            const Place p = shared_place(s, (u32)address, bytes, "write");
            check_shared_write(s, p, bytes, lane);
            note_shared_write(s, p, bytes, lane, undefined);
            return &shadow_at(s, p.rank).bytes[p.at];
        }
        case Space::local: {
            u8* at = local_bytes(s, address, bytes, lane);
            memset(at + s.m.program.local_bytes, undefined ? 0 : 1, bytes);
            return at;
        }
        case Space::tensor: {
            Tensor& t = tensor_at(s, address, bytes, "written", true);
            write_global(s, t, address - t.base, bytes, lane);
            return &t.bytes[address - t.base];
        }
        default: s.fault(FaultKind::bounds, "constant memory is written");
    }
}

u8* strong_access(Step& s, Space space, u64 address, u32 bytes, int lane, bool writes, bool reads) {
    if (address % bytes) s.misuse(text("an address is not aligned to the %u bytes of an atomic access", bytes));
    if (space == Space::shared || address >> SPACE_SHIFT == (u64)Space::shared) {
        return strong_shared(s, shared_place(s, (u32)address, bytes, "atomic access"), bytes, lane, writes, reads);
    }
    Tensor& t = tensor_at(s, address, bytes, writes ? "written" : "read", writes);
    return strong_global(s, t, address - t.base, bytes, lane, writes, reads);
}
}  // namespace ptx
