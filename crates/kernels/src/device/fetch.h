// Experts that stay in the host's memory, brought to the device for one step: the tensors of each used
// expert, byte for byte, from the mapped checkpoint to a place of its own.
//
// Reads cross a bus: a warp reads whole lines of 128 bytes of the map, wherever in a line a tensor
// begins, and bytes go where they belong on the device. No word that holds none of the tensor's bytes is
// read: what lies beside it may not be there.
#pragma once

#define FETCH_BYTES 8192u
#define FETCH_LINE 128u

// Group y is a place: it takes the expert of group y of `groups`, (expert, start, end), and names itself in
// `named`, (place, start, end), all zero where the group has no rows. Group x takes FETCH_BYTES of one of the
// `count` tensors in turn. `table` has the bytes of each tensor, where the first place's begins in `out` and
// how far on the next place's, then the tensors of each expert as offsets from `map`, which begins a line.
KERNEL(fetch, FetchArgs) {
    const u32 lane = LANE, place = GROUP_Y, x = GROUP_X;
    u32 expert = args.groups[place * 3u];
    const u32 start = args.groups[place * 3u + 1u], end = args.groups[place * 3u + 2u];
    if (x == 0 && lane < 3u) {
        const u32 name = PLANTED(FAULT_FETCH_NAMES_EXPERT) ? expert : place;
        const u32 bound = lane == 1u ? start : end;
        args.named[place * 3u + lane] = start == end ? 0u : lane == 0 ? name : bound;
    }
    if (start == end) return;
    u32 tensor = 0;
    u64 piece = x;
    for (; tensor < args.count; tensor++) {
        const u64 pieces = (args.table[tensor * 3u] + (FETCH_LINE - 1u) + (FETCH_BYTES - 1u)) / FETCH_BYTES;
        if (piece < pieces) break;
        piece -= pieces;
    }
    if (tensor == args.count) return;
    if (PLANTED(FAULT_FETCH_NEIGHBOUR)) expert = expert == 0 ? 1u : expert - 1u;
    const u64 bytes = args.table[tensor * 3u] - (PLANTED(FAULT_FETCH_SHORT) ? 1u : 0u);
    const u64 from = args.table[(args.count * 3u) + u64(expert) * args.count + tensor];
    // Positions count from the line that the tensor begins in: its own are skip..last.
    const u64 skip = from % FETCH_LINE, first = piece * FETCH_BYTES, last = skip + bytes;
    GLOBAL const u32* words = (GLOBAL const u32*)(args.map + (from - skip) + first);
    GLOBAL u8* to = args.out + args.table[tensor * 3u + 1u] + place * args.table[tensor * 3u + 2u];
    const u32 EACH = FETCH_BYTES / 4u / GROUP_LANES;
    u32 own[EACH];
    UNROLL
    for (u32 i = 0; i < EACH; i++) {
        const u64 at = first + (lane + i * GROUP_LANES) * 4u;
        own[i] = at + 4u > skip && at < last ? words[lane + i * GROUP_LANES] : 0u;
    }
    UNROLL
    for (u32 i = 0; i < EACH; i++) {
        const u64 at = first + (lane + i * GROUP_LANES) * 4u;
        if (skip % 4u == 0 && at >= skip && at + 4u <= last) {
            ((GLOBAL u32*)to)[(at - skip) / 4u] = own[i];
            continue;
        }
        for (u32 b = 0; b < 4u; b++)
            if (at + b >= skip && at + b < last) to[at + b - skip] = u8(own[i] >> (8u * b));
    }
}
