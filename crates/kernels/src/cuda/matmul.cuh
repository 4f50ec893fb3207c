// Matrix products on Hopper's tensor cores: out[r][o] = sum_k W[o][k] x[r][k]. Weights of FP8 and FP4 and the rows that
// they take are codes of e4m3 with a power of two for each step. Those of BF16 are bf16, and so are the rows that LIFTED
// takes: FP8 weights whose codes are lifted exactly to bf16 in registers. arrange.h has their order.
//
// Order of a sum. A step is 128 bytes of a row: 128 inputs in codes, 64 in bf16. Its part is one chain of four
// instructions, ascending, from zero; parts times their powers of two are added in ascending order, from zero. Every
// kernel here does this for each (row, output), whatever the number of rows.
#pragma once
#ifdef HOPPER

// A warp's arrival, after what its lanes did.
DEVICE void warp_arrives(u32 signal) {
    __syncwarp();
    if (LANE % 32u < WARP_ARRIVALS) signal_arrive(signal);
}

// Whether rows are codes, whether weights are the left operand as they are stored, and whether a tile's steps have words of
// scales behind all tiles.
template <u32 F> DEVICE constexpr bool coded() { return F == FORMAT_FP8 || F == FORMAT_FP4; }
template <u32 F> DEVICE constexpr bool direct() { return F == FORMAT_FP8 || F == FORMAT_BF16; }
template <u32 F> DEVICE constexpr bool scaled() { return F == FORMAT_FP8 || F == FORMAT_LIFTED; }
// Inputs of a step, and the stored bytes of 16 outputs times a step.
template <u32 F> DEVICE constexpr u32 step_inputs() { return coded<F>() ? 128u : 64u; }
template <u32 F> DEVICE constexpr u32 step_bytes() { return F == FORMAT_FP4 ? 1072u : F == FORMAT_LIFTED ? 1024u : 2048u; }

// Of rows of 128 bytes whose 16-byte pieces lie at piece ^ (row % 8).
DEVICE u64 rows_descriptor(u32 at) {
    return u64((at & 0x3ffffu) >> 4) | (u64(1u) << 16) | (u64(64u) << 32) | (u64(1u) << 62);
}

// FP4's values times 2^(index - 9) as codes of e4m3, eight bytes for each of 16 indices; the first are zeros.
// By lanes 0 to 31.
#define TABLE_BYTES 128u
DEVICE void write_table(u32 to) {
    const u32 index = LANE / 2u, wrong = PLANTED(FAULT_TILE_WRONG_ENTRY) && index == 14u ? 1u : 0u;
    u32 word = 0;
    for (u32 i = 0; i < 4u && index > 0; i++)
        word |= code_e4m3(lift_e2m1(LANE % 2u * 4u + i) * AS_FLOAT((index + 118u + wrong) << 23)) << (8u * i);
    store_word(to + LANE * 4u, word);
}

// A lane's part of a step that is lifted, with FP4's indices of its two outputs' block or LIFTED's multipliers, a bf16 for
// each 32 inputs, which lie elsewhere.
template <u32 F> struct Codes {
    u32 word[8], scales;
};
template <u32 F> DEVICE void read_step(u32 from, u32 multipliers, u32 lane, Codes<F>& to) {
    load_words(from + lane * 16u, to.word);
    load_words(from + 512u + lane * 16u, to.word + 4);
    to.scales = F == FORMAT_FP4 ? load_byte(from + 1024u + lane) : load_word(multipliers);
}

// The left operand of a step's four instructions; `table` is FP4's.
template <u32 F> DEVICE void lift_codes(const Codes<F>& codes, u32 table, u32 (&a)[4][4]) {
    if (F == FORMAT_FP4) {
        u32 values[2][2];
        load_pair(table + (codes.scales << 3 & 0x78u), values[0]);
        load_pair(table + (codes.scales >> 1 & 0x78u), values[1]);
#pragma unroll
        for (u32 i = 0; i < 8u; i++) {
            const u32 x = codes.word[i], sizes = x & 0x77777777u, half = i % 2u;
            a[i / 2u][half] = byte_select(values[half][0], values[half][1], sizes) | (x & 0x80808080u);
            a[i / 2u][half + 2u] = byte_select(values[half][0], values[half][1], sizes >> 16) | (x << 4 & 0x80808080u);
        }
    } else {
        const u32 both = PLANTED(FAULT_TILE_WRONG_SCALE) ? codes.scales + 0x00800080u : codes.scales;
#pragma unroll
        for (u32 i = 0; i < 8u; i++) {
            const u32 by = i < 4u ? low_twice(both) : high_twice(both), x = codes.word[i];
            const u32 second = ((x << 4) & 0x80f080f0u) | ((x >> 4) & 0x07000700u);
            a[i / 2u][i % 2u] = times_bf16(x & 0x87f087f0u, by);
            a[i / 2u][i % 2u + 2u] = times_bf16(second, by);
        }
    }
}

// What parts of an FP4 step are multiplied by: outputs lane / 4 and 8 further.
DEVICE void fp4_multipliers(u32 from, u32 lane, float (&to)[2]) {
    const u32 exponents = load_half(from + 1056u + lane / 4u * 2u) + (PLANTED(FAULT_TILE_WRONG_SCALE) ? 0x0101u : 0u);
    to[0] = AS_FLOAT(exponents << 23 & 0x7f800000u);
    to[1] = AS_FLOAT(exponents << 15 & 0x7f800000u);
}

// Where outputs of a tile go: row r's are at `at + r * stride`. A tile lies on one side of the split.
struct Outputs {
    GLOBAL float* at;
    u64 stride;
};
DEVICE Outputs outputs_of(const TileArgs& args, u32 group, u32 start, u32 output) {
    const bool own = output < args.split;
    const u64 stride = own ? args.out_stride : args.second_stride;
    GLOBAL float* at = own ? args.out + u64(group) * args.out_step + output : args.second + (output - args.split);
    return Outputs{at + start * stride, stride};
}
#endif
