// What lies between the projections of a row and its attention, in one launch: the queries' latent's norm
// and its forms as an operand, the window row's norm, rotation and packing. The same sums and operations
// as rmsnorm, operand and pack_window.
#pragma once

// Channels of a lane; a latent has at most 2048.
#define LATENT_EACH 16u

// What a latent's norm multiplies by, from all of the row, which is 0 where it is not there; the sum as reduce.h says.
DEVICE float inverse_of(GLOBAL const float* row, u32 width, float eps, bool there, SHARED_REF(float) part, u32 lane) {
    float x[LATENT_EACH], sum = 0.0f;
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) {
        const u32 k = i * GROUP_LANES + lane;
        x[i] = there && k < width ? row[k] : 0.0f;
    }
    UNROLL
    for (u32 i = 0; i < LATENT_EACH; i++) sum = FMA(x[i], x[i], sum);
    return inverse_rms(group_sum(sum, part, lane), width, eps);
}

// A row takes a group for each 512 channels of qr, where it is given, then one for each 512 of kv; a lane has four that
// lie side by side. Those of qr become `normed`, bf16 and codes in steps where addresses are given, those of kv the
// packed window row.
KERNEL_REHEARSED(finish_latents, LatentsArgs) {
    SHARED(float, part, GROUP_WARPS);
    const u32 lane = LANE, slices = args.qr ? (args.rank + SLICE_CHANNELS - 1u) / SLICE_CHANNELS : 0u;
    const bool queries = GROUP_Y < slices;
    const u32 k = slice_fours(queries ? GROUP_Y : GROUP_Y - slices, lane), width = queries ? args.rank : args.dim;
    const u64 row = GROUP_X;
    GLOBAL const float* from = (queries ? args.qr : args.kv) + row * width;
    const bool own = k < width, mine = LIVE && own;
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f}, by[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (mine) load_fours(from + k, x);
    if (own) load_fours((queries ? args.q_norm : args.kv_norm) + k, by);
    const float inverse = inverse_of(from, width, args.eps, LIVE, part, lane);
    UNROLL
    for (u32 i = 0; i < 4u; i++) x[i] = stored(x[i] * inverse * by[i], args.round);
    if (queries) {
        store_forms(x, mine, args.normed, args.plain, args.coded, row, k, width);
        return;
    }
    if (own) turn_fours(x, k, width, args.pairs, args.cos + row * args.pairs, args.sin + row * args.pairs, args.round);
    store_e4m3_fours(x, mine, args.out + row * window_bytes(width), k, width);
}

// What becomes of a compressed row, or with `index` of its index key: the pooled raw rows where `raw` gives
// them, else x; normed in place, and as bf16 and codes in steps where addresses are given; then rotated and
// packed to its place. Group x is a row; a lane has four channels that lie side by side, and those 512 further on.
KERNEL(finish_compressed, CompressedArgs) {
    SHARED(float, part, GROUP_WARPS);
    SHARED(float, all, LATENT_EACH * GROUP_LANES);
    const u32 lane = LANE, dim = args.dim;
    const u64 row = GROUP_X;
    GLOBAL float* own = args.x + row * dim;
    ROLLED
    for (u32 k = lane * 4u; k < dim; k += SLICE_CHANNELS) {
        float x[4];
        if (args.raw) pooled(args.raw, args.members + row * args.ratio, args.ratio, dim, k, args.round, x);
        else load_fours(own + k, x);
        UNROLL
        for (u32 i = 0; i < 4u; i++) all[k + i] = x[i];
    }
    BARRIER();
    float sum = 0.0f;
    for (u32 k = lane; k < dim; k += GROUP_LANES) sum = FMA(all[k], all[k], sum);
    const float inverse = inverse_rms(group_sum(sum, part, lane), dim, args.eps);
    GLOBAL u8* out = args.out + place_of(args.places, row, args.index != 0 ? index_bytes(dim) : compressed_bytes(dim));
    // A warp past the row has no channels.
    ROLLED
    for (u32 k = lane * 4u; k - lane % 32u * 4u < dim; k += SLICE_CHANNELS) {
        const bool mine = k < dim;
        float x[4] = {0.0f, 0.0f, 0.0f, 0.0f}, by[4];
        if (mine) {
            load_fours(args.norm + k, by);
            UNROLL
            for (u32 i = 0; i < 4u; i++) x[i] = stored(all[k + i] * inverse * by[i], args.round);
            store_fours(x, own + k);
            if (args.plain) store_plain_fours(x, args.plain + row * dim + k);
        }
        if (args.coded) store_coded_fours(x, mine, args.coded + row * row_bytes(dim), k, dim);
        if (mine) turn_fours(x, k, dim, args.pairs, args.cos + row * args.pairs, args.sin + row * args.pairs, args.round);
        if (args.index != 0) store_e2m1_fours(x, mine, out, k, dim);
        else store_halves_fours(x, mine, out, k, dim);
    }
}
