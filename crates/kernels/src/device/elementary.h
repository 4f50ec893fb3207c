// One elementary function of each value: holds math.h to finback-numerics.
#pragma once

KERNEL(elementary, ElementaryArgs) {
    const u32 at = GROUP_X * GROUP_LANES + LANE;
    if (at >= args.count) return;
    const float x = args.x[at];
    float y = x;
    if (args.function == 0) y = exp_of(x);
    else if (args.function == 1u) y = ln_of(x);
    else if (args.function == 2u) y = log1p_of(x);
    else if (args.function == 3u) y = softplus_of(x);
    else if (args.function == 4u) y = sigmoid_of(x);
    else if (args.function == 5u) y = silu_of(x);
    else if (args.function == 6u) y = is_nan(x) ? x : round_bf16(x);
    else if (args.function == 7u) y = is_nan(x) ? x : round_e4m3(x);
    else if (args.function == 8u) y = is_nan(x) ? x : round_e2m1(x);
    if (PLANTED(FAULT_MATH_LAST_BIT)) y = AS_FLOAT(AS_BITS(y) ^ 1u);
    args.out[at] = y;
}
