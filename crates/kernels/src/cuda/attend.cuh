// Attention on the tensor cores, for rows of at most TILE_KEYS keys of TILE_DIM channels and heads in
// sixteens: the sum of attend.h, its queries rotated first and its outputs rotated back.
//
// A score is one chain of 32 products of 16 channels: step 4 j + i of lane (g, t) takes words 2 i and
// 2 i + 1 of its channels 64 j + 16 t on. e_k = exp(s_k - m) with m over all keys and the sink; lane l
// of 32 adds the e of keys k % 32 == l ascending, then warp_sum, then the sink's share. A weight enters
// the mix as two bf16, e to the nearest and what is left of it to the nearest: 17 bits. A channel is one
// chain over the keys ascending, 16 a step, the high parts of a step before its low ones. Keys are counted
// with the window's part filled up to a multiple of 32 by keys of no weight.
//
// Few rows take two launches: `tile_attend_scores`, a group for 16 heads and 64 keys of a row, and
// `tile_attend_mix`, a group for 16 heads and 64 channels. Many rows take `tile_attend_many`, a group
// for 64 heads of a row. Both do exactly these chains, so a row has the same bits in both.
#pragma once

#define TILE_DIM 512u
#define TILE_KEYS 640u
#define TILE_PAIRS 32u
#define TILE_ROPE (TILE_DIM - 2u * TILE_PAIRS)

// The keys of a row: `windows` of its window, none up to `padded`, then its picks up to `count`.
struct TileKeys {
    KeyList list;
    u32 windows, padded, count;
    u64 row;
};

DEVICE TileKeys tile_keys(const TileAttendArgs& args, u64 row) {
    TileKeys k;
    k.list = keys_of(args.rows, row, args.window, args.draft);
    k.windows = k.list.last + 1u - k.list.first;
    k.padded = (k.windows + 31u) / 32u * 32u;
    k.count = k.padded + (args.n_picks ? args.n_picks[row] : 0);
    if (k.count > TILE_KEYS) k.count = TILE_KEYS;
    k.row = row;
    return k;
}

// The key past the last of those from a multiple of 32 on that are of a kind with it.
DEVICE u32 keys_until(const TileKeys& keys, u32 first) { return first < keys.padded ? keys.windows : keys.count; }

// Where a key lies, as a word: which rows, and the row among them.
#define KEY_NONE 0u
#define KEY_RING 1u
#define KEY_FRESH 2u
#define KEY_POOL 3u
DEVICE u32 place_word(u32 kind, u64 row) { return kind << 30 | u32(row); }

DEVICE u32 window_place(const TileAttendArgs& args, const TileKeys& keys, u32 k) {
    const KeyList& list = keys.list;
    const u32 position = list.first + k;
    if (position >= list.span_start) return place_word(KEY_FRESH, u64(list.span_first) + position - list.span_start);
    return place_word(KEY_RING, u64(list.slot) * args.ring_rows + position % args.ring_rows);
}

DEVICE u32 pick_of(const TileAttendArgs& args, const TileKeys& keys, u32 k) {
    if (k < keys.padded || k >= keys.count) return NO_PICK;
    const u32 j = args.picks[keys.row * args.picks_stride + k - keys.padded];
    return PLANTED(FAULT_ATTEND_WRONG_PICK) ? j ^ 1u : j;
}

DEVICE u32 place_of_key(const TileAttendArgs& args, const TileKeys& keys, u32 k, u32 pick) {
    if (pick != NO_PICK)
        return place_word(KEY_POOL, pool_row(args.blocks, keys.list.slot, args.blocks_stride, args.rows_per_block, pick));
    return k < keys.windows ? window_place(args, keys, k) : place_word(KEY_NONE, 0);
}

// The places of all keys of a row, by so many threads: loads of a kind are on their way together.
template <u32 THREADS> DEVICE void place_keys(const TileAttendArgs& args, const TileKeys& keys, u32* places, u32 thread) {
    constexpr u32 EACH = (TILE_KEYS + THREADS - 1u) / THREADS;
    u32 pick[EACH];
#pragma unroll
    for (u32 i = 0; i < EACH; i++) pick[i] = pick_of(args, keys, thread + THREADS * i);
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        const u32 k = thread + THREADS * i;
        if (k < TILE_KEYS) places[k] = place_of_key(args, keys, k, pick[i]);
    }
}

