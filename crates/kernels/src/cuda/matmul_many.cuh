// Products of many rows: bound by the tensor cores.
//
// A block has 8 warps and does 128 outputs times up to 128 rows: a warp 16 outputs, all rows. Steps of
// 64 inputs go through MANY_STAGES stages of shared memory. Weights are lifted to registers while the
// step before multiplies. One instruction of a warpgroup multiplies 64 outputs, 16 inputs and all rows;
// its sums have the bits of `multiply`'s, which a contract case holds.
#pragma once
#ifdef HOPPER

#define MANY_THREADS 256u
#define MANY_STAGES 4u
#define MANY_ROWS 128u

// Of rows of 128 bytes whose 16-byte pieces lie at piece ^ (row % 8).
DEVICE u64 rows_descriptor(u32 at) {
    return u64((at & 0x3ffffu) >> 4) | (u64(1u) << 16) | (u64(64u) << 32) | (u64(1u) << 62);
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
    const u32 to = stage_at + LANE / 8u * 128u + (LANE % 8u ^ LANE / 8u % 8u) * 16u;
#pragma unroll
    for (u32 i = 0; i < N / 32u; i++) {
        const u32 at = rows.at[i];
        GLOBAL const u8* row = args.x + u64(at + step * 8u) * 16u;
        copy16_of(to + i * 4096u, at == 0xffffffffu ? args.x : row, at == 0xffffffffu ? 0u : 16u);
    }
}

template <u32 F, u32 N>
DEVICE void many_tile(const TileArgs& args, u32 group, u32 start, u32 first, u32 rows, u32 base) {
    const u32 lane = LANE % 32u, warp = LANE / 32u;
    const u32 steps = args.inputs / 64u, length = steps / args.slices, tiles = (args.outputs + 15u) / 16u;
    const u32 tile = GROUP_X * 8u + warp, held = tile < tiles ? tile : tiles - 1u;
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
            store_half(exponents + i * 2u, pair);
        }
    }
    ManyRows<N> from;
#pragma unroll
    for (u32 i = 0; i < N / 32u; i++) {
        const u32 row = first + LANE / 8u + i * 32u;
        from.at[i] = 0xffffffffu;
        if (row < rows) {
            const u32 place = start + row - (PLANTED(FAULT_TILE_NEIGHBOUR_ROW) && row > 0 ? 1u : 0u);
            const u64 at = u64(args.list ? args.list[place] : place) * args.x_stride + u64(group) * args.x_step;
            from.at[i] = u32(at / 8u) + LANE % 8u;
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
        const u32 pair = F == FORMAT_FP8 ? load_half(exponents + step * 2u) : 0u;
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
        copies_shown();
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
    copies_shown();
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
    LAUNCH_SHARED(__align__(1024) u8, shared);
    const u32 base = (shared_address(shared) + 1023u) / 1024u * 1024u;
    dependents_may_start();
    wait_for_launches_before();
    u32 group = GROUP_Y, first = 0, start = 0, rows = args.rows, end;
    if (args.groups) {
        start = args.groups[group * 3u + 1u];
        rows = args.groups[group * 3u + 2u] - start;
        end = rows;
    } else {
        const u32 parts = (rows + MANY_ROWS - 1u) / MANY_ROWS;
        group = GROUP_Y / parts;
        first = GROUP_Y % parts * MANY_ROWS;
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
