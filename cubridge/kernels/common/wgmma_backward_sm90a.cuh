// Written by tests/kernels/wgmma_header.py: the shapes that a backward kernel needs besides those of wgmma_sm90a.cuh.
// `_new` begins a sum: its accumulators are outputs alone, so that no old value is kept alive beside a gemm in flight, which ptxas
// serialises. `tt` reads both operands transposed.
#pragma once
// d[64 x 64] = A[64 x 16] B[16 x 64]; descriptors of shared memory, rows along k
DEVICE void wgmma_k16_ss_new(float (&d)[2][16], u64 a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %34, 0; "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." MMA_TYPES " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
        "%23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;} "
        : "=f"(d[0][0]), "=f"(d[0][1]), "=f"(d[1][0]), "=f"(d[1][1]), "=f"(d[0][2]), "=f"(d[0][3]), "=f"(d[1][2]),
           "=f"(d[1][3]), "=f"(d[0][4]), "=f"(d[0][5]), "=f"(d[1][4]), "=f"(d[1][5]), "=f"(d[0][6]), "=f"(d[0][7]),
           "=f"(d[1][6]), "=f"(d[1][7]), "=f"(d[0][8]), "=f"(d[0][9]), "=f"(d[1][8]), "=f"(d[1][9]), "=f"(d[0][10]),
           "=f"(d[0][11]), "=f"(d[1][10]), "=f"(d[1][11]), "=f"(d[0][12]), "=f"(d[0][13]), "=f"(d[1][12]), "=f"(d[1][13]),
           "=f"(d[0][14]), "=f"(d[0][15]), "=f"(d[1][14]), "=f"(d[1][15])
        : "l"(a), "l"(b), "r"(0));
}
// d[64 x 64] += A[64 x 16] B[16 x 64]; descriptors of shared memory, rows along k
DEVICE void wgmma_k16_ss_add(float (&d)[2][16], u64 a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.eq.b32 p, %34, 0; "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." MMA_TYPES " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
        "%23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;} "
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][2]),
           "+f"(d[1][3]), "+f"(d[0][4]), "+f"(d[0][5]), "+f"(d[1][4]), "+f"(d[1][5]), "+f"(d[0][6]), "+f"(d[0][7]),
           "+f"(d[1][6]), "+f"(d[1][7]), "+f"(d[0][8]), "+f"(d[0][9]), "+f"(d[1][8]), "+f"(d[1][9]), "+f"(d[0][10]),
           "+f"(d[0][11]), "+f"(d[1][10]), "+f"(d[1][11]), "+f"(d[0][12]), "+f"(d[0][13]), "+f"(d[1][12]), "+f"(d[1][13]),
           "+f"(d[0][14]), "+f"(d[0][15]), "+f"(d[1][14]), "+f"(d[1][15])
        : "l"(a), "l"(b), "r"(0));
}
// d[64 x 32] = A[64 x 16] B[16 x 32]; descriptors of shared memory, A stored as [k][row], B as [k][column]
DEVICE void wgmma_k16_tt_new(float (&d)[2][8], u64 a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %18, 0; "
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." MMA_TYPES " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 1, 1;} "
        : "=f"(d[0][0]), "=f"(d[0][1]), "=f"(d[1][0]), "=f"(d[1][1]), "=f"(d[0][2]), "=f"(d[0][3]), "=f"(d[1][2]),
           "=f"(d[1][3]), "=f"(d[0][4]), "=f"(d[0][5]), "=f"(d[1][4]), "=f"(d[1][5]), "=f"(d[0][6]), "=f"(d[0][7]),
           "=f"(d[1][6]), "=f"(d[1][7])
        : "l"(a), "l"(b), "r"(0));
}
// d[64 x 32] += A[64 x 16] B[16 x 32]; descriptors of shared memory, A stored as [k][row], B as [k][column]
DEVICE void wgmma_k16_tt_add(float (&d)[2][8], u64 a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.eq.b32 p, %18, 0; "
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." MMA_TYPES " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 1, 1;} "
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][2]),
           "+f"(d[1][3]), "+f"(d[0][4]), "+f"(d[0][5]), "+f"(d[1][4]), "+f"(d[1][5]), "+f"(d[0][6]), "+f"(d[0][7]),
           "+f"(d[1][6]), "+f"(d[1][7])
        : "l"(a), "l"(b), "r"(0));
}
// d[64 x 64] = A[64 x 16] B[16 x 64]; descriptors of shared memory, A stored as [k][row], B as [k][column]
DEVICE void wgmma_k16_tt_new(float (&d)[2][16], u64 a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %34, 0; "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." MMA_TYPES " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
        "%23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 1, 1;} "
        : "=f"(d[0][0]), "=f"(d[0][1]), "=f"(d[1][0]), "=f"(d[1][1]), "=f"(d[0][2]), "=f"(d[0][3]), "=f"(d[1][2]),
           "=f"(d[1][3]), "=f"(d[0][4]), "=f"(d[0][5]), "=f"(d[1][4]), "=f"(d[1][5]), "=f"(d[0][6]), "=f"(d[0][7]),
           "=f"(d[1][6]), "=f"(d[1][7]), "=f"(d[0][8]), "=f"(d[0][9]), "=f"(d[1][8]), "=f"(d[1][9]), "=f"(d[0][10]),
           "=f"(d[0][11]), "=f"(d[1][10]), "=f"(d[1][11]), "=f"(d[0][12]), "=f"(d[0][13]), "=f"(d[1][12]), "=f"(d[1][13]),
           "=f"(d[0][14]), "=f"(d[0][15]), "=f"(d[1][14]), "=f"(d[1][15])
        : "l"(a), "l"(b), "r"(0));
}
// d[64 x 64] += A[64 x 16] B[16 x 64]; descriptors of shared memory, A stored as [k][row], B as [k][column]
DEVICE void wgmma_k16_tt_add(float (&d)[2][16], u64 a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.eq.b32 p, %34, 0; "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." MMA_TYPES " "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
        "%23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 1, 1;} "
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][2]),
           "+f"(d[1][3]), "+f"(d[0][4]), "+f"(d[0][5]), "+f"(d[1][4]), "+f"(d[1][5]), "+f"(d[0][6]), "+f"(d[0][7]),
           "+f"(d[1][6]), "+f"(d[1][7]), "+f"(d[0][8]), "+f"(d[0][9]), "+f"(d[1][8]), "+f"(d[1][9]), "+f"(d[0][10]),
           "+f"(d[0][11]), "+f"(d[1][10]), "+f"(d[1][11]), "+f"(d[0][12]), "+f"(d[0][13]), "+f"(d[1][12]), "+f"(d[1][13]),
           "+f"(d[0][14]), "+f"(d[0][15]), "+f"(d[1][14]), "+f"(d[1][15])
        : "l"(a), "l"(b), "r"(0));
}