// Sixteen channels of a key of the pool or of a window: codes and scale.
struct Chunk {
    uint4 codes;
    u32 scale, place;
};

DEVICE void load_chunk(Chunk& c, const TileAttendArgs& args, bool pool, u32 place, u32 chunk) {
    c.place = place;
    const u64 at = place & 0x3fffffffu;
    if (pool) {
        const u8* row = args.pool + at * compressed_bytes(TILE_DIM);
        const uint2 codes = *reinterpret_cast<const uint2*>(row + chunk * 8u);
        c.codes.x = codes.x, c.codes.y = codes.y;
        c.scale = row[TILE_DIM / 2u + chunk];
    } else {
        const u8* row = (place >> 30 == KEY_RING ? args.ring : args.fresh) + at * window_bytes(TILE_DIM);
        c.codes = *reinterpret_cast<const uint4*>(row + chunk * 16u);
        c.scale = row[TILE_DIM + chunk / 2u];
    }
}

DEVICE void lift_chunk16(const Chunk& c, bool pool, u32* out) {
    Factor by;
    if (pool) {
        spread_e2m1(c.codes.x, out);
        spread_e2m1(c.codes.y, out + 4);
        by = factor_compressed(c.scale);
    } else {
        spread_e4m3(c.codes.x, c.codes.y, out);
        spread_e4m3(c.codes.z, c.codes.w, out + 4);
        by = factor_window(c.scale);
    }
    if (c.place >> 30 == KEY_NONE) by.scale = 0u;
    finish_lift<8>(out, by);
}

// Cosines and sines of eight channels from c on; none where the channels are not rotated.
struct Angles {
    float cos[4], sin[4];
    bool there;
};
DEVICE Angles angles_of(const TileAttendArgs& args, u64 row, u32 c) {
    Angles by;
    by.there = c >= TILE_ROPE && args.cos;
    if (!by.there) return by;
    const u64 at = row * TILE_PAIRS + (c - TILE_ROPE) / 2u;
#pragma unroll
    for (u32 i = 0; i < 4u; i++) by.cos[i] = args.cos[at + i], by.sin[i] = args.sin[at + i];
    return by;
}

// Eight channels of a query from c on.
DEVICE void load_query(const TileAttendArgs& args, u64 row, u32 head, u32 c, float (&x)[8]) {
    if (PLANTED(FAULT_ATTEND_NEIGHBOUR_HEAD)) head ^= 1u;
    const float* from = args.q + (row * args.heads + head) * TILE_DIM + c;
    const float4 low = *reinterpret_cast<const float4*>(from);
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}
// The same rotated, as four words.
DEVICE void pack_query(float (&x)[8], const Angles& by, u32* out) {
    if (by.there) {
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            const float even = x[2u * i], odd = x[2u * i + 1u];
            x[2u * i] = even * by.cos[i] - odd * by.sin[i];
            x[2u * i + 1u] = even * by.sin[i] + odd * by.cos[i];
        }
    }
#pragma unroll
    for (u32 i = 0; i < 4u; i++) out[i] = pair_bf16(x[i], x[i + 4u]);
}

// A weight's two parts, the high one in the high half.
DEVICE u32 split_weight(float e) {
    const u32 high = pair_bf16(e, 0.0f) & 0xffffu;
    const float rest = e - lift_bf16(high);
    return (high << 16) | (pair_bf16(rest, 0.0f) & 0xffffu);
}

// e^x by the device's own power of two: a relative error of 2^-22 and of |x| 2^-24.
DEVICE float exp_fast(float x) { return exp2_fast(x * 1.44269504088896340736f); }

