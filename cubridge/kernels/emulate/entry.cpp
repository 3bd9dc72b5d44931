// The kernel text as one translation unit of the emulator: -D KERNEL_FILE="..." -D KERNEL_ENTRY=name.
#include KERNEL_FILE

#ifdef HALF_FP16
extern "C" const bool emu_half_is_fp16 = true;
#else
extern "C" const bool emu_half_is_fp16 = false;
#endif
extern "C" const size_t emu_params_bytes = sizeof(Params);
extern "C" void emu_entry(const void* params) { KERNEL_ENTRY(*static_cast<const Params*>(params)); }
