// Hyper-connections of four streams kept as bf16: what hyper_mix does, with the mix's products on tensor cores; the
// collapsed row is kept as bf16 as well. A group takes a slice of 128 channels and `rows_each` rows, sixteen at a time,
// each warp one.
//
// A weight of f32 is the sum of three bf16 exactly, so its products with bf16 are exact. Order of a sum: a stream's
// channels are one chain of products of 16 for each of the three, which are added lowest first; streams give
// (0 + 1) + (2 + 3). Squares and slices are added as mix.h says.
#pragma once

#define TILE_MIX_LANES 512u
#define TILE_MIX_ROWS 16u
#define TILE_MIX_OUTPUTS 24u
// Experts whose bytes are on their way with a row.
#define TILE_MIX_TERMS 6u
// Bytes of 512 values, four streams of a slice; their pieces of 16 bytes lie at piece ^ (row % 8).
#define TILE_MIX_ROW 1024u
#define TILE_MIX_WEIGHTS (3u * TILE_MIX_OUTPUTS * TILE_MIX_ROW)

// Where a lane's four channels of a stream lie in a row.
DEVICE u32 mix_place(u32 row, u32 stream, u32 lane) {
    return row * TILE_MIX_ROW + ((stream * 16u + lane / 2u) ^ row % 8u) * 16u + lane % 2u * 8u;
}

// The upper halves of four words.
DEVICE u64 upper_halves(const float (&x)[4]) {
    const u32 low = __byte_perm(AS_BITS(x[0]), AS_BITS(x[1]), 0x7632u), high = __byte_perm(AS_BITS(x[2]), AS_BITS(x[3]), 0x7632u);
    return low | u64(high) << 32;
}

// A slice's weights as three bf16 each: all of the first, then the second, then the third.
DEVICE void mix_weights(const HyperMixArgs& args, u8* to, u32 first, u32 thread) {
    // All of a lane's are on their way before the first is used.
    constexpr u32 EACH = TILE_MIX_OUTPUTS * 128u / TILE_MIX_LANES;
    float x[EACH][4], part[4];
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        const u32 n = thread + i * TILE_MIX_LANES, output = n / 128u, stream = n / 32u % 4u, lane = n % 32u;
        load_fours(args.weight + u64(output * 4u + stream) * args.width + first + lane * 4u, x[i]);
    }
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        const u32 n = thread + i * TILE_MIX_LANES, output = n / 128u, stream = n / 32u % 4u, lane = n % 32u;
#pragma unroll
        for (u32 p = 0; p < 3u; p++) {
#pragma unroll
            for (u32 c = 0; c < 4u; c++) {
                part[c] = AS_FLOAT(AS_BITS(x[i][c]) & 0xffff0000u);
                x[i][c] = x[i][c] - part[c];
            }
            *reinterpret_cast<u64*>(to + p * TILE_MIX_OUTPUTS * TILE_MIX_ROW + mix_place(output, stream, lane)) = upper_halves(part);
        }
    }
}

// What streams are expanded by.
#define MIX_NOTHING 0u
#define MIX_SUBLAYER 1u
#define MIX_EXPERTS 2u

// A warp has a row's bytes on their way while it works on another: the streams of its slice, then what the sublayer gave
// or the shared experts, then the first of the other experts.
#define TILE_MIX_ROOM 4608u
template <u32 BY> DEVICE constexpr u32 mix_row_bytes() { return 1024u + (BY == MIX_NOTHING ? 0u : 512u) + (BY == MIX_EXPERTS ? TILE_MIX_TERMS * 512u : 0u); }
template <u32 BY> DEVICE constexpr u32 mix_ahead() { return TILE_MIX_ROOM / mix_row_bytes<BY>(); }

