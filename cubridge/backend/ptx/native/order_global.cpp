// Global memory: every access lies in a tensor, and is ordered where another block or thread wrote.
#include "order_checks.h"

namespace ptx {
static std::string describe(const Tensor& t, u64 address) {
    const s64 past = (s64)(address - t.base);
    if (past < 0) return text("%lld bytes before the start of `%s`", (long long)-past, t.name.c_str());
    if (past >= (s64)t.bytes.size()) {
        return text("%lld bytes past the end of `%s` (%zu bytes)", (long long)past - (long long)t.bytes.size(), t.name.c_str(),
                    t.bytes.size());
    }
    return text("byte %lld of `%s`%s", (long long)past, t.name.c_str(), t.writable() ? "" : ", which is an input");
}

Tensor& tensor_at(Step& s, u64 address, u32 bytes, const char* verb, bool writes) {
    const u64 number = (address + (1ull << (TENSOR_SHIFT - 1))) >> TENSOR_SHIFT;
    if (number < 1 || number > s.m.tensors.size()) {
        s.fault(FaultKind::bounds, text("global memory is %s outside its tensor: an address that is no tensor's", verb));
    }
    Tensor& t = s.m.tensors[number - 1];
    const bool inside = address >= t.base && address + bytes <= t.base + t.bytes.size();
    if (inside && !(writes && !t.writable())) return t;
    const bool starts_inside = address >= t.base && address < t.base + t.bytes.size();
    s.fault(FaultKind::bounds, text("global memory is %s outside its tensor: %s", verb,
                                    describe(t, !inside && starts_inside ? t.base + t.bytes.size() : address).c_str()));
}

bool read_global(Step& s, Tensor& t, u64 offset, u32 bytes, int lane) {
    if (!t.writable()) return false;
    bool undefined = false;
    for (u32 x = 0; x < bytes; ++x) {
        const Stamp stamp = (Stamp)t.written[offset + x];
        undefined |= !stamp && !t.starts_known();
        if (stamp && !ordered(s, stamp, lane))
            s.race("global memory is read without an order after the write", {the(s, stamp, "the write")});
        t.read[offset + x] = stamp_of(s, lane);
    }
    return undefined;
}

void write_global(Step& s, Tensor& t, u64 offset, u32 bytes, int lane) {
    const Stamp now = stamp_of(s, lane);
    Stamp last_write = 0, last_read = 0;
    for (u32 x = 0; x < bytes; ++x) {
        const Stamp written = (Stamp)t.written[offset + x], read = (Stamp)t.read[offset + x];
        if (written && written != last_write && !ordered(s, written, lane)) {
            s.race("global memory is overwritten without an order after the last write", {the(s, written, "the write")});
        }
        if (read && read != last_read && !ordered(s, read, lane)) {
            s.race("global memory is overwritten without an order after the last read", {the(s, read, "the read")});
        }
        last_write = written;
        last_read = read;
        t.written[offset + x] = now;
    }
}

u8* strong_global(Step& s, Tensor& t, u64 offset, u32 bytes, int lane, bool writes, bool reads) {
    if (!t.writable()) return &t.bytes[offset];
    const Stamp now = stamp_of(s, lane);
    for (u64 x = offset; x < offset + bytes; ++x) {
        const u64 written = t.written[x], read = t.read[x];
        if (reads && !written && !t.starts_known())
            s.race("an atomic access finds a value that nothing has written");
        if ((Stamp)written && !(written & STRONG_ACCESS) && !ordered(s, (Stamp)written, lane)) {
            s.race("global memory is accessed without an order after the last write", {the(s, (Stamp)written, "the write")});
        }
        if (writes && (Stamp)read && !(read & STRONG_ACCESS) && !ordered(s, (Stamp)read, lane)) {
            s.race("global memory is overwritten without an order after the last read", {the(s, (Stamp)read, "the read")});
        }
        (writes ? t.written : t.read)[x] = now | STRONG_ACCESS;
    }
    return &t.bytes[offset];
}
}  // namespace ptx