// The weights of one head from its scores, lane l's being keys l, l + 32, .. and minus infinity where there
// is no key; gives 1 / the divisor.
DEVICE float tile_weights(float* s, float sink) {
    float top = PLANTED(FAULT_ATTEND_NO_SINK) ? -1e30f : sink;
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 32u; i++) top = max_of(s[i], top);
    for (u32 apart = 16u; apart > 0; apart /= 2u) top = max_of(SHUFFLE_XOR(top, apart), top);
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 32u; i++) {
        s[i] = exp_fast(s[i] - top);
        sum = sum + s[i];
    }
    return 1.0f / (warp_sum(sum) + (PLANTED(FAULT_ATTEND_NO_SINK) ? 0.0f : exp_fast(sink - top)));
}

// Where the weight of a key of a head lies in its shared rows: lanes of a load meet no bank twice.
DEVICE u32 weight_at(u32 head, u32 key) { return head * TILE_KEYS + (key ^ ((head & 3u) << 3)); }

// The weights of 16 heads and 16 keys as operands: the high parts and the low parts.
// `weights` are those of the step's 32 keys, `at` the places of the lane's keys in its two eights.
DEVICE void load_weights(const u32* weights, const u32* at, u32* high, u32* low) {
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        const uint2 w = *reinterpret_cast<const uint2*>(weights + 8u * (i & 1u) * TILE_KEYS + at[i >> 1]);
        high[i] = __byte_perm(w.x, w.y, 0x7632);
        low[i] = __byte_perm(w.x, w.y, 0x5410);
    }
}

// Eight channels from c on of a head, rotated back, to bf16.
DEVICE void store_eight(const TileAttendArgs& args, u64 row, u32 head, u32 c, const float (&x)[8], const Angles& by) {
    u32 word[4];
#pragma unroll
    for (u32 i = 0; i < 4u; i++) word[i] = pair_bf16(x[2u * i], x[2u * i + 1u]);
    if (by.there) {
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            const float even = lift_bf16(word[i] & 0xffffu), odd = lift_bf16(word[i] >> 16);
            const float cos = by.cos[i], sin = PLANTED(FAULT_ROPE_NOT_INVERSE) ? by.sin[i] : -by.sin[i];
            word[i] = pair_bf16(even * cos - odd * sin, even * sin + odd * cos);
        }
    }
    reinterpret_cast<uint4*>(args.out)[((row * args.heads + head) * TILE_DIM + c) / 8u] =
        make_uint4(word[0], word[1], word[2], word[3]);
}

// `known`: the keys and the picks were there before the launch before.
CUDA_KERNEL_BY_ITSELF(tile_attend_scores, TileAttendArgs, 256) {
    GROUP_SHARED(uint4, query, [32 * 32]);
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u;
    const u32 blocks16 = args.heads / 16u;
    const u32 head0 = GROUP_X % blocks16 * 16u, key0 = GROUP_X / blocks16 * 64u;
    const u64 row = GROUP_Y;
    if (!args.known) {
        LAUNCHES_BEFORE();
    }
    // What comes from here on finds the keys and the picks.
    NEXT_MAY_COME();
    // A lane's parts of the queries: eight channels of two heads, twice. The last channels are turned.
    const u32 c0 = warp / 2u * 64u + t * 16u + warp % 2u * 8u, c1 = c0 + 256u;
    const Angles by = angles_of(args, row, c1);
    const TileKeys keys = tile_keys(args, row);
    if (key0 >= keys.count) {
        LAUNCHES_BEFORE();
        return;
    }
    const u32 key = key0 + warp * 8u + g;
    const u32 place = place_of_key(args, keys, key, pick_of(args, keys, key));
    // A warp's eight keys are of one kind; past the last there may be no pool to read from.
    const u32 eight = key0 + warp * 8u;
    const bool pool = eight >= keys.padded && eight < keys.count;
    u32 b[8][8];
    {
        Chunk chunk[8];
#pragma unroll
        for (u32 j = 0; j < 8u; j++) load_chunk(chunk[j], args, pool, place, 4u * j + t);
#pragma unroll
        for (u32 j = 0; j < 8u; j++) lift_chunk16(chunk[j], pool, b[j]);
    }
    if (args.known) {
        LAUNCHES_BEFORE();
    }
    float x[4][8];
#pragma unroll
    for (u32 i = 0; i < 4u; i++) load_query(args, row, head0 + g + 8u * (i % 2u), i < 2u ? c0 : c1, x[i]);
    // Eight channels of a head are two steps of one lane's words.
#pragma unroll
    for (u32 i = 0; i < 2u; i++) {
        u32 low[4], high[4];
        Angles own = by;
        own.there = i > 0 && by.there;
        pack_query(x[2u * i], own, low);
        pack_query(x[2u * i + 1u], own, high);
        const u32 step = warp * 2u + i * 16u;
        query[step * 32u + lane] = make_uint4(low[0], high[0], low[1], high[1]);
        query[(step + 1u) * 32u + lane] = make_uint4(low[2], high[2], low[3], high[3]);
    }
    __syncthreads();
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (u32 step = 0; step < 32u; step++) {
        const uint4 q = query[step * 32u + lane];
        const u32 a[4] = {q.x, q.y, q.z, q.w};
        multiply(sum, a, b[step / 4u][step % 4u * 2u], b[step / 4u][step % 4u * 2u + 1u]);
    }
    float* to = args.scores + (row * args.heads + head0 + g) * TILE_KEYS + key0 + warp * 8u + 2u * t;
    *reinterpret_cast<float2*>(to) = make_float2(sum[0] * args.scale, sum[1] * args.scale);
    *reinterpret_cast<float2*>(to + 8u * TILE_KEYS) = make_float2(sum[2] * args.scale, sum[3] * args.scale);
}

