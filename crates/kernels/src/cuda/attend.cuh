// Attention on the tensor cores, for rows of at most TILE_KEYS keys of TILE_DIM channels and heads in
// sixteens: the sum of attend.h, its queries rotated first and its outputs rotated back.
//
// A score is one chain of 32 products of 16 channels: step 4 j + i of lane (g, t) takes words 2 i and
// 2 i + 1 of its channels 64 j + 16 t on. Keys are counted with the window's part filled up to a multiple of 32
// by keys of no weight, and taken 32 at a time. A head's top is its sink at first; before 32 keys whose most
// score is over 8 above it, it becomes that, and the sums so far are multiplied by exp(old - new). e_k = exp(s_k -
// top). Of 32 keys the e of those 1, 8 and 16 apart are added, which leaves four sums; at the end those of keys 2
// and 4 apart are, then the sink's share. A weight enters the mix as two bf16, e to the nearest and what is left of it to the nearest: 17 bits. A channel is one
// chain over the keys ascending, 16 a step, the high parts of a step before its low ones.
//
// Few rows take two launches: `tile_attend_scores`, a group for 16 heads and 64 keys of a row, and
// `tile_attend_mix`, a group for 16 heads and 64 channels. Many rows take `tile_attend_many`. Both do exactly
// these chains, so a row has the same bits in both.
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

// What `rank_of` made a rank of.
DEVICE float score_of(u32 rank) {
    return rank == 0 ? -infinity() : AS_FLOAT(rank & 0x80000000u ? rank ^ 0x80000000u : ~rank);
}

// A head's top follows the most of each 32 scores only where they are much above it: what its sums so far are
// multiplied by.
#define TILE_RISE 8.0f
DEVICE float rise(float& top, float most) {
    if (!(most > top + TILE_RISE)) return 1.0f;
    const float shrink = exp_fast(top - most);
    top = most;
    return shrink;
}
DEVICE float first_top(float sink) { return PLANTED(FAULT_ATTEND_NO_SINK) ? -1e30f : sink; }
DEVICE float one_over(float sum, float sink, float top) {
    return 1.0f / (sum + (PLANTED(FAULT_ATTEND_NO_SINK) ? 0.0f : exp_fast(sink - top)));
}

// The weights of one head from its scores, lane l's being keys l, l + 32, .. and minus infinity where there
// is no key; lane i keeps what the sums before the i-th 32 keys are multiplied by. Gives 1 / the divisor.
DEVICE float tile_weights(float* s, float sink, float& shrink) {
    float top = first_top(sink), sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 32u; i++) {
        const float by = rise(top, score_of(WARP_MAX(rank_of(s[i]))));
        s[i] = exp_fast(s[i] - top);
        float part = s[i] + SHUFFLE_XOR(s[i], 1u);
        part = part + SHUFFLE_XOR(part, 8u);
        part = part + SHUFFLE_XOR(part, 16u);
        sum = sum * by + part;
        if (LANE % 32u == i) shrink = by;
    }
    sum = sum + SHUFFLE_XOR(sum, 2u);
    sum = sum + SHUFFLE_XOR(sum, 4u);
    return one_over(sum, sink, top);
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
#define MIX_SHARED (MIX_KEYS * 128u + 16u * TILE_KEYS * 4u + 64u + TILE_KEYS * 4u + TILE_KEYS / 32u * 64u)

// Lifts a lane's chunk of a key to its place.
DEVICE void lift_mixed(const Chunk& chunk, const TileKeys& keys, u32 key, u8* tile, u32 x) {
    u32 word[8];
    lift_chunk16(chunk, key >= keys.padded, word);
    uint4* to = reinterpret_cast<uint4*>(tile + key % MIX_KEYS * 128u);
    to[(2u * x) ^ (key % 8u)] = make_uint4(word[0], word[1], word[2], word[3]);
    to[(2u * x + 1u) ^ (key % 8u)] = make_uint4(word[4], word[5], word[6], word[7]);
}

