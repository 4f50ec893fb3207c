// out[r][o] = sum_k W[o][k] x[r][k] for 1 to 16 rows, from the stored bytes; one warp an output.
//
// Order of a sum. A weight row is read in chunks of 16 bytes (16 FP8, 32 FP4, 8 BF16 or F16, 4 F32
// inputs); lane l of 32 takes the chunks c with c % 32 == l, ascending. A chunk's partial is a chain
// over its inputs, p = w0 x0; p = fma(w1, x1, p); .. It enters the lane by acc = fma(p, scale, acc);
// warp_sum adds the lanes. Every count of rows does exactly this for each (row, output).
//
// FP8 and FP4 weights take their input as f32, or as e4m3 codes with one scale for 32 inputs, whose
// power of two multiplies the partial: acc = fma(p * weight scale, input scale, acc). Products of
// codes are exact, so both give the same bits.
#pragma once

#define DENSE_ROWS 16u

// Inputs of a chunk.
DEVICE u32 chunk_inputs(u32 format) {
    return format == FORMAT_FP8 ? 16u : format == FORMAT_FP4 ? 32u : format == FORMAT_F32 ? 4u : 8u;
}

template <u32 F> DEVICE void lift_chunk(GLOBAL const u8* from, THREAD float* w) {
    const Bytes16 bytes = LOAD16(from);
    if (F == FORMAT_FP8) {
        for (u32 i = 0; i < 16u; i++) w[i] = lift_e4m3((bytes.word[i / 4u] >> (8u * (i % 4u))) & 255u);
    } else if (F == FORMAT_FP4) {
        for (u32 i = 0; i < 32u; i++) w[i] = lift_e2m1((bytes.word[i / 8u] >> (4u * (i % 8u))) & 15u);
    } else if (F == FORMAT_F32) {
        for (u32 i = 0; i < 4u; i++) w[i] = AS_FLOAT(bytes.word[i]);
    } else {
        for (u32 i = 0; i < 8u; i++) {
            const u32 word = (bytes.word[i / 2u] >> (16u * (i % 2u))) & 0xffffu;
            w[i] = F == FORMAT_BF16 ? lift_bf16(word) : lift_f16(word);
        }
    }
}

// The scale byte of an output's chunk that begins at input k.
template <u32 F> DEVICE float chunk_scale(GLOBAL const u8* scale, u32 inputs, u32 side, u32 output, u32 k) {
    if (F != FORMAT_FP8 && F != FORMAT_FP4) return 1.0f;
    const u32 row = F == FORMAT_FP8 ? output / side : output;
    const u32 block = F == FORMAT_FP8 ? side : 32u;
    const u32 width = (inputs + block - 1u) / block;
    u32 column = k / block;
    if (PLANTED(FAULT_DENSE_WRONG_SCALE)) column = width - 1u - column;
    return lift_e8m0(scale[u64(row) * width + column]);
}

// A weight and the rows it takes: rows first..first+count of `list`, or of the input itself.
struct Product {
    GLOBAL const u8* weight;
    GLOBAL const u8* scale;
    GLOBAL const u8* x;
    GLOBAL const u8* codes;
    GLOBAL const u8* scales;
    GLOBAL const u32* list;
    GLOBAL float* out;
    u32 first, count, inputs, outputs, side, x_stride, x_round, out_stride, round;
};

// Output `output` of up to R rows. F is the weight's format; CODES, the input is e4m3 codes.
template <u32 F, bool CODES, u32 R>
DEVICE void product_rows(THREAD const Product& p, u32 output, u32 lane) {
    const u32 width = chunk_inputs(F);
    float sum[R];
    u64 row[R];
    for (u32 r = 0; r < R; r++) {
        sum[r] = 0.0f;
        u32 at = r < p.count ? p.first + r : p.first;
        if (PLANTED(FAULT_DENSE_NEIGHBOUR_ROW) && r > 0) at -= 1u;
        row[r] = p.list ? p.list[at] : at;
    }
    u32 chunks = p.inputs / width;
    GLOBAL const u8* weight = p.weight + u64(output) * chunks * 16u;
    if (PLANTED(FAULT_DENSE_DROPPED_GROUP)) chunks -= 1u;
    for (u32 chunk = lane % 32u; chunk < chunks; chunk += 32u) {
        const u32 k = chunk * width;
        float w[32];
        lift_chunk<F>(weight + u64(chunk) * 16u, w);
        const float scale = chunk_scale<F>(p.scale, p.inputs, p.side, output, k);
        for (u32 r = 0; r < R; r++) {
            if (r >= p.count) continue;
            if (CODES) {
                GLOBAL const u8* x = p.codes + row[r] * p.inputs + k;
                float part = w[0] * lift_e4m3(x[0]);
                for (u32 i = 1; i < width; i++) part = FMA(w[i], lift_e4m3(x[i]), part);
                const u32 up = p.scales[row[r] * (p.inputs / 32u) + k / 32u];
                sum[r] = FMA(part * scale, lift_e8m0(up), sum[r]);
            } else {
                const u64 x = row[r] * p.x_stride + k;
                float part = w[0] * load_kept(p.x, x, p.x_round);
                for (u32 i = 1; i < width; i++) part = FMA(w[i], load_kept(p.x, x + i, p.x_round), part);
                sum[r] = FMA(part, scale, sum[r]);
            }
        }
    }
    for (u32 r = 0; r < R; r++) {
        if (r >= p.count) continue;
        const float total = warp_sum(sum[r]);
        if (lane % 32u == 0)
            p.out[u64(p.first + r) * p.out_stride + output] = stored(total, p.round);
    }
}

