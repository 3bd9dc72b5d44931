// One launch, described by a file that cubridge/backend/emulate/launch.py writes: tensors, the bytes of `Params` with the places of
// pointers and tensor maps in it, grid, block and shared memory. The outputs go to a second file, one after the other.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>

#include "emulate/tensor_core.h"

extern "C" const size_t emu_params_bytes;
extern "C" const int emu_threads;
extern "C" void emu_entry(const void* params);

namespace emu {
int block_index = 0, grid_size = 1;
int thread_index() { return self->index; }

struct FileHeader {
    char magic[8];  // "CUEMU001"
    u32 tensors, pointers, maps, params_bytes;
    int grid, block, shared_bytes, schedule;
};
struct FileTensor {
    char name[48];
    u64 bytes, data_at;  // data_at 0: no data, the tensor starts as NaN (or zero, by its flags)
    u32 flags, align;
};
struct FilePointer {
    u32 param_offset, tensor;
};
struct FileMap {
    u32 param_offset, tensor;
    int dims[4], box[4];
    long long stride_bytes[4];
};

inline const unsigned char* map_file(const char* path, size_t& bytes) {
    const int file = open(path, O_RDONLY);
    struct stat info = {};
    if (file < 0 || fstat(file, &info) != 0) fault(Fault::launch, "the launch file cannot be read", nullptr);
    bytes = (size_t)info.st_size;
    void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) fault(Fault::launch, "the launch file cannot be read", nullptr);
    close(file);
    return static_cast<const unsigned char*>(data);
}

struct Launch {
    FileHeader header;
    std::vector<unsigned char> params;
};

inline Launch read_launch(const char* path) {
    size_t bytes = 0;
    const unsigned char* data = map_file(path, bytes);
    Launch launch;
    memcpy(&launch.header, data, sizeof launch.header);
    const FileHeader& h = launch.header;
    if (memcmp(h.magic, "CUEMU001", 8) != 0) fault(Fault::launch, "the launch file is of another version", nullptr);
    if (h.params_bytes != emu_params_bytes) {
        print_fault(Fault::launch, "Params has %zu bytes, its launch contract describes %u", emu_params_bytes, h.params_bytes);
        stop(Fault::launch);
    }
    if (h.block != emu_threads) {
        print_fault(Fault::launch, "the kernel is written for %d threads, its launch contract gives %d", emu_threads, h.block);
        stop(Fault::launch);
    }
    const unsigned char* at = data + sizeof h;
    for (u32 x = 0; x < h.tensors; ++x, at += sizeof(FileTensor)) {
        FileTensor f;
        memcpy(&f, at, sizeof f);
        Tensor t;
        t.name = f.name;
        t.bytes = f.bytes;
        t.flags = f.flags;
        place_tensor(t, f.align, h.schedule % 2 == 0);
        if (f.data_at) memcpy(t.data, data + f.data_at, f.bytes);
        if (f.flags & STARTS_AND_ENDS_ZERO) memset(t.data, 0, f.bytes);
        protect_tensor(t);
        tensors.push_back(t);
    }
    const unsigned char* pointers = at;
    const unsigned char* maps = pointers + h.pointers * sizeof(FilePointer);
    const unsigned char* params = maps + h.maps * sizeof(FileMap);
    launch.params.assign(params, params + h.params_bytes);
    for (u32 x = 0; x < h.pointers; ++x) {
        FilePointer f;
        memcpy(&f, pointers + x * sizeof f, sizeof f);
        memcpy(&launch.params[f.param_offset], &tensors[f.tensor].data, sizeof(void*));
    }
    for (u32 x = 0; x < h.maps; ++x) {
        FileMap f;
        memcpy(&f, maps + x * sizeof f, sizeof f);
        TensorMap map;
        map.base = tensors[f.tensor].data;
        std::copy(f.dims, f.dims + 4, map.dims);
        std::copy(f.box, f.box + 4, map.box);
        std::copy(f.stride_bytes, f.stride_bytes + 4, map.stride_bytes);
        const u64 handle[2] = {MAP_MAGIC, tensor_maps.size()};
        memcpy(&launch.params[f.param_offset], handle, sizeof handle);
        tensor_maps.push_back(map);
    }
    return launch;
}

inline const Launch* current_launch = nullptr;

inline void run_block(int index) {
    block_index = index;
    make_threads(current_launch->header.block);
    reset_shared_memory();
    reset_meetings();
    reset_registers();
    reset_copies();
    reset_tensor_core();
    describe_wait = describe_wait_of;
    thread_main = [] { emu_entry(current_launch->params.data()); };
    run_threads(current_launch->header.schedule);
    check_copies_at_end();
    check_meetings_at_end();
    check_tensor_core_at_end();
}

inline void write_outputs(const char* path) {
    FILE* file = fopen(path, "wb");
    if (!file) fault(Fault::launch, "the outputs cannot be written", nullptr);
    for (const auto& t : tensors) {
        if (!(t.flags & OUTPUT)) continue;
        if (fwrite(t.data, 1, t.bytes, file) != t.bytes) fault(Fault::launch, "the outputs cannot be written", nullptr);
    }
    fclose(file);
}
}  // namespace emu