// The mix's tile: rows of a key's 64 channels, 128 bytes whose 16-byte piece p lies at p ^ (key % 8). There is room
// for four parts of 128 keys, so that a processor has room for two groups; a fifth part takes the place of the first.
#define MIX_CHANNELS 64u
#define MIX_PART 128u
#define MIX_KEYS (4u * MIX_PART)
#define MIX_SHARED (MIX_KEYS * 128u + 16u * TILE_KEYS * 4u + 64u + TILE_KEYS * 4u)

// Lifts a lane's chunk of a key to its place.
DEVICE void lift_mixed(const Chunk& chunk, const TileKeys& keys, u32 key, u8* tile, u32 x) {
    u32 word[8];
    lift_chunk16(chunk, key >= keys.padded, word);
    uint4* to = reinterpret_cast<uint4*>(tile + key % MIX_KEYS * 128u);
    to[(2u * x) ^ (key % 8u)] = make_uint4(word[0], word[1], word[2], word[3]);
    to[(2u * x + 1u) ^ (key % 8u)] = make_uint4(word[4], word[5], word[6], word[7]);
}

// Adds the products of S steps of 16 keys to a warp's eight channels.
template <u32 S> DEVICE void mix_steps(float (&sum)[4], const u32* weights, const u32 (&places)[4], u32 tile) {
    u32 b[4];
    load_transposed(tile, b);
#pragma unroll
    for (u32 i = 0; i < S; i++) {
        u32 high[4], low[4];
        load_weights(weights, places + 2u * i, high, low);
        multiply(sum, high, b[2u * i], b[2u * i + 1u]);
        multiply(sum, low, b[2u * i], b[2u * i + 1u]);
    }
}

