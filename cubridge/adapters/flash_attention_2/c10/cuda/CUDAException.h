// Checks around launches, which a compile for the device alone never makes.
#pragma once
#define C10_CUDA_CHECK(call) (call)
#define C10_CUDA_KERNEL_LAUNCH_CHECK()
