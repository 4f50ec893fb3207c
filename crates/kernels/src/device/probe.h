// What a benchmark needs: memory filled with chosen bits, and memory read as fast as it goes.
#pragma once

// Word i of row r is (a hash of the row's key and i) & keep | set, one group a row. Rows
// without keys have their own number as key.
DEVICE u32 probe_hash(u32 key, u32 i) {
    u32 x = key * 0x9e3779b9u + i;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

KERNEL(fill, FillArgs) {
    const u32 group = GROUP_X;
    const u64 row = group;
    u32 key = (args.keyed != 0 ? args.keys[row] : group) + args.seed;
    if (PLANTED(FAULT_FILL_NEIGHBOUR_KEY)) key += group;
    for (u32 i = LANE; i < args.width; i += GROUP_LANES) {
        const u64 at = row * args.width + i;
        if (at < args.count) args.out[at] = (probe_hash(key, i) & args.keep) | args.set;
    }
}

// The exclusive or of each row's words; a row is whole chunks of 16 bytes.
KERNEL(read_all, ReadAllArgs) {
    SHARED(u32, part, GROUP_WARPS);
    const u32 lane = LANE, row = GROUP_X;
    GLOBAL const u32* from = args.from + u64(row) * args.width;
    u32 sum = 0;
    u32 last = args.width / 4u;
    if (PLANTED(FAULT_READ_SHORT)) last -= 1u;
    for (u32 first = lane; first < last; first += 8u * GROUP_LANES) {
        Bytes16 chunks[8];
        for (u32 i = 0; i < 8u; i++) {
            const u32 at = first + i * GROUP_LANES;
            if (at < last) chunks[i] = LOAD16(from + u64(at) * 4u);
        }
        for (u32 i = 0; i < 8u; i++) {
            if (first + i * GROUP_LANES >= last) continue;
            for (u32 j = 0; j < 4u; j++) sum ^= chunks[i].word[j];
        }
    }
    for (u32 apart = 16u; apart > 0; apart /= 2u) sum ^= SHUFFLE_XOR(sum, apart);
    if (lane % 32u == 0) part[lane / 32u] = sum;
    BARRIER();
    if (lane == 0) args.out[row] = part[0] ^ part[1] ^ part[2] ^ part[3];
}
