// What a launch path asks of the hardware: the number of processors that it was given.
#pragma once
namespace cutlass {
struct KernelHardwareInfo {
    int device_id = 0, sm_count = 0;
    static int query_device_multiprocessor_count(int = 0) { return 1; }
};
}
