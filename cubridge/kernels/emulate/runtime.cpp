// The runtime of an emulated kernel: `kernel LAUNCH_FILE OUTPUT_FILE`.
//
// The kernel text runs as it is, one fiber per thread; the calls of calls.h give its instructions their meaning. They are stricter
// than the hardware, so that what only a race or luck would hide is an error here:
//   fibers.h         vector clocks, hostile schedules, deadlock
//   shared_memory.h  memory that starts as NaN and knows its last write and reads
//   meeting.h        barriers with phases and counts, initialisation that must be made visible, the pool of registers
//   global_memory.h  tensors between pages that trap, in pages of NaN, inputs read-only
//   copies.h         data that lands at the latest moment allowed
//   tensor_core.h    accumulators poisoned and register operands frozen until the wait
// What no run can show (the clobbers of a wrapper, code that another compiler moves) is out of its reach.
#include "emulate/launch.h"

int main(int count, char** arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: %s LAUNCH_FILE OUTPUT_FILE\n", arguments[0]);
        return static_cast<int>(emu::Fault::launch);
    }
    const emu::Launch launch = emu::read_launch(arguments[1]);
    const int threads = launch.header.block, shared_bytes = launch.header.shared_bytes;
    if (threads > emu::MAX_WARPS * emu::WARP || threads % emu::WARP || shared_bytes > (int)emu::SHARED_MAX) {
        emu::fault(emu::Fault::launch, "the block or its shared memory is larger than the emulator supports", nullptr);
    }
    emu::current_launch = &launch;
    emu::grid_size = launch.header.grid;
    emu::shared_limit = (size_t)launch.header.shared_bytes;
    emu::catch_signals();
    for (int block = 0; block < launch.header.grid; ++block) emu::run_block(block);
    emu::check_tensors_at_end();
    emu::write_outputs(arguments[2]);
    return 0;
}
