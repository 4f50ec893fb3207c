// Products of many rows: bound by the tensor cores.
//
// A block has 8 warps and does 128 outputs times up to 128 rows: a warp 16 outputs, all rows. Steps of
// 64 inputs go through MANY_STAGES stages of shared memory. Weights are lifted to registers while the
// step before multiplies. One instruction of a warpgroup multiplies 64 outputs, 16 inputs and all rows;
// its sums have the bits of `multiply`'s, which a contract case holds.
#pragma once
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define MANY_THREADS 256u
#define MANY_STAGES 4u
#define MANY_ROWS 128u

DEVICE void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
DEVICE void group_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// Of rows of 128 bytes whose 16-byte pieces lie at piece ^ (row % 8).
DEVICE u64 rows_descriptor(u32 at) {
    return u64((at & 0x3ffffu) >> 4) | (u64(1u) << 16) | (u64(64u) << 32) | (u64(1u) << 62);
}

// d += a b of 64 outputs times N rows; the first of a slice begins from zero.
template <u32 N> DEVICE void multiply_rows(float (&d)[N / 2u], const u32 (&a)[4], u64 b, bool add) {
    if constexpr (N == 32u)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
                 "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(u32(add)));
    else if constexpr (N == 64u)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(u32(add)));
    else if constexpr (N == 96u)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
                 "}, {%48, %49, %50, %51}, %52, p, 1, 1, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
                   "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(u32(add)));
    else if constexpr (N == 128u)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
                   "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
                   "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
                   "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
                   "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(u32(add)));
}

// Where a thread's 16-byte pieces of the rows come from, counted in such pieces; all ones: no row.
template <u32 N> struct ManyRows {
    u32 at[N / 32u];
};

template <u32 F, u32 N>
DEVICE void many_load(const TileArgs& args, GLOBAL const u8* weights, const ManyRows<N>& rows, u32 step, u32 stage_at, u32 warp,
    u32 lane) {
    const u32 own = stage_at + MANY_ROWS * 128u + warp * step_bytes<F>();
    GLOBAL const u8* from = weights + u64(step) * step_bytes<F>();
#pragma unroll
    for (u32 i = 0; i < step_bytes<F>() / 512u; i++) copy16(own + i * 512u + lane * 16u, from + i * 512u + lane * 16u);
    if (F == FORMAT_FP4 && lane < 2u) copy16(own + 512u + lane * 16u, from + 512u + lane * 16u);
    const u32 to = stage_at + threadIdx.x / 8u * 128u + (threadIdx.x % 8u ^ threadIdx.x / 8u % 8u) * 16u;
#pragma unroll
    for (u32 i = 0; i < N / 32u; i++) {
        const u32 at = rows.at[i];
        GLOBAL const u8* row = args.x + u64(at + step * 8u) * 16u;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     ::"r"(to + i * 4096u), "l"(at == 0xffffffffu ? args.x : row), "r"(at == 0xffffffffu ? 0u : 16u) : "memory");
    }
}

template <u32 F, u32 N>
DEVICE void many_tile(const TileArgs& args, u32 group, u32 start, u32 first, u32 rows, u32 base) {
    const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
    const u32 steps = args.inputs / 64u, length = steps / args.slices, tiles = (args.outputs + 15u) / 16u;
    const u32 tile = blockIdx.x * 8u + warp, held = tile < tiles ? tile : tiles - 1u;
    const u32 expert = args.groups ? args.groups[group * 3u] : group;
    GLOBAL const u8* all = args.weight + expert * args.expert_bytes;
    GLOBAL const u8* weights = all + u64(held) * steps * step_bytes<F>();
    const u32 stage_bytes = MANY_ROWS * 128u + 8u * step_bytes<F>();
    const u32 exponents = base + MANY_STAGES * ((stage_bytes + 1023u) / 1024u * 1024u) + warp * steps * 2u;
    const u32 apart = (stage_bytes + 1023u) / 1024u * 1024u;
    if (F == FORMAT_FP8) {
        GLOBAL const u8* scales = all + u64(tiles) * steps * 1024u + u64(held) * steps * 2u;
        for (u32 i = lane; i < steps; i += 32u) {
            const u32 pair = *reinterpret_cast<GLOBAL const u16*>(scales + i * 2u);
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(exponents + i * 2u), "h"(u16(pair)) : "memory");
        }
    }
    ManyRows<N> from;
