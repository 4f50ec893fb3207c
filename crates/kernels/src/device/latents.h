// What lies between the projections of a row and its attention, in one launch: the queries' latent's norm
// and its forms as an operand, the window row's norm, rotation and packing. The same sums and operations
// as rmsnorm, rope, operand and pack_window.
#pragma once

// Channels of a lane; a latent has at most 2048.
#define LATENT_EACH 16u

// The lane's channels of a row's rmsnorm, those past the width 0.
DEVICE void normed(GLOBAL const float* from, GLOBAL const float* weight, u32 width, float eps, u32 round,
    SHARED_REF(float) part, u32 lane, THREAD float* x) {
    float by[LATENT_EACH];
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) {
        const u32 k = i * GROUP_LANES + lane;
        x[i] = k < width ? from[k] : 0.0f;
        by[i] = k < width ? weight[k] : 0.0f;
    }
    float sum = 0.0f;
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) sum = FMA(x[i], x[i], sum);
    const float inverse = inverse_rms(group_sum(sum, part, lane), width, eps);
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) x[i] = stored(x[i] * inverse * by[i], round);
}

// Group (row, 0): qr in place, and as bf16 and bf16 of e4m3 where addresses are given. Group (row, 1), or
// (row, 0) where `qr` is none: the packed window row of kv.
KERNEL(finish_latents, LatentsArgs) {
    SHARED(float, part, GROUP_WARPS);
    const u32 lane = LANE, which = GROUP_Y;
    const u64 row = GROUP_X;
    float x[LATENT_EACH];
    if (args.qr && which == 0) {
        GLOBAL float* qr = args.qr + row * args.rank;
        normed(qr, args.q_norm, args.rank, args.eps, args.round, part, lane, x);
        UNROLL
        for (u32 i = 0; i < LATENT_EACH; i++) {
            const u32 k = i * GROUP_LANES + lane;
            if (k - lane % 32u >= args.rank) continue;
            const bool mine = k < args.rank;
            if (mine) qr[k] = x[i];
            if (args.plain && mine) args.plain[row * args.rank + k] = u16(AS_BITS(x[i]) >> 16);
            if (args.coded) {
                const u32 byte = e4m3_scale_of(warp_amax(x[i]));
                const float code = round_e4m3(quotient(x[i], e8m0_reciprocal(byte))) * lift_e8m0(byte);
                if (mine) args.coded[row * args.rank + k] = u16(AS_BITS(code) >> 16);
            }
        }
        return;
    }
    normed(args.kv + row * args.dim, args.kv_norm, args.dim, args.eps, args.round, part, lane, x);
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
