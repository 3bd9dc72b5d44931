// One form of FlashAttention-3's forward kernel, by macros: CAUSAL, LOCAL, CLUSTER, and FIELDS of its parameters, F(name) each.
#include "flash_fwd_launch_template.h"

using Element = cutlass::bfloat16_t;

// Its own launch path: which kernel with what parameters it would launch.
extern "C" __global__ void host(Flash_fwd_params params, Launched* out) {
    run_flash_fwd<90, 64, 64, CLUSTER, Element, Element, CAUSAL, LOCAL, false, false, false, false, false, false, false, false>(
        params, (cudaStream_t)out);
}

// Where each field lies and how wide it is, then the size of the whole.
extern "C" __global__ void layout(unsigned* out) {
    const Flash_fwd_params* p = nullptr;
#define F(name) *out++ = (unsigned)(unsigned long long)&p->name; *out++ = sizeof p->name;
    FIELDS
    *out = sizeof *p;
}

void prepare_varlen_num_blocks(Flash_fwd_params&, cudaStream_t, bool, int, int, bool) {}
