// The kernel text as one translation unit of the emulator: -D KERNEL_FILE="..." -D KERNEL_ENTRY=name.
#include KERNEL_FILE

extern "C" {
const size_t emu_params_bytes = sizeof(Params);
#ifdef HALF_FP16
const bool emu_half_is_fp16 = true;
#else
const bool emu_half_is_fp16 = false;
#endif
void emu_entry(const void* params) { KERNEL_ENTRY(*static_cast<const Params*>(params)); }
}
