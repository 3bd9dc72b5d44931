// Running warps, blocks and grids.
#pragma once
#include "machine.h"

namespace ptx {
// Runs a warp until it must wait, ends, or has had its turn.
void run_warp(Machine& m, Cluster& c, Warp& w);
enum class Turn {
    moved,  // something happened that others may have waited for
    spins,  // instructions ran, and nothing else
    stuck,
};
// What lanes may skip whose condition at `pc` nothing wrote.
const Detour& detour_of(Machine& m, int pc);
// One turn of every warp, or one landing if none gets anywhere.
Turn run_turn(Machine& m, Cluster& c);
void land(Machine& m, Cluster& c);
void check_ended(Machine& m, Cluster& c);
[[noreturn]] void deadlock(Machine& m, Cluster& c);
void start_cluster(Machine& m, Cluster& c, u32 number);
}  // namespace ptx
