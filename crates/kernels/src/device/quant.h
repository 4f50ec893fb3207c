// The model's block quantisers: one warp a block, the scale from the block's largest magnitude.
//
// A block that holds a NaN or an infinity gets the NaN scale, and its codes are all 0x7f (e4m3) or 7
// (e2m1), so the bytes do not depend on the device's NaN.
#pragma once

DEVICE float quotient(float x, float by) { return PLANTED(FAULT_QUANT_WRONG_SCALE) ? x * 2.0f * by : x * by; }

// The largest magnitude among the 32 lanes, as bits.
DEVICE u32 warp_amax(float x) { return WARP_MAX(AS_BITS(x) & 0x7fffffffu); }

DEVICE u32 e4m3_scale_of(u32 amax) {
    const float most = AS_FLOAT(amax);
    return pow2_at_least((most < 1e-4f ? 1e-4f : most) * (1.0f / 448.0f));
}
DEVICE u32 e2m1_scale_of(u32 amax) {
    const float most = AS_FLOAT(amax), least = 6.0f * 1.17549435e-38f;
    return pow2_at_least((most < least ? least : most) * (1.0f / 6.0f));
}
DEVICE float e8m0_reciprocal(u32 byte) { return byte == 255u ? 0.0f : lift_e8m0(254u - byte); }

// The largest magnitude, as bits, of a block of 32 channels of which each of eight lanes has four.
DEVICE u32 amax_of_fours(THREAD const float* x) {
    u32 amax = 0;
    UNROLL
    for (u32 i = 0; i < 4u; i++) amax = max_bits(amax, AS_BITS(x[i]) & 0x7fffffffu);
    amax = max_bits(amax, SHUFFLE_XOR(amax, 4u));
    amax = max_bits(amax, SHUFFLE_XOR(amax, 2u));
    return max_bits(amax, SHUFFLE_XOR(amax, 1u));
}

// One block of 32 as e4m3; `codes` and `scale` are the block's own.
DEVICE void store_e4m3_block(float x, u32 lane, GLOBAL u8* codes, GLOBAL u8* scale) {
    const u32 byte = e4m3_scale_of(warp_amax(x));
    const u32 code = byte == 255u ? 0x7fu : code_e4m3(quotient(x, e8m0_reciprocal(byte)));
    codes[lane % 32u] = u8(code);
    if (lane % 32u == 0) *scale = u8(byte);
}

// Four channels of a row that lie side by side from `channel` on, as e4m3 in blocks of 32 whose scales lie behind the codes.
// Every lane of the warp comes, those that have channels of the row store.
DEVICE void store_e4m3_fours(THREAD const float* x, bool mine, GLOBAL u8* row, u32 channel, u32 width) {
    const u32 byte = e4m3_scale_of(amax_of_fours(x));
    if (!mine) return;
    UNROLL
    for (u32 i = 0; i < 4u; i++)
        row[channel + i] = u8(byte == 255u ? 0x7fu : code_e4m3(quotient(x[i], e8m0_reciprocal(byte))));
    if (channel % 32u == 0) row[width + channel / 32u] = u8(byte);
}

// Two codes make a byte, the even channel low.
DEVICE void store_e2m1_pair(u32 code, u32 lane, GLOBAL u8* nibbles) {
    const u32 other = SHUFFLE_XOR(code, 1u);
    if (lane % 2u == 0) nibbles[lane % 32u / 2u] = u8(code | (other << 4));
}

// One block of 32 as e2m1 with an e8m0 scale.
DEVICE void store_e2m1_block(float x, u32 lane, GLOBAL u8* nibbles, GLOBAL u8* scale) {
    const u32 byte = e2m1_scale_of(warp_amax(x));
    const u32 code = byte == 255u ? 7u : code_e2m1(quotient(x, e8m0_reciprocal(byte)));
    store_e2m1_pair(code, lane, nibbles);
    if (lane % 32u == 0) *scale = u8(byte);
}

// The e4m3 scale of a block of 16, NaN's where it is not finite, and what its values are divided by.
DEVICE u32 halves_scale_of(u32 amax) {
    const float most = AS_FLOAT(amax), least = 6.0f / 512.0f;
    return amax >= 0x7f800000u ? 0x7fu : code_e4m3((most < least ? least : most) / 6.0f);
}
DEVICE float halves_divisor(u32 scale) { return lift_e4m3(scale) * (PLANTED(FAULT_QUANT_WRONG_SCALE) ? 0.5f : 1.0f); }