CUDA_KERNEL_AHEAD(tile_attend_mix, TileAttendArgs, 512, 2) {
    LAUNCH_SHARED(uint4, tile_shared);
    u8* tile = reinterpret_cast<u8*>(tile_shared);
    u32* weights = reinterpret_cast<u32*>(tile + MIX_KEYS * 128u);
    float* divisor = reinterpret_cast<float*>(weights + 16u * TILE_KEYS);
    u32* places = reinterpret_cast<u32*>(divisor + 16);
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u;
    const u32 blocks16 = args.heads / 16u;
    const u32 head0 = GROUP_X % blocks16 * 16u, slice = GROUP_X / blocks16;
    const u64 row = GROUP_Y;
    const TileKeys keys = tile_keys(args, row);
    u32 steps = (keys.count + 15u) / 16u;
    // Keys and picks were there before the scores.
    place_keys<512u>(args, keys, places, LANE);
    const float sink = args.sinks[head0 + warp];
    __syncthreads();
    // All of a lane's chunks are on their way before the first is used.
    const u32 PARTS = TILE_KEYS / MIX_PART, x = LANE % 4u, own = LANE / 4u;
    Chunk chunk[PARTS];
#pragma unroll
    for (u32 i = 0; i < PARTS; i++)
        if (own + MIX_PART * i < steps * 16u)
            load_chunk(chunk[i], args, own + MIX_PART * i >= keys.padded, places[own + MIX_PART * i], slice * 4u + x);
#pragma unroll
    for (u32 i = 0; i < PARTS - 1u; i++)
        if (own + MIX_PART * i < steps * 16u) lift_mixed(chunk[i], keys, own + MIX_PART * i, tile, x);
    LAUNCHES_BEFORE();
    {
        const float* from = args.scores + (row * args.heads + head0 + warp) * TILE_KEYS + lane;
        u32* to = weights + weight_at(warp, lane);
        float s[TILE_KEYS / 32u];
#pragma unroll
        for (u32 i = 0; i < TILE_KEYS / 32u; i++)
            s[i] = i * 32u + lane < keys_until(keys, i * 32u) ? from[i * 32u] : -infinity();
        const float all = tile_weights(s, sink);
        if (lane == 0) divisor[warp] = all;
#pragma unroll
        for (u32 i = 0; i < TILE_KEYS / 32u; i++) to[i * 32u] = split_weight(s[i]);
    }
    __syncthreads();
    // Eight channels for each of eight warps; a load brings the operands of two steps.
    float sum[4] = {};
    const u32 from = shared_address(tile) + lane * 128u + (((warp % 8u) ^ (lane % 8u)) << 4);
    u32 places_in[4];
#pragma unroll
    for (u32 i = 0; i < 4u; i++) places_in[i] = weight_at(g, 8u * i + 2u * t);
    const bool fifth = steps * 16u > MIX_KEYS;
    if (PLANTED(FAULT_ATTEND_DROPPED_KEY) && steps > 1u) steps -= 1u;
    const auto mix = [&](u32 step, u32 end) {
        if (warp >= 8u) return;
        end = end < steps ? end : steps;
#pragma unroll 4
        for (; step + 2u <= end; step += 2u)
            mix_steps<2u>(sum, weights + step * 16u, places_in, from + step * 16u % MIX_KEYS * 128u);
        if (step < end) mix_steps<1u>(sum, weights + step * 16u, places_in, from + step * 16u % MIX_KEYS * 128u);
    };
    mix(0, MIX_PART / 16u);
    if (fifth) {
        __syncthreads();
        const u32 key = own + MIX_KEYS;
        if (key < (keys.count + 15u) / 16u * 16u) lift_mixed(chunk[PARTS - 1u], keys, key, tile, x);
    }
    mix(MIX_PART / 16u, MIX_KEYS / 16u);
    if (fifth) {
        __syncthreads();
        mix(MIX_KEYS / 16u, TILE_KEYS / 16u);
    }
    __syncthreads();
    float* out = reinterpret_cast<float*>(tile);
    if (warp < 8u) {
        const float by[2] = {divisor[g], divisor[g + 8u]};
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            // Column 2 t + (i & 1) of a tile is channel t or t + 4 of its eight.
            const u32 c = warp * 8u + t + 4u * (i & 1u);
            out[(g + 8u * (i >> 1)) * MIX_CHANNELS + c] = sum[i] * by[i >> 1];
        }
    }
    __syncthreads();
    if (LANE < 16u * MIX_CHANNELS / 8u) {
        const u32 head = LANE / 8u, c = LANE % 8u * 8u;
        float y[8];
        load_floats(shared_address(out + head * MIX_CHANNELS + c), y);
        load_floats(shared_address(out + head * MIX_CHANNELS + c + 4u), y + 4);
        const u32 channel = slice * MIX_CHANNELS + c;
        store_eight(args, row, head0 + head, channel, y, angles_of(args, row, channel));
    }
}