#pragma unroll
    for (u32 i = 0; i < N / 32u; i++) {
        const u32 row = first + threadIdx.x / 8u + i * 32u;
        from.at[i] = 0xffffffffu;
        if (row < rows) {
            const u32 place = start + row - (PLANTED(FAULT_TILE_NEIGHBOUR_ROW) && row > 0 ? 1u : 0u);
            const u64 at = u64(args.list ? args.list[place] : place) * args.x_stride + u64(group) * args.x_step;
            from.at[i] = u32(at / 8u) + threadIdx.x % 8u;
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < MANY_STAGES - 1u; i++) {
        if (i < steps) many_load<F, N>(args, weights, from, i, base + i * apart, warp, lane);
        copies_commit();
    }
    float sum[N / 2u], total[N / 2u];
    // The sum of nothing that leaves a zero its sign.
#pragma unroll
    for (u32 i = 0; i < N / 2u; i++) {
        sum[i] = 0.0f;
        total[i] = -0.0f;
    }
    u32 even[4][4], odd[4][4];
    const auto lift = [&](u32 step, u32 stage, u32 (&to)[4][4]) {
        u32 pair = 0;
        if (F == FORMAT_FP8) asm volatile("ld.shared.u16 %0, [%1];" : "=r"(pair) : "r"(exponents + step * 2u));
        lift_step<F>(base + stage * apart + MANY_ROWS * 128u + warp * step_bytes<F>(), lane, pair, to);
    };
    u32 stage = 0, in_slice = 0;
    // Multiplies a step by `a` while the next one's weights are lifted to `next`.
    const auto one = [&](u32 step, u32 (&a)[4][4], u32 (&next)[4][4]) {
        const u64 b = rows_descriptor(base + stage * apart);
        group_begin();
#pragma unroll
        for (u32 i = 0; i < 4u; i++) multiply_rows<N>(sum, a[i], b + i * 2u, i > 0 || in_slice > 0);
        group_commit();
        stage = stage + 1u == MANY_STAGES ? 0u : stage + 1u;
        copies_wait<MANY_STAGES - 3u>();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        // Every warp is past the step before: its stage takes new bytes.
        const u32 ahead = step + MANY_STAGES - 1u;
        if (ahead < steps) many_load<F, N>(args, weights, from, ahead, base + (stage + MANY_STAGES - 2u) % MANY_STAGES * apart, warp, lane);
        copies_commit();
        if (step + 1u < steps) lift(step + 1u, stage, next);
        group_wait();
        if (++in_slice == length) {
            in_slice = 0;
            if (PLANTED(FAULT_TILE_DROPPED_SLICE) && step + 1u == steps) return;
#pragma unroll
            for (u32 i = 0; i < N / 2u; i++) total[i] = total[i] + sum[i];
        }
    };
    copies_wait<MANY_STAGES - 2u>();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    lift(0, 0, even);
    for (u32 step = 0; step < steps; step += 2u) {
        one(step, even, odd);
        if (step + 1u < steps) one(step + 1u, odd, even);
    }
    copies_wait<0>();
    if (tile >= tiles) return;
    const u32 output = tile * 16u + lane / 4u;
    const Outputs to = outputs_of(args, group, start, output);
    const bool one_there = output < args.outputs, two_there = output + 8u < args.outputs;
#pragma unroll
    for (u32 i = 0; i < N / 4u; i++) {
        const u32 row = first + i / 2u * 8u + lane % 4u * 2u + i % 2u, at = i / 2u * 4u + i % 2u;
        GLOBAL float* out = to.at + row * to.stride;
        if (row < rows && one_there) out[0] = stored(total[at], args.round);
        if (row < rows && two_there) out[8] = stored(total[at + 2u], args.round);
    }
}

template <u32 F> DEVICE void many(const TileArgs& args) {
    extern __shared__ __align__(1024) u8 shared[];
    const u32 base = (shared_address(shared) + 1023u) / 1024u * 1024u;
    dependents_may_start();
    wait_for_launches_before();
    u32 group = blockIdx.y, first = 0, start = 0, rows = args.rows, end;
    if (args.groups) {
        start = args.groups[group * 3u + 1u];
        rows = args.groups[group * 3u + 2u] - start;
        end = rows;
    } else {
        const u32 parts = (rows + MANY_ROWS - 1u) / MANY_ROWS;
        group = blockIdx.y / parts;
        first = blockIdx.y % parts * MANY_ROWS;
        end = rows < first + MANY_ROWS ? rows : first + MANY_ROWS;
    }
    for (; first < end; first += MANY_ROWS) {
        const u32 left = end - first;
        if (left <= 32u) many_tile<F, 32u>(args, group, start, first, rows, base);
        else if (left <= 64u) many_tile<F, 64u>(args, group, start, first, rows, base);
        else if (left <= 96u) many_tile<F, 96u>(args, group, start, first, rows, base);
        else many_tile<F, 128u>(args, group, start, first, rows, base);
        __syncthreads();
    }
}

CUDA_FULL_KERNEL(tile_fp8_many, TileArgs, 256) { many<FORMAT_FP8>(args); }
CUDA_FULL_KERNEL(tile_fp4_many, TileArgs, 256) { many<FORMAT_FP4>(args); }
CUDA_FULL_KERNEL(tile_bf16_many, TileArgs, 256) { many<FORMAT_BF16>(args); }
#endif