// Adds the products of 32 keys to a warp's eight channels.
DEVICE void mix_keys(float (&sum)[4], const u32* weights, const u32 (&places)[4], u32 tile) {
    u32 b[4];
    load_transposed(tile, b);
#pragma unroll
    for (u32 i = 0; i < 2u; i++) {
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
    float* shrinks = reinterpret_cast<float*>(places + TILE_KEYS);
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u;
    const u32 blocks16 = args.heads / 16u;
    const u32 head0 = GROUP_X % blocks16 * 16u, slice = GROUP_X / blocks16;
    const u64 row = GROUP_Y;
    const TileKeys keys = tile_keys(args, row);
    u32 tiles = (keys.count + 31u) / 32u;
    // Keys and picks were there before the scores.
    place_keys<512u>(args, keys, places, LANE);
    const float sink = args.sinks[head0 + warp];
    __syncthreads();
    // All of a lane's chunks are on their way before the first is used.
    const u32 PARTS = TILE_KEYS / MIX_PART, x = LANE % 4u, own = LANE / 4u;
    Chunk chunk[PARTS];
#pragma unroll
    for (u32 i = 0; i < PARTS; i++)
        if (own + MIX_PART * i < tiles * 32u)
            load_chunk(chunk[i], args, own + MIX_PART * i >= keys.padded, places[own + MIX_PART * i], slice * 4u + x);
#pragma unroll
    for (u32 i = 0; i < PARTS - 1u; i++)
        if (own + MIX_PART * i < tiles * 32u) lift_mixed(chunk[i], keys, own + MIX_PART * i, tile, x);
    LAUNCHES_BEFORE();
    {
        const float* from = args.scores + (row * args.heads + head0 + warp) * TILE_KEYS + lane;
        u32* to = weights + weight_at(warp, lane);
        float s[TILE_KEYS / 32u];
#pragma unroll
        for (u32 i = 0; i < TILE_KEYS / 32u; i++)
            s[i] = i * 32u + lane < keys_until(keys, i * 32u) ? from[i * 32u] : -infinity();
        float shrink = 1.0f;
        const float all = tile_weights(s, sink, shrink);
        if (lane < TILE_KEYS / 32u) shrinks[lane * 16u + warp] = shrink;
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
    const bool fifth = tiles * 32u > MIX_KEYS;
    if (PLANTED(FAULT_ATTEND_DROPPED_KEY) && tiles > 1u) tiles -= 1u;
    const auto mix = [&](u32 at, u32 end) {
        if (warp >= 8u) return;
        end = end < tiles ? end : tiles;
#pragma unroll 4
        for (; at < end; at++) {
            const float low = shrinks[at * 16u + g], high = shrinks[at * 16u + g + 8u];
            if (!PLANTED(FAULT_ATTEND_KEPT_SUMS)) sum[0] = sum[0] * low, sum[1] = sum[1] * low, sum[2] = sum[2] * high, sum[3] = sum[3] * high;
            mix_keys(sum, weights + at * 32u, places_in, from + at * 32u % MIX_KEYS * 128u);
        }
    };
    mix(0, MIX_PART / 32u);
    if (fifth) {
        __syncthreads();
        const u32 key = own + MIX_KEYS;
        if (key < (keys.count + 31u) / 32u * 32u) lift_mixed(chunk[PARTS - 1u], keys, key, tile, x);
    }
    mix(MIX_PART / 32u, MIX_KEYS / 32u);
    if (fifth) {
        __syncthreads();
        mix(MIX_KEYS / 32u, TILE_KEYS / 32u);
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
// Many rows: a group takes rows one after another, 64 heads of each, by four warpgroups. One brings a row's queries
// and lifts its keys, tile by tile of 32, into stages of a ring; one makes scores and from them weights; two add
// the keys by those weights, half of the channels each.
//
// A tile has for each 64 channels rows of 128 bytes, a key each, whose 16-byte piece p lies at p ^ (key % 8). Word t
// of piece p is word p of the key's chunk t of those channels, so that the rows are the scores' right operand as
// they lie, and the mix's by columns. Weights are a row of 128 bytes a head, the high parts before the low ones.
#define MANY_HEADS 64u
#define MANY_BLOCK (32u * 128u)
#define MANY_RING 4u
#define MANY_STAGE 33792u
// A stage has a tile, or the queries of 16 heads: rows of floats with what keeps banks apart. Then it has the
// number of keys of the tile, or of the row's tiles.
#define MANY_QUERY (TILE_DIM * 4u + 16u)
#define MANY_COUNT (16u * MANY_QUERY)
// Steps whose queries lie in shared memory; those of the others are in registers.
#define MANY_HELD 16u
// A key as it is stored, with what keeps banks apart; two tiles of those are on their way.
#define MANY_RAW 576u
// The weights of a tile, what the sums so far are multiplied by, 1 over the divisors, and whether it is a row's last.
#define MANY_WEIGHTS 9216u
#define MANY_SHRINK (MANY_HEADS * 128u)
#define MANY_DIVISOR (MANY_SHRINK + MANY_HEADS * 4u)
#define MANY_LAST (MANY_DIVISOR + MANY_HEADS * 4u)
// Where all of it lies.
#define MANY_WEIGHTS_AT (MANY_RING * MANY_STAGE)
#define MANY_QUERIES_AT (MANY_WEIGHTS_AT + 2u * MANY_WEIGHTS)
#define MANY_RAW_AT (MANY_QUERIES_AT + MANY_HELD / 4u * MANY_HEADS * 128u)
#define MANY_PLACES_AT (MANY_RAW_AT + 2u * 32u * MANY_RAW)
#define MANY_FULL_AT (MANY_PLACES_AT + 3u * TILE_KEYS * 4u)
#define MANY_FREE_AT (MANY_FULL_AT + MANY_RING * 8u)
#define MANY_WEIGHED_AT (MANY_FREE_AT + MANY_RING * 8u)
#define MANY_MIXED_AT (MANY_WEIGHED_AT + 16u)
#define MANY_PLACED_AT (MANY_MIXED_AT + 16u)
#define MANY_ASKED_AT (MANY_PLACED_AT + 8u)

// Where the mix's right operand begins: 64 columns lie a block apart, eight keys 1024 bytes.
DEVICE u64 columns_descriptor(u32 at) {
    return u64((at & 0x3ffffu) >> 4) | (u64(MANY_BLOCK / 16u) << 16) | (u64(64u) << 32) | (u64(1u) << 62);
}

// What all lanes of a warp have alike, as a word that the compiler knows to be so.
DEVICE u32 alike(u32 word) { return __shfl_sync(0xffffffffu, word, 0u); }

// The place in the ring of the n-th use of a stage, and the signals of that.
DEVICE u32 many_stage(u32 base, u32 n) { return base + n % MANY_RING * MANY_STAGE; }
DEVICE u32 many_full(u32 base, u32 n) { return base + MANY_FULL_AT + n % MANY_RING * 8u; }
DEVICE u32 many_free(u32 base, u32 n) { return base + MANY_FREE_AT + n % MANY_RING * 8u; }
DEVICE void await_full(u32 base, u32 n) { signal_wait(many_full(base, n), n / MANY_RING % 2u); }
DEVICE void await_free(u32 base, u32 n) { signal_wait(many_free(base, n), n / MANY_RING % 2u ^ 1u); }

// Tiles of a row, two at least: keys of no weight change nothing.
DEVICE u32 many_tiles(u32 count) { return count > 32u ? (count + 31u) / 32u : 2u; }

// Asks for a key as it is stored, by four lanes.
template <bool POOL> DEVICE void copy_key(const u8* row, u32 to) {
    const u32 pieces = u32(POOL ? compressed_bytes(TILE_DIM) : window_bytes(TILE_DIM)) / 16u;
    row += LANE % 4u * 16u, to += LANE % 4u * 16u;
#pragma unroll
    for (u32 i = 0; i < pieces / 4u; i++) copy16(to + i * 64u, row + i * 64u);
    if (LANE % 4u < pieces % 4u) copy16(to + pieces / 4u * 64u, row + pieces / 4u * 64u);
}

// Lifts a key into its row of a tile, by four lanes: 16 channels of each 64.
template <bool POOL> DEVICE void lift_key(u32 from, bool there, u32 tile, u32 key) {
    const u32 t = LANE % 4u;
    u32 to[8];
#pragma unroll
    for (u32 p = 0; p < 8u; p++) to[p] = tile + key * 128u + t * 4u + ((p ^ key % 8u) << 4);
#pragma unroll
    for (u32 block0 = 0; block0 < 8u; block0 += 4u) {
        u32 codes[4][4], scales[4];
        if (POOL) {
#pragma unroll
            for (u32 i = 0; i < 4u; i++) load_pair(from + (block0 + i) * 32u + t * 8u, codes[i]);
            load_words(from + TILE_DIM / 2u + block0 * 4u, scales);
        } else {
#pragma unroll
            for (u32 i = 0; i < 4u; i++) load_words(from + (block0 + i) * 64u + t * 16u, codes[i]);
            load_pair(from + TILE_DIM + block0 * 2u, scales);
        }
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            u32 word[8];
            Factor by;
            if (POOL) {
                spread_e2m1(codes[i][0], word);
                spread_e2m1(codes[i][1], word + 4);
                by = factor_compressed(__byte_perm(scales[i], 0u, 0x4440u | t));
            } else {
                spread_e4m3(codes[i][0], codes[i][1], word);
                spread_e4m3(codes[i][2], codes[i][3], word + 4);
                by = factor_window(__byte_perm(scales[i / 2u], 0u, 0x4440u | (i % 2u * 2u + t / 2u)));
            }
            if (!there) by.scale = 0u;
            finish_lift<8>(word, by);
#pragma unroll
            for (u32 p = 0; p < 8u; p++) store_word(to[p] + (block0 + i) * MANY_BLOCK, word[p]);
        }
    }
}

// The keys of a row, and their places by 128 lanes.
DEVICE TileKeys many_places(const TileAttendArgs& args, u64 row, u32* places) {
    const TileKeys keys = tile_keys(args, row);
    u32 pick[TILE_KEYS / 128u];
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 128u; i++) pick[i] = pick_of(args, keys, LANE % 128u + 128u * i);
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 128u; i++) {
        const u32 k = LANE % 128u + 128u * i;
        places[k] = place_of_key(args, keys, k, pick[i]);
    }
    return keys;
}

// Brings each row's queries, then lifts its keys.
DEVICE void many_keys(const TileAttendArgs& args, u32 base, u32* all_places) {
    const u32 lane = LANE % 32u, warp = LANE / 32u % 4u, own = warp * 8u + lane / 4u, head0 = GROUP_Y * MANY_HEADS;
    const u32 own_raw = base + MANY_RAW_AT + own * MANY_RAW;
    const u64 policy = read_once();
    u32 use = 0, parity = 0, buffer = 0, turn = 0;
    u64 row = GROUP_X;
    TileKeys keys = many_places(args, row, all_places);
    warp_arrives<1u>(base + MANY_PLACED_AT);
    signal_wait(base + MANY_PLACED_AT, parity);
    // Asks for a lane's key of the n-th tile of all, which is tile `at` of a row.
    const auto bring = [&](const u32* places, const TileKeys& keys, u32 at, u32 n) {
        const u32 place = places[at * 32u + own], to = own_raw + n % 2u * (32u * MANY_RAW);
        const u64 row = place & 0x3fffffffu;
        if (at * 32u >= keys.padded && at * 32u < keys.count) copy_key<true>(args.pool + row * compressed_bytes(TILE_DIM), to);
        else copy_key<false>((place >> 30 == KEY_RING ? args.ring : args.fresh) + row * window_bytes(TILE_DIM), to);
        copies_commit();
    };
    bring(all_places, keys, 0u, 0u);
    bring(all_places, keys, 1u, 1u);
    while (row < args.row_count) {
        const TileKeys held = keys;
        const u32 n_tiles = many_tiles(held.count);
        const u32* places = all_places + buffer * TILE_KEYS;
#pragma unroll 1
        for (u32 i = 0; i < 4u; i++) {
            const u32 to = many_stage(base, use), full = many_full(base, use);
            await_free(base, use);
            // No lane waits for this any more when the stage comes to be free again.
            __syncwarp();
            if (lane == 0) {
                if (warp == 0) store_word(to + MANY_COUNT, n_tiles);
                signal_expect(full, 4u * TILE_DIM * 4u);
#pragma unroll 1
                for (u32 h = warp * 4u; h < warp * 4u + 4u; h++) {
                    const u32 head = head0 + i * 16u + (PLANTED(FAULT_ATTEND_NEIGHBOUR_HEAD) ? h ^ 1u : h);
                    const float* from = args.q + (row * args.heads + head) * TILE_DIM;
                    copy_bulk(to + h * MANY_QUERY, reinterpret_cast<GLOBAL const u8*>(from), TILE_DIM * 4u, full, policy);
                }
            } else if (lane < WARP_ARRIVALS) {
                signal_arrive<1u>(full);
            }
            use++;
        }
        row += GROUPS_X;
        parity ^= 1u;
        buffer = buffer == 2u ? 0u : buffer + 1u;
        // The places of the next row, while this one's first tiles are on their way.
        u32* next_places = all_places + buffer * TILE_KEYS;
        if (row < args.row_count) keys = many_places(args, row, next_places);
        warp_arrives<1u>(base + MANY_PLACED_AT);
        signal_wait(base + MANY_PLACED_AT, parity);
#pragma unroll 1
        for (u32 at = 0; at < n_tiles; at++) {
            const u32 from = own_raw + turn % 2u * (32u * MANY_RAW), to = many_stage(base, use), until = keys_until(held, at * 32u);
            const bool there = places[at * 32u + own] >> 30 != KEY_NONE;
            copies_wait<1>();
            __syncwarp();
            await_free(base, use);
            if (LANE % 128u == 0) store_word(to + MANY_COUNT, until > at * 32u ? until - at * 32u : 0u);
            if (at * 32u >= held.padded && at * 32u < held.count) lift_key<true>(from, there, to, own);
            else lift_key<false>(from, there, to, own);
            copies_shown();
            warp_arrives<1u>(many_full(base, use));
            use++;
            // Past the last row nothing is asked for, and nothing waits for it.
            if (at + 2u < n_tiles) bring(places, held, at + 2u, turn);
            else if (row < args.row_count) bring(next_places, keys, at + 2u - n_tiles, turn);
            else copies_commit();
            turn++;
        }
    }
}

// The scores of each row, and its weights.
DEVICE void many_scores(const TileAttendArgs& args, u32 base) {
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u, own_head = warp * 16u + g;
    const float* sinks = args.sinks + GROUP_Y * MANY_HEADS + own_head;
    const float sink[2] = {sinks[0], sinks[8]};
    u32 use = 0, parity = 0, turn = 0;
    for (u64 row = GROUP_X; row < args.row_count; row += GROUPS_X) {
        u32 a[32u - MANY_HELD][4], n_tiles = 0;
#pragma unroll 1
        for (u32 i = 0; i < 4u; i++) {
            const u32 from = many_stage(base, use);
            await_full(base, use);
            if (i == 0) n_tiles = alike(load_word(from + MANY_COUNT));
            // A warp has 16 heads.
            if (i == warp)
#pragma unroll
                for (u32 j = 0; j < 8u; j++)
#pragma unroll
                    for (u32 e = 0; e < 2u; e++)
#pragma unroll
                        for (u32 m = 0; m < 2u; m++) {
                            const u32 c = 64u * j + 16u * t + 8u * m, at = from + (g + 8u * e) * MANY_QUERY + c * 4u;
                            float x[8];
                            u32 word[4];
                            load_floats(at, x);
                            load_floats(at + 16u, x + 4);
                            pack_query(x, angles_of(args, row, c), word);
                            if (j < MANY_HELD / 4u) {
                                const u32 line = base + MANY_QUERIES_AT + j * (MANY_HEADS * 128u) + (own_head + 8u * e) * 128u + t * 4u;
#pragma unroll
                                for (u32 p = 0; p < 4u; p++) store_word(line + (((4u * m + p) ^ g) << 4), word[p]);
                            } else {
                                const u32 step = 4u * j + 2u * m - MANY_HELD;
                                a[step][e] = word[0], a[step][e + 2u] = word[1];
                                a[step + 1u][e] = word[2], a[step + 1u][e + 2u] = word[3];
                            }
                        }
            // For the warps that read no queries too.
            for (u32 k = 0; k < 3u; k++) warp_arrives<1u>(many_free(base, use));
            use++;
        }
        copies_shown();
        warp_arrives<1u>(base + MANY_ASKED_AT);
        signal_wait(base + MANY_ASKED_AT, parity);
        parity ^= 1u;
        u32 tile = 0;
        float top[2] = {first_top(sink[0]), first_top(sink[1])}, all[2] = {0.0f, 0.0f}, even[16], odd[16];
        const auto ask = [&](float (&s)[16]) {
            await_full(base, use);
            const u64 q = rows_descriptor(base + MANY_QUERIES_AT), b = rows_descriptor(many_stage(base, use));
            group_begin();
#pragma unroll
            for (u32 i = 0; i < 32u; i++) {
                const u64 keys = b + i / 4u * (MANY_BLOCK / 16u) + i % 4u * 2u;
                if (i < MANY_HELD) multiply_rows<32u>(s, q + i / 4u * (MANY_HEADS * 8u) + i % 4u * 2u, keys, i > 0);
                else multiply_rows<32u>(s, a[i - MANY_HELD], keys, true);
            }
            group_commit();
            use++;
        };
        // `of`, the use of the stage that they are scores of.
        const auto weigh = [&](float (&s)[16], u32 of) {
#pragma unroll
            for (u32 i = 0; i < 16u; i++) settled(s[i]);
            const u32 count = load_word(many_stage(base, of) + MANY_COUNT);
            warp_arrives<1u>(many_free(base, of));
            float shrink[2];
#pragma unroll
            for (u32 e = 0; e < 2u; e++) {
                float most = -infinity();
#pragma unroll
                for (u32 k = 0; k < 8u; k++) {
                    float& own = s[k / 2u * 4u + 2u * e + k % 2u];
                    own = k / 2u * 8u + 2u * t + k % 2u < count ? own * args.scale : -infinity();
                    most = max_of(own, most);
                }
                most = max_of(SHUFFLE_XOR(most, 1u), most);
                most = max_of(SHUFFLE_XOR(most, 2u), most);
                shrink[e] = rise(top[e], most);
#pragma unroll
                for (u32 k = 0; k < 8u; k++) {
                    float& own = s[k / 2u * 4u + 2u * e + k % 2u];
                    own = exp_fast(own - top[e]);
                }
                float part[4];
#pragma unroll
                for (u32 n = 0; n < 4u; n++) part[n] = s[n * 4u + 2u * e] + s[n * 4u + 2u * e + 1u];
                all[e] = all[e] * shrink[e] + ((part[0] + part[1]) + (part[2] + part[3]));
            }
            const u32 to = base + MANY_WEIGHTS_AT + turn % 2u * MANY_WEIGHTS;
            signal_wait(base + MANY_MIXED_AT + turn % 2u * 8u, turn / 2u % 2u ^ 1u);
#pragma unroll
            for (u32 e = 0; e < 2u; e++)
#pragma unroll
                for (u32 n = 0; n < 4u; n++) {
                    const float x = s[n * 4u + 2u * e], y = s[n * 4u + 2u * e + 1u];
                    const u32 high = pair_bf16(x, y), line = to + (own_head + 8u * e) * 128u + t * 4u;
                    store_word(line + ((n ^ g) << 4), high);
                    store_word(line + (((n + 4u) ^ g) << 4), pair_bf16(x - lift_bf16(high & 0xffffu), y - lift_bf16(high >> 16)));
                }
            const bool last = tile + 1u == n_tiles;
            if (LANE == 0) store_word(to + MANY_LAST, last);
#pragma unroll
            for (u32 e = 0; e < 2u; e++) {
                const u32 head = (own_head + 8u * e) * 4u;
                if (t == 0) store_word(to + MANY_SHRINK + head, AS_BITS(shrink[e]));
                if (!last) continue;
                float sum = all[e] + SHUFFLE_XOR(all[e], 1u);
                sum = sum + SHUFFLE_XOR(sum, 2u);
                const float divisor = one_over(sum, sink[e], top[e]);
                if (t == 0) store_word(to + MANY_DIVISOR + head, AS_BITS(divisor));
            }
            copies_shown();
            warp_arrives<1u>(base + MANY_WEIGHED_AT + turn % 2u * 8u);
            turn++;
            tile++;
        };
        // The scores of a tile are on their way while the weights of the one before are made.
        ask(even);
#pragma unroll 1
        while (tile + 2u < n_tiles) {
            ask(odd);
            group_wait<1>();
            weigh(even, use - 2u);
            ask(even);
            group_wait<1>();
            weigh(odd, use - 2u);
        }
        if (tile + 2u == n_tiles) {
            ask(odd);
            group_wait<1>();
            weigh(even, use - 2u);
            group_wait();
            weigh(odd, use - 1u);
        } else {
            group_wait();
            weigh(even, use - 1u);
        }
    }
}

// The outputs of each row.
DEVICE void many_mix(const TileAttendArgs& args, u32 base) {
    const u32 lane = LANE % 32u, g = lane / 4u, t = lane % 4u, half = alike(LANE / 128u - 1u), own_head = LANE / 32u % 4u * 16u + g;
    u32 use = 0, turn = 0;
    float sum[2][64];
    for (u64 row = GROUP_X; row < args.row_count; row += GROUPS_X) {
        // The stages of the queries.
        use += 4u;
        float by[2];
        bool last = false;
#pragma unroll 1
        for (u32 tile = 0; !last; tile++) {
            const u32 from = base + MANY_WEIGHTS_AT + turn % 2u * MANY_WEIGHTS, own = from + own_head * 4u;
            signal_wait(base + MANY_WEIGHED_AT + turn % 2u * 8u, turn / 2u % 2u);
            await_full(base, use);
            last = alike(load_word(from + MANY_LAST)) != 0;
            const float shrink[2] = {AS_FLOAT(load_word(own + MANY_SHRINK)), AS_FLOAT(load_word(own + MANY_SHRINK + 32u))};
            const bool any = shrink[0] != 1.0f || shrink[1] != 1.0f;
            if (tile > 0 && __ballot_sync(0xffffffffu, any) != 0 && !PLANTED(FAULT_ATTEND_KEPT_SUMS))
#pragma unroll
                for (u32 i = 0; i < 64u; i++) {
                    sum[0][i] = sum[0][i] * shrink[i / 2u % 2u];
                    sum[1][i] = sum[1][i] * shrink[i / 2u % 2u];
                }
            const u64 a = rows_descriptor(from), b = columns_descriptor(many_stage(base, use) + half * 4u * MANY_BLOCK);
            group_begin();
#pragma unroll
            for (u32 step = 0; step < 2u; step++)
#pragma unroll
                for (u32 part = 0; part < 2u; part++) {
                    const u64 columns = b + part * (MANY_BLOCK / 8u) + step * 128u;
                    multiply_columns(sum[part], a + step * 2u, columns, tile + step > 0);
                    multiply_columns(sum[part], a + 4u + step * 2u, columns, true);
                }
            group_commit();
            if (last) by[0] = AS_FLOAT(load_word(own + MANY_DIVISOR)), by[1] = AS_FLOAT(load_word(own + MANY_DIVISOR + 32u));
            group_wait();
            warp_arrives<1u>(many_free(base, use));
            warp_arrives<1u>(base + MANY_MIXED_AT + turn % 2u * 8u);
            use++;
            turn++;
        }
        // A lane has 16 channels in a row of each 64.
#pragma unroll
        for (u32 e = 0; e < 2u; e++)
#pragma unroll
            for (u32 n = 0; n < 8u; n++) {
                float x[8];
#pragma unroll
                for (u32 i = 0; i < 8u; i++) x[i] = sum[n / 4u][(n % 4u * 4u + i % 4u) * 4u + 2u * e + i / 4u] * by[e];
                const u32 c = half * 256u + n / 2u * 64u + t * 16u + n % 2u * 8u;
                store_eight(args, row, GROUP_Y * MANY_HEADS + own_head + 8u * e, c, x, angles_of(args, row, c));
            }
    }
}

CUDA_FULL_KERNEL(tile_attend_many, TileAttendArgs, 512) {
    LAUNCH_SHARED(__align__(1024) u8, shared);
    const u32 base = shared_address(shared);
    if (LANE == 0) {
        for (u32 i = 0; i < MANY_RING; i++) {
            signal_new(base + MANY_FULL_AT + i * 8u, 4u * WARP_ARRIVALS);
            signal_new(base + MANY_FREE_AT + i * 8u, 12u * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < 2u; i++) {
            signal_new(base + MANY_WEIGHED_AT + i * 8u, 4u * WARP_ARRIVALS);
            signal_new(base + MANY_MIXED_AT + i * 8u, 8u * WARP_ARRIVALS);
        }
        signal_new(base + MANY_PLACED_AT, 4u * WARP_ARRIVALS);
        signal_new(base + MANY_ASKED_AT, 4u * WARP_ARRIVALS);
        signals_made();
    }
    dependents_may_start();
    wait_for_launches_before();
    __syncthreads();
    const u32 part = alike(LANE / 128u);
    if (part == 3u) {
        registers_give<56>();
        many_keys(args, base, reinterpret_cast<u32*>(shared + MANY_PLACES_AT));
    } else if (part == 0) {
        registers_take<136>();
        many_scores(args, base);
    } else {
        registers_take<160>();
        many_mix(args, base);
    }
}
#endif