// Rows that share one read of the weight: as many as there are, rounded up to a power of two.
template <u32 F, bool CODES> DEVICE void product(THREAD const Product& p, u32 output, u32 lane) {
    if (output >= p.outputs) return;
    if (p.count <= 1u) product_rows<F, CODES, 1u>(p, output, lane);
    else if (p.count <= 2u) product_rows<F, CODES, 2u>(p, output, lane);
    else if (p.count <= 4u) product_rows<F, CODES, 4u>(p, output, lane);
    else if (p.count <= 8u) product_rows<F, CODES, 8u>(p, output, lane);
    else product_rows<F, CODES, DENSE_ROWS>(p, output, lane);
}

#define DENSE_KERNEL(name, format, codes_given)                                                    \
    KERNEL(name, DenseArgs) {                                                                      \
        Product p;                                                                                 \
        p.weight = args.weight;                                                                    \
        p.scale = args.scale;                                                                      \
        p.x = args.x;                                                                              \
        p.codes = args.codes;                                                                      \
        p.scales = args.scales;                                                                    \
        p.list = 0;                                                                                \
        p.out = args.out;                                                                          \
        p.first = 0;                                                                               \
        p.count = args.rows;                                                                       \
        p.inputs = args.inputs;                                                                    \
        p.outputs = args.outputs;                                                                  \
        p.side = args.side;                                                                        \
        p.x_stride = args.x_stride;                                                                \
        p.x_round = args.x_round;                                                                  \
        p.out_stride = args.out_stride;                                                            \
        p.round = args.round;                                                                      \
        const u32 lane = LANE;                                                                     \
        product<format, codes_given>(p, GROUP_X * GROUP_WARPS + lane / 32u, lane);                 \
    }

DENSE_KERNEL(dense_fp8, FORMAT_FP8, false)
DENSE_KERNEL(dense_fp8_codes, FORMAT_FP8, true)
DENSE_KERNEL(dense_fp4, FORMAT_FP4, false)
DENSE_KERNEL(dense_fp4_codes, FORMAT_FP4, true)
DENSE_KERNEL(dense_bf16, FORMAT_BF16, false)
DENSE_KERNEL(dense_f16, FORMAT_F16, false)
DENSE_KERNEL(dense_f32, FORMAT_F32, false)

// The rows of each used expert times its weight, an expert in y. `groups` holds (expert, start, end)
// of places; `rows` names the input row of a place, none where places are the input's rows. Experts
// lie `weight_bytes` and `scale_bytes` apart. An unused group has no places.
#define EXPERT_KERNEL(name, format, codes_given)                                                   \
    KERNEL(name, ExpertArgs) {                                                                     \
        const u64 group = GROUP_Y;                                                                 \
        const u32 expert = args.groups[group * 3u];                                                \
        const u32 start = args.groups[group * 3u + 1u], end = args.groups[group * 3u + 2u];        \
        const u32 lane = LANE;                                                                     \
        Product p;                                                                                 \
        p.weight = args.weight + expert * args.weight_bytes;                                       \
        p.scale = args.scale + expert * args.scale_bytes;                                          \
        p.x = (GLOBAL const u8*)args.x;                                                            \
        p.codes = args.codes;                                                                      \
        p.scales = args.scales;                                                                    \
        p.list = args.rows;                                                                        \
        p.out = args.out;                                                                          \
        p.inputs = args.inputs;                                                                    \
        p.outputs = args.outputs;                                                                  \
        p.side = args.side;                                                                        \
        p.x_stride = args.x_stride;                                                                \
        p.x_round = 0;                                                                             \
        p.out_stride = args.out_stride;                                                            \
        p.round = args.round;                                                                      \
        for (u32 first = start; first < end; first += DENSE_ROWS) {                                \
            p.first = first;                                                                       \
            p.count = end - first < DENSE_ROWS ? end - first : DENSE_ROWS;                         \
            product<format, codes_given>(p, GROUP_X * GROUP_WARPS + lane / 32u, lane);             \
        }                                                                                          \
    }

EXPERT_KERNEL(expert_fp4, FORMAT_FP4, false)
EXPERT_KERNEL(expert_fp4_codes, FORMAT_FP4, true)
EXPERT_KERNEL(expert_fp8, FORMAT_FP8, false)
EXPERT_KERNEL(expert_fp8_codes, FORMAT_FP8, true)
EXPERT_KERNEL(expert_bf16, FORMAT_BF16, false)