// Asks for a row; `place` is that of expert `lane`.
template <u32 BY> DEVICE void mix_fetch(const HyperMixArgs& args, u64 row, u32 slice, u32 place, u32 lane, u32 to) {
#pragma unroll
    for (u32 i = 0; i < 2u; i++) {
        const u32 piece = lane + i * 32u;
        copy16(to + piece * 16u, args.streams + ((row * 4u + piece / 16u) * args.width + slice * 128u) * 2u + piece % 16u * 16u);
    }
    if (BY == MIX_NOTHING) return;
    const u64 k = slice * 128u + lane * 4u;
    copy16(to + 1024u + lane * 16u, (BY == MIX_EXPERTS ? args.shared : args.y) + row * args.width + k);
    if (BY != MIX_EXPERTS) return;
#pragma unroll
    for (u32 e = 0; e < TILE_MIX_TERMS; e++) {
        const u32 own = __shfl_sync(0xffffffffu, place, e);
        if (e < args.topk) copy16(to + 1536u + e * 512u + lane * 16u, args.routed + u64(own) * args.width + k);
    }
}

// A lane's factor of a row, of pre, post and comb[0..4][j] for each stream j; eight places a stream.
template <u32 BY> DEVICE float mix_factor(const HyperMixArgs& args, u64 row, u32 lane) {
    const u32 j = lane / 8u, which = lane % 8u;
    if (which == 0) return args.pre[row * 4u + j];
    if (BY == MIX_NOTHING || which > 5u) return 0.0f;
    if (which == 1u) return args.post[row * 4u + j];
    const u32 i = which - 2u;
    return args.comb[row * 16u + (PLANTED(FAULT_EXPAND_TRANSPOSED) ? j * 4u + i : i * 4u + j)];
}

// A lane's channels of what the sublayer gave a row.
template <u32 BY> DEVICE void mix_y(const HyperMixArgs& args, u64 row, u32 k, u32 lane, u32 from, float (&y)[4]) {
    load_floats(from + 1024u + lane * 16u, y);
    if (BY != MIX_EXPERTS) return;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (u32 e = 0; e < TILE_MIX_TERMS; e++) {
        if (e >= args.topk) continue;
        float term[4];
        load_floats(from + 1536u + e * 512u + lane * 16u, term);
#pragma unroll
        for (u32 c = 0; c < 4u; c++) sum[c] = sum[c] + term[c];
    }
#pragma unroll 1
    for (u32 e = TILE_MIX_TERMS; e < args.topk; e++) {
        float term[4];
        load_fours(args.routed + u64(args.places[row * args.topk + e]) * args.width + k, term);
#pragma unroll
        for (u32 c = 0; c < 4u; c++) sum[c] = sum[c] + term[c];
    }
#pragma unroll
    for (u32 c = 0; c < 4u; c++) y[c] = round_bf16(PLANTED(FAULT_EXPERTS_NO_SHARED) ? sum[c] : sum[c] + y[c]);
}

