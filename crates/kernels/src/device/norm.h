// out = x / sqrt(mean(x^2) + eps) * weight, one group a row; the sum as reduce.h says.
#pragma once

DEVICE float inverse_rms(float sum, u32 count, float eps) {
    return 1.0f / SQRT(sum / float(count) + eps);
}

KERNEL(rmsnorm, RmsnormArgs) {
    SHARED(float, part, GROUP_WARPS);
    const u32 lane = LANE;
    u64 row = GROUP_X;
    if (PLANTED(FAULT_NORM_NEIGHBOUR_ROW)) row = row > 0 ? row - 1u : row;
    GLOBAL const float* x = args.x + row * args.width;
    GLOBAL float* out = args.out + u64(GROUP_X) * args.width;
    float sum = 0.0f;
    for (u32 k = lane; k < args.width; k += GROUP_LANES) sum = FMA(x[k], x[k], sum);
    const float inverse = inverse_rms(group_sum(sum, part, lane), args.width, args.eps);
    u32 last = args.width;
    if (PLANTED(FAULT_NORM_UNWRITTEN)) last -= 1u;
    for (u32 k = lane; k < last; k += GROUP_LANES)
        out[k] = stored(x[k] * inverse * args.weight[k], args.round);
}