#ifdef HOPPER
// A tile is 32 keys: for each 64 channels rows of 128 bytes, a key each, whose 16-byte piece p lies at
// p ^ (key % 8). Word t of piece p is word p of the key's chunk t of those channels, so that the rows are the
// scores' right operand as they lie, and the mix's by columns.
//
// Each of the two warpgroups lifts what it multiplies: for the scores every other tile, for the mix its half of
// the channels of every tile, in two places in turn. So one multiplies while the other lifts.
#define MANY_BLOCK (32u * 128u)
#define MANY_TILE (TILE_DIM / 64u * MANY_BLOCK)
#define MANY_HEADS 64u

// Where the mix's right operand begins: 64 columns lie a block apart, eight keys 1024 bytes.
DEVICE u64 columns_descriptor(u32 at) {
    return u64((at & 0x3ffffu) >> 4) | (u64(MANY_BLOCK / 16u) << 16) | (u64(64u) << 32) | (u64(1u) << 62);
}

// A lane's part of N blocks of 64 channels: 16 of each, of one key. The codes lie in fours or twos of words, the
// scales of the key's blocks one after another.
template <u32 N> struct TilePart {
    u32 codes[N][4], scales[N], place;
};
template <u32 N>
DEVICE void load_part(TilePart<N>& part, const TileAttendArgs& args, bool pool, u32 place, u32 block) {
    const u64 at = place & 0x3fffffffu;
    const u32 t = LANE % 4u;
    part.place = place;
    if (pool) {
        const u8* row = args.pool + at * compressed_bytes(TILE_DIM) + block * 32u + t * 8u;
        const u8* scales = args.pool + at * compressed_bytes(TILE_DIM) + TILE_DIM / 2u + block * 4u;
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            const uint2 codes = *reinterpret_cast<const uint2*>(row + i * 32u);
            part.codes[i][0] = codes.x, part.codes[i][1] = codes.y;
        }
#pragma unroll
        for (u32 i = 0; i < N; i += 4u) {
            const uint4 four = *reinterpret_cast<const uint4*>(scales + i * 4u);
            part.scales[i] = four.x, part.scales[i + 1u] = four.y, part.scales[i + 2u] = four.z, part.scales[i + 3u] = four.w;
        }
    } else {
        const u8* row = (place >> 30 == KEY_RING ? args.ring : args.fresh) + at * window_bytes(TILE_DIM);
        const u8* codes = row + block * 64u + t * 16u;
        const u8* scales = row + TILE_DIM + block * 2u;
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            const uint4 four = *reinterpret_cast<const uint4*>(codes + i * 64u);
            part.codes[i][0] = four.x, part.codes[i][1] = four.y, part.codes[i][2] = four.z, part.codes[i][3] = four.w;
        }
#pragma unroll
        for (u32 i = 0; i < N; i += 4u) {
            const uint2 two = *reinterpret_cast<const uint2*>(scales + i * 2u);
            part.scales[i / 2u] = two.x, part.scales[i / 2u + 1u] = two.y;
        }
    }
}
template <u32 N, bool POOL> DEVICE void store_kind(const TilePart<N>& part, const u32 (&to)[8]) {
    const bool none = part.place >> 30 == KEY_NONE;
    const u32 t = LANE % 4u;
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        u32 word[8];
        Factor by;
        if (POOL) {
            spread_e2m1(part.codes[i][0], word);
            spread_e2m1(part.codes[i][1], word + 4);
            by = factor_compressed(__byte_perm(part.scales[i], 0u, 0x4440u | t));
        } else {
            spread_e4m3(part.codes[i][0], part.codes[i][1], word);
            spread_e4m3(part.codes[i][2], part.codes[i][3], word + 4);
            by = factor_window(__byte_perm(part.scales[i / 2u], 0u, 0x4440u | (i % 2u * 2u + t / 2u)));
        }
        if (none) by.scale = 0u;
        finish_lift<8>(word, by);
#pragma unroll
        for (u32 p = 0; p < 8u; p++) store_word(to[p] + i * MANY_BLOCK, word[p]);
    }
}
template <u32 N> DEVICE void store_part(const TilePart<N>& part, bool pool, u8* blocks, u32 key) {
    u32 to[8];
#pragma unroll
    for (u32 p = 0; p < 8u; p++) to[p] = shared_address(blocks) + key * 128u + LANE % 4u * 4u + ((p ^ key % 8u) << 4);
    if (pool) store_kind<N, true>(part, to);
    else store_kind<N, false>(part, to);
}

