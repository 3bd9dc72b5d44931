// What the checks of shared and global memory have in common.
#pragma once
#include "order.h"

namespace ptx {
// Does the lane (MANY_LANES: every lane) know of an access?
bool ordered(Step& s, Stamp stamp, int lane);
u8* strong_shared(Step& s, Place p, u32 bytes, int lane, bool writes, bool reads);
u8* strong_global(Step& s, Tensor& t, u64 offset, u32 bytes, int lane, bool writes, bool reads);

template <class F>
void each_run(const Stamp* stamps, u32 count, Stamp first, F f) {
    Stamp last = 0;
    for (u32 x = 0; x < count; ++x) {
        const Stamp stamp = stamps[x];
        if (stamp == last || stamp < first || !stamp) continue;
        last = stamp;
        f(stamp);
    }
}

inline Remark the(Step& s, Stamp stamp, const char* what) {
    return {s.m.events[stamp >> LANE_BITS].pc, what};
}
}  // namespace ptx