// A row's new streams, its collapsed row and their squares; `to` takes the streams.
template <u32 BY>
DEVICE void mix_expand(const HyperMixArgs& args, u64 row, u32 slice, u32 lane, u32 warp, u32 from, u32 factors, u8* to) {
    const u32 k = slice * 128u + lane * 4u;
    float x[4][4], y[4], sum[4] = {0.0f, 0.0f, 0.0f, 0.0f}, square = 0.0f, last = 0.0f;
#pragma unroll
    for (u32 j = 0; j < 4u; j++) {
        float two[2];
        load_pair(from + j * 256u + lane * 8u, two);
        x[j][0] = AS_FLOAT(AS_BITS(two[0]) << 16), x[j][1] = AS_FLOAT(AS_BITS(two[0]) & 0xffff0000u);
        x[j][2] = AS_FLOAT(AS_BITS(two[1]) << 16), x[j][3] = AS_FLOAT(AS_BITS(two[1]) & 0xffff0000u);
    }
    if (BY != MIX_NOTHING) mix_y<BY>(args, row, k, lane, from, y);
#pragma unroll
    for (u32 j = 0; j < 4u; j++) {
        float by[4], more[2], next[4];
        load_floats(factors + j * 32u, by);
        load_pair(factors + j * 32u + 16u, more);
        const float comb[4] = {by[2], by[3], more[0], more[1]};
#pragma unroll
        for (u32 c = 0; c < 4u; c++) {
            next[c] = x[j][c];
            if (BY == MIX_NOTHING) continue;
            next[c] = by[1] * y[c];
#pragma unroll
            for (u32 i = 0; i < 4u; i++) next[c] = FMA(comb[i], x[i][c], next[c]);
            next[c] = round_bf16(next[c]);
        }
        const u64 halves = upper_halves(next);
        if (BY != MIX_NOTHING) *reinterpret_cast<u64*>(args.streams + ((row * 4u + j) * args.width + k) * 2u) = halves;
        *reinterpret_cast<u64*>(to + mix_place(warp, j, lane)) = halves;
#pragma unroll
        for (u32 c = 0; c < 4u; c++) sum[c] = FMA(by[0], next[c], sum[c]), square = FMA(next[c], next[c], square);
    }
#pragma unroll
    for (u32 c = 0; c < 4u; c++) sum[c] = round_bf16(sum[c]), last = FMA(sum[c], sum[c], last);
    store_kept_fours(sum, (GLOBAL u8*)args.collapsed, row * args.width + k, 1u);
    square = warp_sum(square), last = warp_sum(last);
    GLOBAL float* parts = args.parts + (row * (args.width / 128u) + slice) * (TILE_MIX_OUTPUTS + 2u) + TILE_MIX_OUTPUTS;
    if (lane < 2u) parts[lane] = lane == 0 ? square : last;
}

// Eight outputs of the sixteen rows, of one stream.
DEVICE void mix_multiply(u32 weights, u32 rows, u32 stream, u32 tile, u32 lane, float (&sum)[4]) {
    float part[3][4] = {};
    const u32 row = lane % 16u, output = tile * 8u + lane % 8u;
#pragma unroll
    for (u32 s = 0; s < 8u; s += 2u) {
        u32 a[2][4];
#pragma unroll
        for (u32 i = 0; i < 2u; i++) load_parts(rows + row * TILE_MIX_ROW + ((stream * 16u + (s + i) * 2u + lane / 16u) ^ row % 8u) * 16u, a[i]);
#pragma unroll
        for (u32 p = 0; p < 3u; p++) {
            u32 b[4];
            load_parts(weights + (p * TILE_MIX_OUTPUTS + output) * TILE_MIX_ROW + ((stream * 16u + s * 2u + lane / 8u) ^ output % 8u) * 16u, b);
            multiply(part[p], a[0], b[0], b[1]);
            multiply(part[p], a[1], b[2], b[3]);
        }
    }
#pragma unroll
    for (u32 i = 0; i < 4u; i++) sum[i] = (part[2][i] + part[1][i]) + part[0][i];
}

// What a group has of shared memory.
struct MixRoom {
    u8* weights;
    u8* fresh;
    // The warp's own: rows on their way, and a row's factors.
    u32 rows, factors;
    float (*sums)[TILE_MIX_ROWS][TILE_MIX_OUTPUTS];
};

