// Weights in the order that tensor-core products read them, and rows as those take them.
//
// A tile is 16 outputs; a step is what 128 bytes of a row multiply: 128 inputs where rows are codes, 64 where they are
// bf16. Tiles lie one after another, each with its steps in order.
//
// FP8 codes: 128 bytes for each output, in the order of coded_at, its 16-byte piece q at q ^ (output % 8). Codes are
// rounded once more to the largest scale of the step's four blocks of 32; after all tiles an f32 for each tile and step.
//
// FP4 codes: lane l of 32 has outputs l / 4 and l / 4 + 8 in block l % 4 of the step, a word for eight inputs of an
// output: for inputs 0 to 7 the two outputs', for 8 to 15 theirs, lanes one after another; then so for those from 16.
// Bits 4 j to 4 j + 2 of a word are the magnitude of input j; bit 8 j + 7 is the sign of one of the first four, bit
// 8 (j - 4) + 3 that of another. Then a nibble for each output and block, 15 less how many powers of two its scale is
// below the largest of the output's four (0 from there on), and for each output a biased exponent: that largest less 6.
#pragma once

#define TILE_OUTPUTS 16u

// An e4m3 code where a mask finds it, and where a shift does.
DEVICE u32 e4m3_first(u32 code) { return ((code & 0x80u) << 8) | ((code & 0x7fu) << 4); }
DEVICE u32 e4m3_second(u32 code) { return ((code & 0x80u) << 4) | ((code & 0x70u) << 8) | (code & 15u); }

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
DEVICE void arranged(ARGS_REF(ArrangeArgs) args, u32 y, THREAD Arranged& a, u32 inputs) {
    const u32 steps = args.inputs / inputs, which = y / steps;
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
    arranged(args, GROUP_Y, a, STEP_CHANNELS);
    if (!a.used) return;
    const u64 place = args.first + u64(GROUP_X) * args.apart, steps = args.inputs / STEP_CHANNELS;
    const u32 output = GROUP_X * TILE_OUTPUTS, first = a.step * STEP_CHANNELS, lane = LANE;
    // All outputs of a tile lie in the same squares.
    GLOBAL const u8* scales = a.scale + output / args.side * ((args.inputs + args.side - 1u) / args.side);
    u32 bytes[4], most = 0;
    UNROLL
    for (u32 i = 0; i < 4u; i++) {
        bytes[i] = scales[(first + i * 32u) / args.side];
        most = max_bits(most, bytes[i]);
    }
    float by[4];
    UNROLL
    for (u32 i = 0; i < 4u; i++) by[i] = power_down(most - bytes[i]);
    GLOBAL u8* out = a.out + (place * steps + a.step) * 2048u;
    for (u32 i = lane; i < 512u; i += GROUP_LANES) {
        // Four inputs side by side.
        const u32 row = i / 32u, n = i % 32u * 4u, at = coded_at(n);
        u32 word = 0;
        if (output + row < args.outputs) {
            GLOBAL const u8* codes = a.weight + u64(output + row) * args.inputs + first + n;
            UNROLL
            for (u32 j = 0; j < 4u; j++) {
                const u32 code = codes[j];
                word |= ((code & 0x7fu) == 0x7fu ? code : code_e4m3(lift_e4m3(code) * by[n / 32u])) << (8u * j);
            }
        }
        if (PLANTED(FAULT_ARRANGE_SWAPPED)) word = (word << 16) | (word >> 16);
        ((GLOBAL u32*)(out + row * 128u + ((at / 16u) ^ (row % 8u)) * 16u))[at % 16u / 4u] = word;
    }
    if (lane == 0) ((GLOBAL float*)(a.out + u64(args.tiles) * steps * 2048u))[place * steps + a.step] = lift_e8m0(most);
}

// The scale byte of an output's block of a step, and the largest of its four.
struct Scale {
    u32 own, most;
};
DEVICE Scale scale_of(GLOBAL const u8* blocks, u32 block) {
    const u32 first = max_bits(blocks[0], blocks[1]), second = max_bits(blocks[2], blocks[3]);
    return Scale{blocks[block], max_bits(first, second)};
}

