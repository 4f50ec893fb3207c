// What lies between the projections of a row and its attention, in one launch: the queries' latent's norm
// and its forms as an operand, the window row's norm, rotation and packing. The same sums and operations
// as rmsnorm, operand and pack_window.
#pragma once

// Channels of a lane; a latent has at most 2048.
#define LATENT_EACH 16u

// The rmsnorm of a row, of which x has the lane's channels, those past the width 0.
DEVICE void normed(THREAD float* x, GLOBAL const float* weight, u32 width, float eps, u32 round, SHARED_REF(float) part,
    u32 lane) {
    float by[LATENT_EACH];
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) {
        const u32 k = i * GROUP_LANES + lane;
        by[i] = k < width ? weight[k] : 0.0f;
    }
    float sum = 0.0f;
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) sum = FMA(x[i], x[i], sum);
    const float inverse = inverse_rms(group_sum(sum, part, lane), width, eps);
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) x[i] = stored(x[i] * inverse * by[i], round);
}

DEVICE void load_latent(GLOBAL const float* from, u32 width, u32 lane, THREAD float* x) {
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) {
        const u32 k = i * GROUP_LANES + lane;
        x[i] = k < width ? from[k] : 0.0f;
    }
}

// A row of bf16 values as operands, bf16 and codes in steps, each where its address is given; in `all` a lane finds four
// channels that lie side by side. Every lane of the group comes.
DEVICE void store_forms(THREAD const float* x, u64 row, u32 width, GLOBAL u16* plain, GLOBAL u8* coded, SHARED_REF(float) all, u32 lane) {
    if (!plain && !coded) return;
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) {
        const u32 k = i * GROUP_LANES + lane;
        if (k < width) all[k] = x[i];
    }
    BARRIER();
    for (u32 k = lane * 4u; k - lane % 32u * 4u < width; k += GROUP_LANES * 4u) {
        float four[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        const bool mine = k < width;
        UNROLL
        for (u32 i = 0; i < 4u; i++)
            if (mine) four[i] = all[k + i];
        if (plain && mine) store_plain_fours(four, plain + row * width + k);
        if (coded) store_coded_fours(four, mine, coded + row * row_bytes(width), k, width);
    }
}

// What a latent's norm multiplies by, from all of the row; the sum as reduce.h says.
DEVICE float inverse_of(GLOBAL const float* row, u32 width, float eps, SHARED_REF(float) part, u32 lane) {
    float x[LATENT_EACH], sum = 0.0f;
    load_latent(row, width, lane, x);
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) sum = FMA(x[i], x[i], sum);
    return inverse_rms(group_sum(sum, part, lane), width, eps);
}

// A row takes a group for each 512 channels of qr, where it is given, then one for each 512 of kv; a lane has four that
// lie side by side. Those of qr become `normed`, bf16 and codes in steps where addresses are given, those of kv the
// packed window row.
KERNEL(finish_latents, LatentsArgs) {
    SHARED(float, part, GROUP_WARPS);
    const u32 lane = LANE, slices = args.qr ? (args.rank + SLICE_CHANNELS - 1u) / SLICE_CHANNELS : 0u;
    const bool queries = GROUP_Y < slices;
    const u32 k = slice_fours(queries ? GROUP_Y : GROUP_Y - slices, lane), width = queries ? args.rank : args.dim;
    const u64 row = GROUP_X;
    GLOBAL const float* from = (queries ? args.qr : args.kv) + row * width;
    const bool mine = k < width;
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f}, by[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (mine) load_fours(from + k, x);
    if (mine) load_fours((queries ? args.q_norm : args.kv_norm) + k, by);
    const float inverse = inverse_of(from, width, args.eps, part, lane);
    UNROLL
    for (u32 i = 0; i < 4u; i++) x[i] = stored(x[i] * inverse * by[i], args.round);
    if (queries) {
        if (args.normed && mine) store_fours(x, args.normed + row * width + k);
        if (args.plain && mine) store_plain_fours(x, args.plain + row * width + k);
        if (args.coded) store_coded_fours(x, mine, args.coded + row * row_bytes(width), k, width);
        return;
    }
    const u32 still = width - 2u * args.pairs;
    UNROLL
    for (u32 i = 0; i < 4u; i += 2u) {
        if (!mine || k + i < still) continue;
        const u64 turn = row * args.pairs + (k + i - still) / 2u;
        const float cos = args.cos[turn], sin = args.sin[turn], even = x[i], odd = x[i + 1u];
        x[i] = stored(even * cos - odd * sin, args.round);
        x[i + 1u] = stored(even * sin + odd * cos, args.round);
    }
    store_e4m3_fours(x, mine, args.out + row * window_bytes(width), k, width);
}

// What becomes of a compressed row, or with `index` of its index key: the pooled raw rows where `raw` gives
// them, else x; normed in place, and as bf16 and codes in steps where addresses are given; then rotated and
// packed to its place. Group x is a row.
KERNEL(finish_compressed, CompressedArgs) {
    SHARED(float, part, GROUP_WARPS);
    SHARED(float, all, LATENT_EACH * GROUP_LANES);
    const u32 lane = LANE, dim = args.dim, first = dim - 2u * args.pairs;
    const u64 row = GROUP_X;
    GLOBAL float* own = args.x + row * dim;
    float x[LATENT_EACH];
    if (args.raw) {
        UNROLL
        for (u32 i = 0; i < LATENT_EACH; i += POOL_EACH) {
            const u32 k = i * GROUP_LANES + lane;
            UNROLL
            for (u32 c = 0; c < POOL_EACH; c++) x[i + c] = 0.0f;
            if (k - lane >= dim) continue;
            pooled(args.raw, args.members + row * args.ratio, args.ratio, dim, k, args.round, x + i);
            UNROLL
            for (u32 c = 0; c < POOL_EACH; c++)
                if (k + c * GROUP_LANES >= dim) x[i + c] = 0.0f;
        }
    } else {
        load_latent(own, dim, lane, x);
    }
    normed(x, args.norm, dim, args.eps, args.round, part, lane);
    store_forms(x, row, dim, args.plain, args.coded, all, lane);
    GLOBAL const float* cos = args.cos + row * args.pairs;
    GLOBAL const float* sin = args.sin + row * args.pairs;
    GLOBAL u8* out = args.out + place_of(args.places, row, args.index != 0 ? index_bytes(dim) : compressed_bytes(dim));
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) {
        const u32 k = i * GROUP_LANES + lane, block = k / 32u;
        if (k - lane % 32u >= dim) continue;
        own[k] = x[i];
        const float value = turned(x[i], k, first, cos, sin, false, args.round);
        if (args.index != 0) store_e2m1_block(value, lane, out + block * 16u, out + dim / 2u + block);
        else store_e2m1_halves(value, lane, out + block * 16u, out + dim / 2u + block * 2u);
    }
}
