// Weights in the order that tensor-core products read them, and rows as those take them.
//
// A tile is 16 outputs, a step 64 inputs; tiles lie one after another, each with its steps in order.
// Within a step lane l of 32 holds outputs l / 4 and l / 4 + 8, inputs 2 (l % 4) and the next, and the
// same 8 further, of each 16: FP8 in two units of 32 inputs, 16 bytes a lane; FP4 in one unit of 64, 16
// bytes a lane; BF16 in four units of 16, 16 bytes a lane. A word has two inputs' codes in the bits that
// a mask leaves as bf16 values, two more after a shift: cuda/matmul.cuh takes them apart.
//
// Scales are stored as the biased exponent of what a lifted code is multiplied by: FP8's, one byte a
// unit, after all tiles; FP4's 32 bytes after each step, four for a pair of outputs.
#pragma once

#define TILE_OUTPUTS 16u
#define TILE_INPUTS 64u

// An e4m3 code where a mask finds it, and where a shift does.
DEVICE u32 e4m3_first(u32 code) { return ((code & 0x80u) << 8) | ((code & 0x7fu) << 4); }
DEVICE u32 e4m3_second(u32 code) { return ((code & 0x80u) << 4) | ((code & 0x70u) << 8) | (code & 15u); }

// Four pairs of e2m1 codes, the low nibble of a byte in the low half of the word.
DEVICE u32 e2m1_word(u32 a, u32 b, u32 c, u32 d) {
    u32 word = 0;
    for (u32 high = 0; high < 2u; high++) {
        const u32 s = 4u * high, at = 16u * high, other = 16u - at;
        const u32 p = (a >> s) & 15u, q = (b >> s) & 15u, r = (c >> s) & 15u, t = (d >> s) & 15u;
        word |= (((p & 7u) << 6) | ((p & 8u) << 12)) << at;
        word |= ((q & 7u) << 10) << at | ((q & 8u) << other);
        word |= ((r & 7u) | ((r & 8u) << 6)) << at;
        word |= (((t & 1u) << 4) | ((t & 6u) << 12)) << at | ((t & 8u) << 2 << other);
    }
    return word;
}

// The weight that a group arranges, and which step of it.
struct Arranged {
    GLOBAL const u8* weight;
    GLOBAL const u8* scale;
    GLOBAL u8* out;
    u32 step;
    bool used;
};

// Group y counts the steps of one weight, or with `groups` of several, one after another: those whose
// (weight, start, end) has no rows are left alone.
DEVICE void arranged(ARGS_REF(ArrangeArgs) args, u32 y, THREAD Arranged& a) {
    const u32 steps = args.inputs / TILE_INPUTS, which = y / steps;
    const u64 from = PLANTED(FAULT_ARRANGE_WRONG_PLACE) && which > 0 ? which - 1u : which;
    a.weight = args.weight + from * args.weight_bytes;
    a.scale = args.scale + from * args.scale_bytes;
    a.out = args.out + which * args.out_bytes;
    a.step = y % steps;
    a.used = args.groups ? args.groups[which * 3u + 1u] < args.groups[which * 3u + 2u] : true;
}

// One group for a tile and a step. Tile x of the weight becomes tile first + x * apart of `tiles`.
KERNEL(arrange_fp8, ArrangeArgs) {
    Arranged a;
    arranged(args, GROUP_Y, a);
    if (!a.used) return;
    const u64 place = args.first + u64(GROUP_X) * args.apart, steps = args.inputs / TILE_INPUTS;
    const u32 output = GROUP_X * TILE_OUTPUTS, step = a.step, lane = LANE;
    GLOBAL u32* out = (GLOBAL u32*)(a.out + (place * steps + step) * 1024u);
    for (u32 i = lane; i < 256u; i += GROUP_LANES) {
        const u32 owner = i / 4u % 32u, row = output + owner / 4u + i % 2u * 8u;
        const u32 k = step * TILE_INPUTS + i / 128u * 32u + i % 4u / 2u * 16u + owner % 4u * 2u;
        u32 word = 0;
        if (row < args.outputs) {
            GLOBAL const u8* codes = a.weight + u64(row) * args.inputs + k;
            word = e4m3_first(codes[0]) | e4m3_second(codes[8]) | ((e4m3_first(codes[1]) | e4m3_second(codes[9])) << 16);
        }
        out[i] = PLANTED(FAULT_ARRANGE_SWAPPED) ? (word << 16) | (word >> 16) : word;
    }
    if (lane < 2u) {
        const u32 width = (args.inputs + args.side - 1u) / args.side;
        const u32 at = output / args.side * width + (step * TILE_INPUTS + lane * 32u) / args.side;
        a.out[u64(args.tiles) * steps * 1024u + place * steps * 2u + step * 2u + lane] = u8(a.scale[at] + 120u);
    }
}

