// One form of FlashAttention-2's forward kernel, by macros: CAUSAL, LOCAL, and FIELDS of its parameters, F(name) each.
#include "flash_fwd_launch_template.h"

using Traits = Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>;
template __global__ void FLASH_NAMESPACE::flash_fwd_kernel<Traits, false, CAUSAL, LOCAL, false, false, true, false, false>(
    const __grid_constant__ FLASH_NAMESPACE::Flash_fwd_params);

// Where each field lies and how wide it is, then the size of the whole.
extern "C" __global__ void layout(unsigned* out) {
    const FLASH_NAMESPACE::Flash_fwd_params* p = nullptr;
#define F(name) *out++ = (unsigned)(unsigned long long)&p->name; *out++ = sizeof p->name;
    FIELDS
    *out = sizeof *p;
}
