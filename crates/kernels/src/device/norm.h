// out = x / sqrt(mean(x^2) + eps) * weight, one group a row; the sum as reduce.h says.
#pragma once

DEVICE float inverse_rms(float sum, u32 count, float eps) {
    return 1.0f / SQRT(sum / float(count) + eps);
}

// Channels of a lane on their way at a time.
#define NORM_EACH 20u

KERNEL_REHEARSED(rmsnorm, RmsnormArgs) {
    SHARED(float, part, GROUP_WARPS);
    const u32 lane = LANE;
    u64 row = GROUP_X;
    if (PLANTED(FAULT_NORM_NEIGHBOUR_ROW)) row = row > 0 ? row - 1u : row;
    GLOBAL const float* x = args.x + row * args.width;
    GLOBAL float* out = args.out + u64(GROUP_X) * args.width;
    float sum = 0.0f;
    for (u32 first = lane; first < args.width; first += NORM_EACH * GROUP_LANES) {
        float held[NORM_EACH];
        UNROLL
        for (u32 i = 0; i < NORM_EACH; i++) held[i] = LIVE && first + i * GROUP_LANES < args.width ? x[first + i * GROUP_LANES] : 0.0f;
        UNROLL
        for (u32 i = 0; i < NORM_EACH; i++) sum = FMA(held[i], held[i], sum);
    }
    const float inverse = inverse_rms(group_sum(sum, part, lane), args.width, args.eps);
    u32 last = args.width;
    if (PLANTED(FAULT_NORM_UNWRITTEN)) last -= 1u;
    for (u32 first = lane; first < last; first += NORM_EACH * GROUP_LANES) {
        float held[NORM_EACH], by[NORM_EACH];
        UNROLL
        for (u32 i = 0; i < NORM_EACH; i++) {
            const u32 k = first + i * GROUP_LANES;
            held[i] = LIVE && k < last ? x[k] : 0.0f;
            by[i] = k < last ? args.weight[k] : 0.0f;
        }
        UNROLL
        for (u32 i = 0; i < NORM_EACH; i++) {
            const u32 k = first + i * GROUP_LANES;
            if (LIVE && k < last) out[k] = stored(held[i] * inverse * by[i], args.round);
        }
    }
}
