// A fault ends the run: one line `emulator: KIND: reason` on stderr, then one line `  at ADDRESS text` per place. Addresses are
// those of calls in the kernel text; the caller turns them into lines with the program's debug information.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <unistd.h>

namespace emu {
enum class Fault { deadlock = 10, race = 11, misuse = 12, bounds = 13, crash = 14, launch = 15 };

inline const char* name_of(Fault kind) {
    switch (kind) {
        case Fault::deadlock: return "deadlock";
        case Fault::race: return "race";
        case Fault::misuse: return "misuse";
        case Fault::bounds: return "out of bounds";
        case Fault::crash: return "crash";
        case Fault::launch: return "launch";
    }
    return "?";
}

typedef const void* Place;  // a return address in the kernel text

inline void print_place(Place place, const char* text) {
    if (place) fprintf(stderr, "  at %p %s\n", place, text);
}

__attribute__((format(printf, 2, 3))) inline void print_fault(Fault kind, const char* format, ...) {
    fprintf(stderr, "emulator: %s: ", name_of(kind));
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

[[noreturn]] inline void stop(Fault kind) {
    fflush(stderr);
    _exit(static_cast<int>(kind));
}

// A fault at `place`, with a second place (or null) that explains it.
[[noreturn]] inline void fault(Fault kind, const char* reason, Place place, Place other = nullptr, const char* other_text = "") {
    print_fault(kind, "%s", reason);
    print_place(place, "here");
    print_place(other, other_text);
    stop(kind);
}
}  // namespace emu
