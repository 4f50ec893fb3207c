// A kernel that breaks one rule of shared memory by `mode`: holds the shadow to what it must find.
#pragma once

struct ShadowArgs {
    u32 mode;
    u32 pad;
};

#define SHADOW_CLEAN 0u
#define SHADOW_READ_RACE 1u
#define SHADOW_WRITE_RACE 2u
#define SHADOW_UNWRITTEN 3u
#define SHADOW_OUTSIDE 4u
#define SHADOW_DIVERGED 5u

KERNEL(shadow, ShadowArgs) {
    SHARED(u32, words, GROUP_LANES);
    const u32 lane = LANE, mode = args.mode;
    if (mode != SHADOW_UNWRITTEN) words[lane] = lane;
    if (mode == SHADOW_DIVERGED && lane == 5u) return;
    if (mode != SHADOW_READ_RACE) BARRIER();
    const u32 next = (lane + 1u) % GROUP_LANES;
    const u32 found = words[mode == SHADOW_OUTSIDE ? next + 1u : next];
    if (mode != SHADOW_WRITE_RACE) BARRIER();
    words[lane] = found;
}

struct TurnsArgs {
    GLOBAL u32* out;
};

// Every group takes the next number, which makes the order in which groups ran readable.
KERNEL(turns, TurnsArgs) {
    if (LANE != 0) return;
    const u32 turn = args.out[0];
    args.out[0] = turn + 1u;
    args.out[1u + GROUP_Y * 4u + GROUP_X] = turn;
}