KERNEL(arrange_fp4, ArrangeArgs) {
    Arranged a;
    arranged(args, GROUP_Y, a);
    if (!a.used) return;
    const u64 place = args.first + u64(GROUP_X) * args.apart, steps = args.inputs / TILE_INPUTS;
    const u32 output = GROUP_X * TILE_OUTPUTS, step = a.step, lane = LANE;
    GLOBAL u8* own = a.out + (place * steps + step) * 544u;
    GLOBAL u32* out = (GLOBAL u32*)own;
    for (u32 i = lane; i < 128u; i += GROUP_LANES) {
        const u32 owner = i / 4u, row = output + owner / 4u + i % 2u * 8u;
        const u32 k = step * TILE_INPUTS + i % 4u / 2u * 32u + owner % 4u * 2u;
        u32 word = 0;
        if (row < args.outputs) {
            GLOBAL const u8* pairs = a.weight + (u64(row) * args.inputs + k) / 2u;
            word = e2m1_word(pairs[0], pairs[4], pairs[8], pairs[12]);
        }
        out[i] = PLANTED(FAULT_ARRANGE_SWAPPED) ? (word << 16) | (word >> 16) : word;
    }
    if (lane < 32u) {
        const u32 row = output + lane / 4u + lane % 2u * 8u, block = step * 2u + lane % 4u / 2u;
        const u32 byte = row < args.outputs ? a.scale[u64(row) * (args.inputs / 32u) + block] : 1u;
        own[512u + lane] = u8(byte + 126u);
    }
}

KERNEL(arrange_bf16, ArrangeArgs) {
    Arranged a;
    arranged(args, GROUP_Y, a);
    if (!a.used) return;
    const u64 place = args.first + u64(GROUP_X) * args.apart, steps = args.inputs / TILE_INPUTS;
    const u32 output = GROUP_X * TILE_OUTPUTS, step = a.step, lane = LANE;
    GLOBAL u32* out = (GLOBAL u32*)(a.out + (place * steps + step) * 2048u);
    for (u32 i = lane; i < 512u; i += GROUP_LANES) {
        const u32 owner = i / 4u % 32u, row = output + owner / 4u + i % 2u * 8u;
        const u32 k = step * TILE_INPUTS + i / 128u * 16u + i % 4u / 2u * 8u + owner % 4u * 2u;
        u32 word = 0;
        if (row < args.outputs) word = ((GLOBAL const u32*)(a.weight + (u64(row) * args.inputs + k) * 2u))[0];
        out[i] = PLANTED(FAULT_ARRANGE_SWAPPED) ? (word << 16) | (word >> 16) : word;
    }
}

// Rows as the right operand of a product: bf16, after the model's rounding to e4m3 with one power of
// two for 32 inputs where `coded`. Rows begin at multiples of 16 bytes and are whole blocks of 32. One group a row
// and slice, a lane four inputs side by side.
KERNEL(operand, OperandArgs) {
    const u32 lane = LANE, at = GROUP_Y * SLICE_CHANNELS + lane * 4u;
    const u64 row = GROUP_X;
    const bool mine = at < args.width;
    GLOBAL u16* out = (GLOBAL u16*)args.out + row * args.out_stride + at;
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (mine) load_fours(args.x + row * args.x_stride + at, x);
    if (args.coded != 0) store_coded_fours(x, mine, out);
    else if (mine) store_plain_fours(x, out);
}
