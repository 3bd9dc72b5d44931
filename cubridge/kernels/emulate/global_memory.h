// Tensors in global memory. Each lies between pages that trap, flush with its end (or start, by schedule), in a page full of NaN:
// reads past it end the run with its name, reads before it give NaN. Inputs are read-only.
#pragma once
#include <csignal>
#include <cstdint>
#include <string>

#include "emulate/fibers.h"

namespace emu {
enum TensorFlags : u32 { OUTPUT = 1, STARTS_AND_ENDS_ZERO = 2 };

struct Tensor {
    std::string name;
    unsigned char* data = nullptr;
    size_t bytes = 0;
    u32 flags = 0;
    unsigned char *pages = nullptr, *pages_end = nullptr;  // without the two that trap
    bool writable() const { return flags & (OUTPUT | STARTS_AND_ENDS_ZERO); }
};
inline std::vector<Tensor> tensors;
constexpr unsigned char POISON = 0xff;  // NaN in bf16, fp16 and fp32; -1 as an int

inline void place_tensor(Tensor& t, size_t align, bool at_end) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t inner = std::max<size_t>(1, (t.bytes + page - 1) / page) * page;
    auto* all = static_cast<unsigned char*>(mmap(nullptr, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (all == MAP_FAILED) fault(Fault::launch, "no memory for the tensors", nullptr);
    t.pages = all + page;
    t.pages_end = t.pages + inner;
    mprotect(t.pages, inner, PROT_READ | PROT_WRITE);
    memset(t.pages, POISON, inner);
    t.data = at_end ? t.pages + (inner - t.bytes) / align * align : t.pages;
}

inline void protect_tensor(const Tensor& t) {
    if (!t.writable()) mprotect(t.pages, (size_t)(t.pages_end - t.pages), PROT_READ);
}

// The tensor whose pages, or traps beside them, hold the address.
inline const Tensor* tensor_near(const unsigned char* p) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (const auto& t : tensors) {
        if (p >= t.pages - page && p < t.pages_end + page) return &t;
    }
    return nullptr;
}

inline void describe_address(const unsigned char* p, char* text, size_t bytes) {
    const Tensor* t = tensor_near(p);
    if (!t) {
        snprintf(text, bytes, "an address that is no tensor's");
    } else if (p < t->data) {
        snprintf(text, bytes, "%ld bytes before the start of `%s`", (long)(t->data - p), t->name.c_str());
    } else if (p >= t->data + t->bytes) {
        const long past = (long)(p - t->data - t->bytes);
        snprintf(text, bytes, "%ld bytes past the end of `%s` (%zu bytes)", past, t->name.c_str(), t->bytes);
    } else {
        const char* kind = t->writable() ? "" : ", which is an input";
        snprintf(text, bytes, "byte %ld of `%s`%s", (long)(p - t->data), t->name.c_str(), kind);
    }
}

inline void check_global(const void* address, size_t bytes, bool write) {
    const auto* p = static_cast<const unsigned char*>(address);
    const Tensor* t = tensor_near(p);
    if (t && p >= t->data && p + bytes <= t->data + t->bytes && (!write || t->writable())) return;
    char text[200];
    describe_address(t && p < t->data + t->bytes && p >= t->data ? p + bytes - 1 : p, text, sizeof text);
    print_fault(Fault::bounds, "global memory is %s outside its tensor: %s", write ? "written" : "read", text);
    print_place(self->place, "here");
    stop(Fault::bounds);
}

inline void check_aligned(const void* p, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(p) % bytes) misuse("an address is not aligned to the 16 bytes that it moves");
}

void store_16(void* p, u32 a, u32 b, u32 c, u32 d) {
    EMU_ENTER();
    check_aligned(p, 16);
    check_global(p, 16, true);
    const u32 words[4] = {a, b, c, d};
    memcpy(p, words, sizeof words);
}

// Writes that went past a tensor but not into the page that traps; counters that the kernel left in use.
inline void check_tensors_at_end() {
    for (const auto& t : tensors) {
        if (!t.writable()) continue;
        const auto poisoned = [](unsigned char byte) { return byte == POISON; };
        if (!std::all_of(t.pages, t.data, poisoned) || !std::all_of(t.data + t.bytes, t.pages_end, poisoned)) {
            print_fault(Fault::bounds, "global memory is written beside `%s`", t.name.c_str());
            stop(Fault::bounds);
        }
        const auto zero = [](unsigned char byte) { return byte == 0; };
        if ((t.flags & STARTS_AND_ENDS_ZERO) && !std::all_of(t.data, t.data + t.bytes, zero)) {
            print_fault(Fault::misuse, "`%s` is not zero again when the kernel ends", t.name.c_str());
            stop(Fault::misuse);
        }
    }
}

// ---- plain loads and stores that trap ----
inline Place place_of_signal(const ucontext_t* context) {
#if defined(__x86_64__)
    return reinterpret_cast<Place>(context->uc_mcontext.gregs[REG_RIP] + 1);  // past its start, as a return address is
#elif defined(__aarch64__)
    return reinterpret_cast<Place>(context->uc_mcontext.pc + 1);
#else
    return self ? self->place : nullptr;
#endif
}

inline void on_signal(int number, siginfo_t* info, void* context) {
    const Place place = place_of_signal(static_cast<const ucontext_t*>(context));
    if (number == SIGSEGV || number == SIGBUS) {
        if (in_stack_guard(info->si_addr)) fault(Fault::crash, "a thread's stack is full", place);
        char text[200];
        describe_address(static_cast<const unsigned char*>(info->si_addr), text, sizeof text);
        print_fault(Fault::bounds, "global memory is accessed outside its tensor: %s", text);
        print_place(place, "here");
        stop(Fault::bounds);
    }
    if (number == SIGFPE) fault(Fault::crash, "an integer is divided by zero", place);
    fault(Fault::bounds, "an index lies outside its array", place);  // SIGILL, SIGTRAP: the compiler's bounds check
}

inline void catch_signals() {
    static unsigned char stack[64 << 10];
    stack_t alternative = {};
    alternative.ss_sp = stack;
    alternative.ss_size = sizeof stack;
    sigaltstack(&alternative, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigaction(number, &action, nullptr);
}
}  // namespace emu
