// The state of a random generator, as far as dropout's headers name it.
#pragma once
namespace at {
struct PhiloxCudaState {
    unsigned long long seed, offset;
};
}
