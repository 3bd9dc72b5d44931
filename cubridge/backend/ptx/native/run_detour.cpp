// Conditions that nothing wrote. Where both ways only compute and meet again, what they compute is unknown, and nothing is decided.
#include <set>

#include "schedule.h"

namespace ptx {
constexpr size_t MOST_INSTRUCTIONS = 4096;

// Follows both ways at once, the one that is behind first, until they are one.
static Detour detour_from(const Program& p, int pc) {
    Detour d;
    std::set<int> at;
    if (p.code[pc].target >= 0)
        at = {pc + 1, p.code[pc].target};
    else
        d.results.assign(p.code[pc].x, p.code[pc].x + p.code[pc].results), at = {pc + 1};
    if (p.code[pc].target < 0 && !p.code[pc].row->computes) return d;
    if (*at.begin() <= pc) return d;
    for (size_t count = 0; at.size() > 1; ++count) {
        const int here = *at.begin();
        const Instruction& i = p.code[here];
        at.erase(at.begin());
        const bool is_branch = i.target >= 0;
        if (count > MOST_INSTRUCTIONS || (is_branch ? i.target <= here : !i.row->computes)) return d;
        if (is_branch) at.insert(i.target);
        if (!is_branch || i.guard >= 0) at.insert(here + 1);
        d.results.insert(d.results.end(), i.x, i.x + i.results);
    }
    d.join = *at.begin();
    return d;
}

const Detour& detour_of(Machine& m, int pc) {
    const auto found = m.detours.find(pc);
    return found != m.detours.end() ? found->second : m.detours.emplace(pc, detour_from(m.program, pc)).first->second;
}
}  // namespace ptx