// Four channels of a row that lie side by side from `channel` on as e2m1, whose codes lie in front of all scales. Every lane
// of the warp comes, those that have channels of the row store.
DEVICE void store_codes_fours(THREAD const u32* code, GLOBAL u8* row, u32 channel) {
    row[channel / 2u] = u8(code[0] | (code[1] << 4));
    row[channel / 2u + 1u] = u8(code[2] | (code[3] << 4));
}
// In blocks of 32 with an e8m0 scale.
DEVICE void store_e2m1_fours(THREAD const float* x, bool mine, GLOBAL u8* row, u32 channel, u32 width) {
    const u32 byte = e2m1_scale_of(amax_of_fours(x));
    if (!mine) return;
    u32 code[4];
    UNROLL
    for (u32 i = 0; i < 4u; i++) code[i] = byte == 255u ? 7u : code_e2m1(quotient(x[i], e8m0_reciprocal(byte)));
    store_codes_fours(code, row, channel);
    if (channel % 32u == 0) row[width / 2u + channel / 32u] = u8(byte);
}
// In blocks of 16 with an e4m3 scale, as store_e2m1_halves has it.
DEVICE void store_halves_fours(THREAD const float* x, bool mine, GLOBAL u8* row, u32 channel, u32 width) {
    u32 amax = 0, code[4];
    UNROLL
    for (u32 i = 0; i < 4u; i++) amax = max_bits(amax, AS_BITS(x[i]) & 0x7fffffffu);
    amax = max_bits(amax, SHUFFLE_XOR(amax, 2u));
    amax = max_bits(amax, SHUFFLE_XOR(amax, 1u));
    if (!mine) return;
    const u32 scale = halves_scale_of(amax);
    const float by = halves_divisor(scale);
    UNROLL
    for (u32 i = 0; i < 4u; i++) code[i] = amax >= 0x7f800000u ? 7u : code_e2m1(x[i] / by);
    store_codes_fours(code, row, channel);
    if (channel % 16u == 0) row[width / 2u + channel / 16u] = u8(scale);
}

// Two blocks of 16 as e2m1, each with an e4m3 scale; a true division, as a reciprocal could cross a
// tie.
DEVICE void store_e2m1_halves(float x, u32 lane, GLOBAL u8* nibbles, GLOBAL u8* scales) {
    u32 amax = AS_BITS(x) & 0x7fffffffu;
    amax = max_bits(amax, SHUFFLE_XOR(amax, 8u));
    amax = max_bits(amax, SHUFFLE_XOR(amax, 4u));
    amax = max_bits(amax, SHUFFLE_XOR(amax, 2u));
    amax = max_bits(amax, SHUFFLE_XOR(amax, 1u));
    const u32 scale = halves_scale_of(amax);
    store_e2m1_pair(amax >= 0x7f800000u ? 7u : code_e2m1(x / halves_divisor(scale)), lane, nibbles);
    if (lane % 16u == 0) scales[lane % 32u / 16u] = u8(scale);
}

// Four bf16 values that lie side by side, given by their bits as f32.
DEVICE void store_halves(THREAD const u32* bits, GLOBAL u16* out) {
    ((GLOBAL u32*)out)[0] = bits[0] >> 16 | (bits[1] & 0xffff0000u);
    ((GLOBAL u32*)out)[1] = bits[2] >> 16 | (bits[3] & 0xffff0000u);
}
DEVICE void store_plain_fours(THREAD const float* x, GLOBAL u16* out) {
    u32 bits[4];
    UNROLL
    for (u32 i = 0; i < 4u; i++) bits[i] = AS_BITS(round_bf16(x[i]));
    store_halves(bits, out);
}

// A row as the input of an FP8 or FP4 linear on tensor cores: e4m3 codes, then one f32 scale for each step of 128
// channels. A block of 32 is rounded by its own power of two, as the dialect's linears round it, and then once more to
// that of its step, which is the largest of its four blocks. In a block with a NaN or an infinity codes are NaN, and so is
// the scale of its step.
#define STEP_CHANNELS 128u

// Bytes of a row of so many channels, which are whole steps.
DEVICE u32 row_bytes(u32 width) { return (width + width / 32u + 15u) / 16u * 16u; }
// Where channel n of a step lies: fours of channels side by side, those of a block in a fourth of each 16 bytes.
DEVICE u32 coded_at(u32 n) { return n % 32u / 8u * 32u + n % 8u / 4u * 16u + n / 32u * 4u + n % 4u; }
// 2^-apart, 0 below the normal numbers.
DEVICE float power_down(u32 apart) { return apart < 127u ? AS_FLOAT((127u - apart) << 23) : 0.0f; }
// The code of a channel whose block and step have scales of these bytes.
DEVICE u32 step_code(float x, u32 byte, u32 step) {
    if (byte == 255u) return 0x7fu;
    return code_e4m3(round_e4m3(quotient(x, e8m0_reciprocal(byte))) * power_down(step - byte));
}

// Four channels of a row that lie side by side from `channel` on; the step is the warp's. Every lane of the warp comes,
// those that have channels of the row store.
DEVICE void store_coded_fours(THREAD const float* x, bool mine, GLOBAL u8* row, u32 channel, u32 width) {
    const u32 byte = e4m3_scale_of(amax_of_fours(x)), first = channel / STEP_CHANNELS * STEP_CHANNELS;
    u32 step = max_bits(byte, SHUFFLE_XOR(byte, 8u));
    step = max_bits(step, SHUFFLE_XOR(step, 16u));
    u32 word = 0;
    UNROLL
    for (u32 i = 0; i < 4u; i++) word |= step_code(x[i], byte, step) << (8u * i);
    if (!mine) return;
    ((GLOBAL u32*)(row + first + coded_at(channel - first)))[0] = word;
    if (channel == first) ((GLOBAL float*)(row + width))[first / STEP_CHANNELS] = lift_e8m0(step);
}

