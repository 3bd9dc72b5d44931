#include "interface.h"

#include "rows.h"

using namespace ptx;

#ifndef PTX_DIGEST
#define PTX_DIGEST ""
#endif

static void place_tensors(Machine& m, const PtxLaunch& l) {
    for (s32 x = 0; x < l.tensor_count; ++x) {
        const PtxTensor& given = l.tensors[x];
        Tensor t;
        t.name = given.name;
        t.flags = given.flags;
        t.bytes.assign(given.bytes, given.bytes + given.size);
        // aligned as promised and no better
        t.base = ((u64)(x + 1) << TENSOR_SHIFT) + given.align;
        if (t.writable()) {
            t.written.assign(given.size, 0);
            t.read.assign(given.size, 0);
        }
        m.tensors.push_back(std::move(t));
    }
}

static void fill_params(Machine& m, const PtxLaunch& l) {
    m.params.assign(l.params, l.params + l.param_bytes);
    for (s32 x = 0; x < l.pointer_count; ++x)
        memcpy(&m.params[l.pointers[x].param_offset], &m.tensors[l.pointers[x].tensor].base, 8);
    for (s32 x = 0; x < l.map_count; ++x) {
        const PtxMap& given = l.maps[x];
        TensorMap map = {given.tensor, given.rank, given.element_bytes, given.swizzle, {}, {}, {}};
        memcpy(map.extents, given.extents, sizeof map.extents);
        memcpy(map.strides, given.strides, sizeof map.strides);
        memcpy(map.box, given.box, sizeof map.box);
        const u64 handle[2] = {MAP_MAGIC, (u64)x};
        memcpy(&m.params[given.param_offset], handle, sizeof handle);
        m.maps.push_back(map);
    }
}

static std::string told(const Fault& f) {
    std::string lines = text("%d ", f.pc) + f.said;
    for (const Remark& r : f.remarks) lines += text("\n%d ", r.pc) + r.said;
    return lines;
}

const char* ptx_digest() {
    return PTX_DIGEST;
}
s32 ptx_row_count() {
    return (s32)all_rows().size();
}
const char* ptx_row(s32 index, s32 field) {
    const Row& row = all_rows()[index];
    return (field == 0 ? row.name : field == 1 ? row.operands : row.meaning).c_str();
}

static const Row* end_row() {
    const auto& rows = all_rows();
    return &*std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.name == "exit"; });
}

Program* ptx_load(const PtxProgram* given) {
    auto* p = new Program();
    p->operands.assign(given->operands, given->operands + given->operand_count);
    p->constants.assign(given->constants, given->constants + given->constant_count);
    p->widths.assign(given->widths, given->widths + given->register_count);
    p->data.assign(given->data, given->data + given->data_bytes);
    for (const u8 width : p->widths) {
        p->offsets.push_back(p->file_bytes);
        p->file_bytes += width * LANES;
    }
    for (s32 x = 0; x < given->code_count; ++x) {
        const PtxInstruction& i = given->code[x];
        p->code.push_back({&all_rows()[i.row], i.guard, i.negated, i.target, p->operands.data() + i.first, i.results, i.count});
    }
    p->code.push_back({end_row(), -1, 0, -1, p->operands.data(), 0, 0});  // whoever runs past the text ends
    p->predicates = given->predicates;
    p->shared_bytes = (u32)given->shared_bytes;
    p->local_bytes = (u32)given->local_bytes;
    return p;
}

void ptx_free(Program* program) {
    delete program;
}

static void give_log(const Machine& m, PtxLog* log) {
    log->count = m.log.size();
    log->words = static_cast<u64*>(malloc(m.log.size() * sizeof(u64) + 1));
    if (!log->words) throw std::bad_alloc();
    memcpy(log->words, m.log.data(), m.log.size() * sizeof(u64));
}

void ptx_free_log(PtxLog* log) {
    free(log->words);
    *log = {};
}

s32 ptx_run(const Program* program, const PtxLaunch* launch, char* said, s32 said_bytes, u64* steps, PtxLog* log) {
    Machine m(*program, launch->config);
    try {
        place_tensors(m, *launch);
        fill_params(m, *launch);
        m.run();
        if (log) give_log(m, log);
    } catch (const Fault& f) {
        snprintf(said, said_bytes, "%s", told(f).c_str());
        *steps = m.steps;
        return (s32)f.kind;
    } catch (const std::bad_alloc&) {
        snprintf(said, said_bytes, "-1 no memory for the launch");
        return (s32)FaultKind::launch;
    }
    for (s32 x = 0; x < launch->tensor_count; ++x) {
        if (m.tensors[x].flags & OUTPUT) memcpy(launch->tensors[x].bytes, m.tensors[x].bytes.data(), m.tensors[x].bytes.size());
    }
    *steps = m.steps;
    return 0;
}
