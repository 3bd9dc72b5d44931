#include "rows.h"

namespace ptx {
Row& add(Rows& rows, std::string_view name, std::string_view operands, std::string_view meaning, Run run, Undefined undefined) {
    rows.push_back({std::string(name), std::string(operands), std::string(meaning), run, undefined});
    return rows.back();
}

const Rows& all_rows() {
    static const Rows rows = [] {
        Rows all;
        for (const auto add : {add_integer_rows, add_float_rows, add_convert_rows, add_move_rows, add_compare_rows}) add(all);
        for (Row& row : all) row.computes = true;
        for (const auto add : {add_control_rows, add_warp_rows, add_memory_rows, add_atomic_rows, add_matrix_rows, add_copy_rows,
                               add_bulk_rows, add_barrier_rows, add_mbarrier_rows, add_wgmma_rows})
            add(all);
        return all;
    }();
    return rows;
}
}  // namespace ptx
