// What several devices computed of the same rows, put together.
#pragma once

// Words of a row that a group moves.
#define JOIN_WORDS 512u

// Rows whose columns lie device after device, `[count, rows, width]`, to rows `[rows, count * width]`.
// Words are moved as they are.
KERNEL(join_parts, JoinArgs) {
    const u64 row = GROUP_X;
    const u32 all = args.count * args.width;
    const u32 first = GROUP_Y * JOIN_WORDS;
    const u32 end = first + JOIN_WORDS < all ? first + JOIN_WORDS : all;
    for (u32 k = first + LANE; k < end; k += GROUP_LANES) {
        const u32 part = k / args.width, within = k - part * args.width;
        const u32 from = PLANTED(FAULT_JOIN_SWAPPED) ? args.count - 1u - part : part;
        if (PLANTED(FAULT_JOIN_SHORT) && k + 1u == all) continue;
        args.out[row * args.stride + k] = args.parts[(u64(from) * args.rows + row) * args.width + within];
    }
}