// What all lanes of a warp have alike, as a word that the compiler knows to be so.
DEVICE u32 alike(u32 word) { return __shfl_sync(0xffffffffu, word, 0u); }

// The lanes of a warpgroup meet; what they stored may be multiplied.
DEVICE void group_meets(u32 signal, u32& parity) {
    copies_shown();
    warp_arrives<1u>(signal);
    signal_wait(signal, parity);
    parity ^= 1u;
}

// Adds the products of S steps of a tile to half of the channels.
template <u32 S> DEVICE void add_steps(float (&sum)[128], const u32* weights, const u32* places, u64 b, u32 at) {
    u32 high[S][4], low[S][4];
#pragma unroll
    for (u32 step = 0; step < S; step++) load_weights(weights, places + 2u * step, high[step], low[step]);
    group_begin();
#pragma unroll
    for (u32 step = 0; step < S; step++) {
        multiply_columns(sum, high[step], b + step * 128u, at + step > 0);
        multiply_columns(sum, low[step], b + step * 128u, true);
    }
    group_commit();
}

CUDA_FULL_KERNEL(tile_attend_many, TileAttendArgs, 256) {
    LAUNCH_SHARED(__align__(1024) u8, tiles);
    u32* weights = reinterpret_cast<u32*>(tiles + 2u * MANY_TILE);
    float* scores = reinterpret_cast<float*>(weights);
    float* divisor = reinterpret_cast<float*>(weights + MANY_HEADS * TILE_KEYS);
    u32* places = reinterpret_cast<u32*>(divisor + MANY_HEADS);
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u;
    // A warpgroup has all heads: 16 a warp.
    const u32 half = warp / 4u, head = warp % 4u * 16u;
    const u32 signal = shared_address(places + TILE_KEYS) + half * 8u;
    u32 parity = 0;
    const u64 row = GROUP_Y;
    const u32 head0 = GROUP_X * MANY_HEADS;
    if (LANE % 128u == 0) {
        signal_new(signal, 4u * WARP_ARRIVALS);
        signals_made();
    }
    dependents_may_start();
    wait_for_launches_before();
    const TileKeys keys = tile_keys(args, row);
    const u32 steps = (alike(keys.count) + 15u) / 16u, n_tiles = (steps + 1u) / 2u, padded = alike(keys.padded);
    const u32 own = warp % 4u * 8u + g;
    place_keys<256u>(args, keys, places, LANE);
    __syncthreads();
    u8* tile = tiles + half * MANY_TILE;
    {
        TilePart<8u> part;
        if (half < n_tiles) load_part(part, args, half * 32u >= padded, places[half * 32u + own], 0);
        // The queries stay in registers.
        u32 a[32][4];
#pragma unroll
        for (u32 j = 0; j < 8u; j++)
#pragma unroll
            for (u32 eight = 0; eight < 2u; eight++)
#pragma unroll
                for (u32 m = 0; m < 2u; m++) {
                    const u32 c = 64u * j + 16u * t + 8u * m;
                    float x[8];
                    u32 word[4];
                    load_query(args, row, head0 + head + g + 8u * eight, c, x);
                    pack_query(x, angles_of(args, row, c), word);
                    a[4u * j + 2u * m][eight] = word[0], a[4u * j + 2u * m][eight + 2u] = word[1];
                    a[4u * j + 2u * m + 1u][eight] = word[2], a[4u * j + 2u * m + 1u][eight + 2u] = word[3];
                }
        for (u32 at = 0; at < n_tiles; at += 2u) {
            // Past the last tile its keys once more, for nothing.
            const u32 mine = at + half, next = mine + 2u;
            if (mine < n_tiles) store_part(part, mine * 32u >= padded, tile, own);
            if (next < n_tiles) load_part(part, args, next * 32u >= padded, places[next * 32u + own], 0);
            group_meets(signal, parity);
            const u64 b = rows_descriptor(shared_address(tile));
            float sum[16];
            group_begin();
#pragma unroll
            for (u32 i = 0; i < 32u; i++) multiply_rows<32u>(sum, a[i], b + i / 4u * (MANY_BLOCK / 16u) + i % 4u * 2u, i > 0);
            group_commit();
            group_wait();
            if (mine < n_tiles)
#pragma unroll
                for (u32 n = 0; n < 4u; n++)
#pragma unroll
                    for (u32 eight = 0; eight < 2u; eight++) {
                        const u32 to = weight_at(head + g + 8u * eight, mine * 32u + 8u * n + 2u * t);
                        *reinterpret_cast<float2*>(scores + to) =
                            make_float2(sum[4u * n + 2u * eight] * args.scale, sum[4u * n + 2u * eight + 1u] * args.scale);
                    }
            // No warp multiplies what the next tile replaces.
            group_meets(signal, parity);
        }
    }
    __syncthreads();
    // The first tile of the mix is on its way while the weights are made.
    TilePart<4u> part;
    load_part(part, args, false, places[own], half * 4u);
    u32 there = 0;
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 32u; i++) there |= (i * 32u + lane < keys_until(keys, i * 32u) ? 1u : 0u) << i;
    for (u32 h = warp * 8u; h < warp * 8u + 8u; h++) {
        const u32 at = weight_at(h, lane);
        float s[TILE_KEYS / 32u];
#pragma unroll
        for (u32 i = 0; i < TILE_KEYS / 32u; i++) s[i] = (there >> i & 1u) != 0 ? scores[at + i * 32u] : -infinity();
        const float all = tile_weights(s, args.sinks[head0 + h]);
        if (lane == 0) divisor[h] = all;
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < TILE_KEYS / 32u; i++)
            weights[at + i * 32u] = split_weight(s[i]);
    }
    // Lifts half of a tile's channels, and asks for the next one's.
    const auto lift = [&](u32 at) {
        store_part(part, at * 32u >= padded, tile + at % 2u * (MANY_TILE / 2u), own);
        const u32 next = 32u * (at + 1u);
        if (at + 1u < n_tiles) load_part(part, args, next >= padded, places[own + next], half * 4u);
    };
    lift(0);
    __syncthreads();
    group_meets(signal, parity);
    float sum[128];
    u32 places_in[4];