KERNEL(arrange_fp4, ArrangeArgs) {
    Arranged a;
    arranged(args, GROUP_Y, a, STEP_CHANNELS);
    if (!a.used) return;
    const u64 place = args.first + u64(GROUP_X) * args.apart, steps = args.inputs / STEP_CHANNELS;
    const u32 output = GROUP_X * TILE_OUTPUTS, first = a.step * STEP_CHANNELS, lane = LANE;
    GLOBAL u8* own = a.out + (place * steps + a.step) * 1072u;
    GLOBAL u32* out = (GLOBAL u32*)own;
    for (u32 i = lane; i < 256u; i += GROUP_LANES) {
        const u32 owner = i / 4u % 32u, row = output + owner / 4u + i % 2u * 8u;
        const u32 k = first + owner % 4u * 32u + i / 128u * 16u + i % 4u / 2u * 8u;
        u32 word = 0;
        if (row < args.outputs) {
            GLOBAL const u8* pairs = a.weight + (u64(row) * args.inputs + k) / 2u;
            UNROLL
            for (u32 j = 0; j < 8u; j++) {
                const u32 code = (pairs[j / 2u] >> (j % 2u * 4u)) & 15u;
                word |= ((code & 7u) << (4u * j)) | ((code >> 3) << (8u * (j % 4u) + (j < 4u ? 7u : 3u)));
            }
        }
        out[i] = PLANTED(FAULT_ARRANGE_SWAPPED) ? (word << 16) | (word >> 16) : word;
    }
    const u32 blocks = args.inputs / 32u, block = first / 32u;
    if (lane < 32u) {
        u32 indices = 0;
        UNROLL
        for (u32 i = 0; i < 2u; i++) {
            const u32 row = output + lane / 4u + i * 8u;
            u32 index = 15u;
            if (row < args.outputs) {
                const Scale scale = scale_of(a.scale + u64(row) * blocks + block, lane % 4u);
                const u32 below = scale.most - scale.own;
                index = below < 15u ? 15u - below : 0;
            }
            indices |= index << (4u * i);
        }
        own[1024u + lane] = u8(indices);
    } else if (lane < 32u + TILE_OUTPUTS) {
        const u32 i = lane - 32u, row = output + i / 2u + i % 2u * 8u;
        own[1056u + i] = u8(row < args.outputs ? scale_of(a.scale + u64(row) * blocks + block, 0).most - 6u : 1u);
    }
}

// An output has 128 bytes of a step of 64 inputs, whose 16-byte piece q lies at q ^ (output % 8).
KERNEL(arrange_bf16, ArrangeArgs) {
    Arranged a;
    arranged(args, GROUP_Y, a, 64u);
    if (!a.used) return;
    const u64 place = args.first + u64(GROUP_X) * args.apart, steps = args.inputs / 64u;
    GLOBAL u32* out = (GLOBAL u32*)(a.out + (place * steps + a.step) * 2048u);
    for (u32 i = LANE; i < 512u; i += GROUP_LANES) {
        const u32 own = i / 32u, row = GROUP_X * TILE_OUTPUTS + own, piece = (i / 4u % 8u) ^ (own % 8u);
        const u32 k = a.step * 64u + piece * 8u + i % 4u * 2u;
        u32 word = 0;
        if (row < args.outputs) word = ((GLOBAL const u32*)(a.weight + (u64(row) * args.inputs + k) * 2u))[0];
        out[i] = PLANTED(FAULT_ARRANGE_SWAPPED) ? (word << 16) | (word >> 16) : word;
    }
}

// FP8 codes that are multiplied as bf16: lane l of 32 holds outputs l / 4 and l / 4 + 8, inputs 2 (l % 4) and the next,
// and the same 8 further, of each 16, in two units of 32 inputs, 16 bytes a lane. A word has two inputs' codes in the
// bits that a mask leaves as bf16 values, two more after a shift.
KERNEL(arrange_lifted, ArrangeArgs) {
    Arranged a;
    arranged(args, GROUP_Y, a, 64u);
    if (!a.used) return;
    const u64 place = args.first + u64(GROUP_X) * args.apart, steps = args.inputs / 64u;
    const u32 output = GROUP_X * TILE_OUTPUTS, step = a.step, lane = LANE;
    GLOBAL u32* out = (GLOBAL u32*)(a.out + (place * steps + step) * 1024u);
    for (u32 i = lane; i < 256u; i += GROUP_LANES) {
        const u32 owner = i / 4u % 32u, row = output + owner / 4u + i % 2u * 8u;
        const u32 k = step * 64u + i / 128u * 32u + i % 4u / 2u * 16u + owner % 4u * 2u;
        u32 word = 0;
        if (row < args.outputs) {
            GLOBAL const u8* codes = a.weight + u64(row) * args.inputs + k;
            word = e4m3_first(codes[0]) | e4m3_second(codes[8]) | ((e4m3_first(codes[1]) | e4m3_second(codes[9])) << 16);
        }
        out[i] = PLANTED(FAULT_ARRANGE_SWAPPED) ? (word << 16) | (word >> 16) : word;
    }
    if (lane > 0) return;
    // What lifts the codes of each 32 inputs to bf16 values, as bf16: both powers of two.
    GLOBAL const u8* scale = a.scale + output / args.side * ((args.inputs + args.side - 1u) / args.side);
    const u32 low = scale[step * 64u / args.side] + 120u, high = scale[(step * 64u + 32u) / args.side] + 120u;
    GLOBAL u32* by = (GLOBAL u32*)(a.out + u64(args.tiles) * steps * 1024u);
    by[place * steps + step] = ((low & 255u) << 7) | ((high & 255u) << 23);
}

// Rows as the right operand of a product: bf16, or codes in steps where `coded`, of whole steps then. Rows begin at
// multiples of 16 bytes, `out_stride` bytes apart. One group a row and slice, a lane four inputs side by side.
KERNEL_REHEARSED(operand, OperandArgs) {
    const u32 lane = LANE, at = GROUP_Y * SLICE_CHANNELS + lane * 4u;
    const u64 row = GROUP_X;
    const bool mine = LIVE && at < args.width;
    GLOBAL u8* out = args.out + row * args.out_stride;
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (mine) load_fours(args.x + row * args.x_stride + at, x);
    if (args.coded != 0) store_coded_fours(x, mine, out, at, args.width);
    else if (mine) store_plain_fours(x, (GLOBAL u16*)out + at);
}