// Four channels of a row in each form whose rows have an address: f32, bf16, and codes in steps.
DEVICE void store_forms(THREAD const float* x, bool mine, GLOBAL float* whole, GLOBAL u16* plain, GLOBAL u8* coded, u64 row, u32 channel, u32 width) {
    if (whole && mine) store_fours(x, whole + row * width + channel);
    if (plain && mine) store_plain_fours(x, plain + row * width + channel);
    if (coded) store_coded_fours(x, mine, coded + row * row_bytes(width), channel, width);
}

// Rows to e4m3 codes with one e8m0 scale for 32 channels: the input of an FP8 or FP4 linear. One
// group a row and slice, one warp a block.
KERNEL(quantise, QuantiseArgs) {
    const u32 lane = LANE, slice = GROUP_Y;
    const u64 row = GROUP_X;
    const u32 blocks = args.width / 32u;
    for (u32 block = slice_first(slice, lane) / 32u; block < slice_end(slice, args.width) / 32u; block += GROUP_WARPS) {
        const u64 at = row * args.width + block * 32u;
        GLOBAL u8* scale = args.scales + row * blocks + block;
        store_e4m3_block(args.x[at + lane % 32u], lane, args.codes + at, scale);
    }
}

// Channel c of an index query's head, rotated and rounded as index keys are.
DEVICE float index_channel(GLOBAL const float* q, u32 c, u32 dim, u32 pairs, GLOBAL const float* cos,
    GLOBAL const float* sin, u32 round) {
    const float x = turned(q[c], c, dim - 2u * pairs, cos, sin, false, round);
    const u32 byte = e2m1_scale_of(warp_amax(x));
    return lift_e2m1(code_e2m1(quotient(x, e8m0_reciprocal(byte)))) * lift_e8m0(byte);
}

// An index query's heads rotated and rounded as index keys are, in place. Group (row, head).
KERNEL(index_query, IndexQueryArgs) {
    const u32 lane = LANE, dim = args.dim;
    const u64 row = GROUP_X;
    GLOBAL float* q = args.q + (row * args.heads + GROUP_Y) * dim;
    GLOBAL const float* cos = args.cos + row * args.pairs;
    GLOBAL const float* sin = args.sin + row * args.pairs;
    for (u32 c = lane; c < dim; c += GROUP_LANES) q[c] = index_channel(q, c, dim, args.pairs, cos, sin, args.round);
}

// An index query's heads rotated, rounded as index keys are, and laid out as the right operand of
// 16-wide products in bf16 (exact). 64 channels of every head, in rows of 128 bytes, come before the next
// 64; of those, 16-byte piece p of a head lies at p ^ (head % 8). Word t of piece 4 (m % 2) + i of part m / 2
// holds channels t * dim / 4 + 8 m + i (low) and + i + 4 (high). A group takes 1024 channels of a row, a lane
// eight side by side, so heads are whole blocks of 32 and the turned pairs of a head a multiple of four.
KERNEL(index_operand, IndexOperandArgs) {
    const u32 dim = args.dim, part = dim / 4u, still = dim - 2u * args.pairs, width = args.heads * dim;
    const u32 at = (GROUP_Y * GROUP_LANES + LANE) * 8u, head = at / dim, c = at % dim;
    const u64 row = GROUP_X;
    const bool mine = at < width;
    float x[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (mine) {
        load_fours(args.q + row * width + at, x);
        load_fours(args.q + row * width + at + 4u, x + 4);
    }
    if (mine && c >= still) {
        const u64 turn = row * args.pairs + (c - still) / 2u;
        UNROLL
        for (u32 i = 0; i < 4u; i++) {
            const float even = x[2u * i], odd = x[2u * i + 1u], cos = args.cos[turn + i], sin = args.sin[turn + i];
            x[2u * i] = round_bf16(even * cos - odd * sin);
            x[2u * i + 1u] = round_bf16(even * sin + odd * cos);
        }
    }
    u32 amax = 0;
    UNROLL
    for (u32 i = 0; i < 8u; i++) amax = max_bits(amax, AS_BITS(x[i]) & 0x7fffffffu);
    amax = max_bits(amax, SHUFFLE_XOR(amax, 2u));
    amax = max_bits(amax, SHUFFLE_XOR(amax, 1u));
    if (!mine) return;
    const u32 byte = e2m1_scale_of(amax), m = c % part / 8u;
    const float by = e8m0_reciprocal(byte), lift = lift_e8m0(byte);
    GLOBAL u32* out = (GLOBAL u32*)(args.out + row * width) + (m / 2u * args.heads + head) * 32u + c / part;
    UNROLL
    for (u32 i = 0; i < 4u; i++) {
        const u32 low = AS_BITS(round_e2m1(quotient(x[i], by)) * lift);
        const u32 high = AS_BITS(round_e2m1(quotient(x[i + 4u], by)) * lift);
        out[((m % 2u * 4u + i) ^ head % 8u) * 4u] = low >> 16 | (high & 0xffff0000u);
    }
}
