// The log of the traced block.
#include "log.h"

namespace ptx {
static void begin_entry(Machine& m, const Warp& w, int pc, u32 mask, size_t words) {
    m.log.push_back((u64)pc << 32 | mask);
    m.log.push_back((u64)w.index << 32 | words);
}

void log_branch(Machine& m, const Warp& w, const Split& at, u32 taken) {
    begin_entry(m, w, at.pc, at.mask, 1);
    m.log.push_back(taken);
}

void keep_addresses(Step& s) {
    s.m.addresses.clear();
    for (int k = 0; k < s.sources(); ++k) {
        if (!s.source(k).is_address) continue;
        for (int l = 0; l < LANES; ++l) s.m.addresses.push_back(s.address(k, l));
    }
}

void log_step(Step& s) {
    std::vector<u64>& log = s.m.log;
    begin_entry(s.m, s.w, s.pc, s.mask, 0);
    const size_t first = log.size();
    log.insert(log.end(), s.m.addresses.begin(), s.m.addresses.end());
    for (int k = 0; k < s.i.results; ++k) {
        const Operand& x = s.operand(k);
        if (!x.bytes) {
            log.push_back(x.slot < 0 ? 0 : s.w.predicates[x.slot]);
            continue;
        }
        for (int l = 0; l < LANES; ++l) log.push_back(x.slot < 0 ? 0 : s.wide(x, l));
    }
    log[first - 1] |= log.size() - first;
}
}  // namespace ptx
