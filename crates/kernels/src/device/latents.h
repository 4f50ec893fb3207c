// What lies between the projections of a row and its attention, in one launch: the queries' latent's norm
// and its forms as an operand, the window row's norm, rotation and packing. The same sums and operations
// as rmsnorm, rope, operand and pack_window.
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

// Group (row, 0): qr in place, and as bf16 and codes in steps where addresses are given. Group (row, 1), or
// (row, 0) where `qr` is none: the packed window row of kv.
KERNEL(finish_latents, LatentsArgs) {
    SHARED(float, part, GROUP_WARPS);
    SHARED(float, all, LATENT_EACH * GROUP_LANES);
    const u32 lane = LANE, which = GROUP_Y;
    const u64 row = GROUP_X;
    float x[LATENT_EACH];
    if (args.qr && which == 0) {
        GLOBAL float* qr = args.qr + row * args.rank;
        load_latent(qr, args.rank, lane, x);
        normed(x, args.q_norm, args.rank, args.eps, args.round, part, lane);
        UNROLL
        for (u32 i = 0; i < LATENT_EACH; i++) {
            const u32 k = i * GROUP_LANES + lane;
            if (k < args.rank) qr[k] = x[i];
        }
        store_forms(x, row, args.rank, args.plain, args.coded, all, lane);
        return;
    }
    load_latent(args.kv + row * args.dim, args.dim, lane, x);
    normed(x, args.kv_norm, args.dim, args.eps, args.round, part, lane);
    const u32 plain = args.dim - 2u * args.pairs;
    GLOBAL const float* cos = args.cos + row * args.pairs;
    GLOBAL const float* sin = args.sin + row * args.pairs;
    GLOBAL u8* out = args.out + row * window_bytes(args.dim);
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) {
        const u32 k = i * GROUP_LANES + lane, block = k / 32u;
        if (k - lane % 32u >= args.dim) continue;
        const float value = turned(x[i], k, plain, cos, sin, false, args.round);
        store_e4m3_block(value, lane, out + block * 32u, out + args.dim + block);
    }
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