#pragma unroll
    for (u32 i = 0; i < 4u; i++) places_in[i] = weight_at(g, 8u * i + 2u * t);
    const u32* own_weights = weights + head * TILE_KEYS;
    const u64 b = columns_descriptor(shared_address(tile));
    for (u32 at = 0; at < steps / 2u; at++) {
        add_steps<2u>(sum, own_weights + at * 32u, places_in, b + at % 2u * (MANY_TILE / 32u), at);
        if (at + 1u < n_tiles) lift(at + 1u);
        group_wait();
        group_meets(signal, parity);
    }
    // The last tile may have half of its keys.
    for (u32 at = steps / 2u; at < n_tiles; at++) {
        add_steps<1u>(sum, own_weights + at * 32u, places_in, b + at % 2u * (MANY_TILE / 32u), at);
        group_wait();
    }
    // A lane has 16 channels in a row of each 64.
#pragma unroll
    for (u32 eight = 0; eight < 2u; eight++) {
        const u32 own_head = head + g + 8u * eight;
        const float by = divisor[own_head];
#pragma unroll
        for (u32 n = 0; n < 8u; n++) {
            float x[8];
#pragma unroll
            for (u32 i = 0; i < 8u; i++) x[i] = sum[(n * 4u + i % 4u) * 4u + 2u * eight + i / 4u] * by;
            const u32 c = half * 256u + n / 2u * 64u + t * 16u + n % 2u * 8u;
            store_eight(args, row, head0 + own_head, c, x, angles_of(args, row, c));
        }
    }
}
#endif