template <u32 BY> DEVICE void mix_rows(const HyperMixArgs& args, const MixRoom& room, u32 slice, u32 first, u32 end, u32 thread) {
    constexpr u32 AHEAD_ROWS = mix_ahead<BY>() * TILE_MIX_ROWS;
    const u32 lane = thread % 32u, warp = thread / 32u;
    const auto place_of_row = [&](u32 row) { return BY == MIX_EXPERTS && row < end && lane < args.topk ? args.places[row * args.topk + lane] : 0u; };
    u32 row = first + warp, at = 0;
#pragma unroll
    for (u32 i = 0; i < mix_ahead<BY>(); i++) {
        const u32 next = row + i * TILE_MIX_ROWS, place = place_of_row(next);
        if (next < end) mix_fetch<BY>(args, next, slice, place, lane, room.rows + i * mix_row_bytes<BY>());
        copies_commit();
    }
    float factor = row < end ? mix_factor<BY>(args, row, lane) : 0.0f;
    u32 place = place_of_row(row + AHEAD_ROWS);
#pragma unroll 1
    for (u32 turn = first; turn < end; turn += TILE_MIX_ROWS, row += TILE_MIX_ROWS) {
        copies_wait<mix_ahead<BY>() - 1u>();
        store_word(room.factors + lane * 4u, AS_BITS(factor));
        __syncwarp();
        if (row + TILE_MIX_ROWS < end) factor = mix_factor<BY>(args, row + TILE_MIX_ROWS, lane);
        if (row < end) mix_expand<BY>(args, row, slice, lane, warp, room.rows + at, room.factors, room.fresh);
        __syncwarp();
        // Another row comes where this one was.
        if (row + AHEAD_ROWS < end) mix_fetch<BY>(args, row + AHEAD_ROWS, slice, place, lane, room.rows + at);
        copies_commit();
        place = place_of_row(row + AHEAD_ROWS + TILE_MIX_ROWS);
        at = at + mix_row_bytes<BY>() < mix_ahead<BY>() * mix_row_bytes<BY>() ? at + mix_row_bytes<BY>() : 0;
        if (!PLANTED(FAULT_HYPER_MISSING_BARRIER)) __syncthreads();
        if (warp < 12u) {
            const u32 stream = warp % 4u, tile = warp / 4u, g = lane / 4u, t = lane % 4u;
            float sum[4];
            mix_multiply(shared_address(room.weights), shared_address(room.fresh), stream, tile, lane, sum);
#pragma unroll
            for (u32 i = 0; i < 4u; i++) room.sums[stream][g + i / 2u * 8u][tile * 8u + 2u * t + i % 2u] = sum[i];
        }
        __syncthreads();
        if (thread < TILE_MIX_ROWS * TILE_MIX_OUTPUTS && turn + thread / TILE_MIX_OUTPUTS < end) {
            const u32 r = thread / TILE_MIX_OUTPUTS, o = thread % TILE_MIX_OUTPUTS;
            const float third = room.sums[2][r][o], high = PLANTED(FAULT_HYPER_DROPPED_STREAM) ? third : third + room.sums[3][r][o];
            args.parts[(u64(turn + r) * (args.width / 128u) + slice) * (TILE_MIX_OUTPUTS + 2u) + o] = (room.sums[0][r][o] + room.sums[1][r][o]) + high;
        }
    }
}

CUDA_KERNEL_AHEAD(tile_hyper_mix, HyperMixArgs, 512, 1) {
    LAUNCH_SHARED(uint4, tile_shared);
    GROUP_SHARED(float, sums, [4][TILE_MIX_ROWS][TILE_MIX_OUTPUTS]);
    GROUP_SHARED(float4, factors, [TILE_MIX_ROWS][8]);
    const u32 thread = LANE, warp = thread / 32u, slice = GROUP_X;
    u8* weights = reinterpret_cast<u8*>(tile_shared);
    u8* fresh = weights + TILE_MIX_WEIGHTS;
    const MixRoom room = {weights, fresh, shared_address(fresh + TILE_MIX_ROWS * TILE_MIX_ROW + warp * TILE_MIX_ROOM), shared_address(factors[warp]), sums};
    mix_weights(args, weights, slice * 128u, thread);
    LAUNCHES_BEFORE();
    const u32 first = GROUP_Y * args.rows_each;
    const u32 end = first + args.rows_each < args.rows ? first + args.rows_each : args.rows;
    if (args.expand == 0) mix_rows<MIX_NOTHING>(args, room, slice, first, end, thread);
    else if (args.routed) mix_rows<MIX_EXPERTS>(args, room, slice, first, end, thread);
    else mix_rows<MIX_SUBLAYER>(args, room, slice, first, end, thread);
}
