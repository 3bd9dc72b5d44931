// Control, and hints that do nothing here. Branches are done by the scheduler, which splits the lanes of a warp.
#include "rows.h"

namespace ptx {
static Next leave(Step&) {
    return Next::leave;
}
static Next nothing(Step&) {
    return Next::go_on;
}
static Next trap(Step& s) {
    s.fault(FaultKind::crash, "the kernel executes a trap");
}

void add_control_rows(Rows& rows) {
    add(rows, "bra", "=", "goes to a label", nothing, Undefined::strict);
    add(rows, "ret", "=", "ends the lanes", leave, Undefined::strict);
    add(rows, "exit", "=", "ends the lanes", leave, Undefined::strict);
    add(rows, "trap", "=", "ends the launch with an error", trap, Undefined::strict);
    add(rows, "nanosleep.u32", "= r", "time passes", nothing, Undefined::strict);
    add(rows, "griddepcontrol.wait", "=", "earlier grids have ended: there are none", nothing);
    add(rows, "griddepcontrol.launch_dependents", "=", "later grids may start: there are none", nothing);
    for (const char* space : {"", ".param"})
        add(rows, std::string("prefetch") + space + ".tensormap", "= A", "nothing that can be seen", nothing, Undefined::strict);
    for (const char* level : {"L1", "L2"})
        add(rows, std::string("prefetch.global.") + level, "= A", "nothing that can be seen", nothing);
    for (int n = 1; n <= 5; ++n) {
        add(rows, text("cp.async.bulk.prefetch.tensor.%dd.L2.global", n), text("= T%d", n), "nothing that can be seen", nothing,
            Undefined::strict);
    }
    add(rows, "createpolicy.fractional.L2::evict_first.b64", "R =", "a cache hint", nothing);
    add(rows, "createpolicy.fractional.L2::evict_last.b64", "R =", "a cache hint", nothing);
}
}  // namespace ptx
