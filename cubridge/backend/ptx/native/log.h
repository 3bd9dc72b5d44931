// What one block did, step by step. An entry is two words, pc and mask of lanes, warp and number of words that follow; then, of an
// instruction, 32 lanes of each address and of each result, a predicate in one word; of a branch, the lanes that take it.
#pragma once
#include "machine.h"

namespace ptx {
inline bool is_traced(const Machine& m, const Cluster& c, const Warp& w) {
    return m.config.traced >= 0 && (c.serial - 1) * m.config.cluster + (u32)w.rank == (u32)m.config.traced;
}

void log_branch(Machine& m, const Warp& w, const Split& at, u32 taken);
// Before an instruction runs, since it may write the register that it was addressed by.
void keep_addresses(Step& s);
void log_step(Step& s);
}  // namespace ptx
