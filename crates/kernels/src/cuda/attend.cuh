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

// The weights of one head, in place of its scores of so many 32 keys: the lane's are those of keys l, l + 32, .., every
// 32nd word of `own`. Lane i keeps what the sums before the i-th 32 keys are multiplied by. Gives 1 / the divisor.
#define WEIGHTS_TURN 4u
static_assert(TILE_KEYS / 32u % WEIGHTS_TURN == 0, "a head's last turn ends in its own place");
DEVICE float tile_weights(const TileKeys& keys, u32* own, u32 tiles, float sink, float& shrink) {
    const u32 lane = LANE % 32u;
    float top = first_top(sink), sum = 0.0f;
#pragma unroll 1
    for (u32 first = 0; first < tiles; first += WEIGHTS_TURN) {
        float s[WEIGHTS_TURN], most[WEIGHTS_TURN];
#pragma unroll
        for (u32 i = 0; i < WEIGHTS_TURN; i++) {
            const u32 key = (first + i) * 32u;
            s[i] = key + lane < keys_until(keys, key) ? AS_FLOAT(own[key]) : -infinity();
        }
        // None of these waits for another.
#pragma unroll
        for (u32 i = 0; i < WEIGHTS_TURN; i++) most[i] = score_of(WARP_MAX(rank_of(s[i])));
#pragma unroll
        for (u32 i = 0; i < WEIGHTS_TURN; i++) {
            const float by = rise(top, most[i]), e = exp_fast(s[i] - top);
            float part = e + SHUFFLE_XOR(e, 1u);
            part = part + SHUFFLE_XOR(part, 8u);
            part = part + SHUFFLE_XOR(part, 16u);
            sum = sum * by + part;
            if (lane == first + i) shrink = by;
            own[(first + i) * 32u] = split_weight(e);
        }
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
    const u32 channel = slice * MIX_CHANNELS + LANE % 8u * 8u;
    const Angles by = angles_of(args, row, channel);
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
        // A warp is a head.
        const float* from = args.scores + (row * args.heads + head0 + warp) * TILE_KEYS + lane;
        u32* to = weights + weight_at(warp, lane);
#pragma unroll 4
        for (u32 i = 0; i < tiles; i++) copy4(shared_address(to + i * 32u), from + i * 32u);
        copies_commit();
        copies_wait<0>();
        float shrink = 1.0f;
        const float all = tile_weights(keys, to, tiles, sink, shrink);
        if (lane < TILE_KEYS / 32u) shrinks[lane * 16u + warp] = shrink;
        if (lane == 0) divisor[warp] = all;
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
    // The first part's keys, then the next three's, while a fifth one takes the first one's place, then that.
#pragma unroll 1
    for (u32 act = 0; act < 3u; act++) {
        mix(act == 0 ? 0 : act == 1u ? MIX_PART / 32u : MIX_KEYS / 32u, act == 0 ? MIX_PART / 32u : act == 1u ? MIX_KEYS / 32u : TILE_KEYS / 32u);
        if (!fifth || act == 2u) continue;
        __syncthreads();
        const u32 key = own + MIX_KEYS;
        if (act == 0 && key < (keys.count + 31u) / 32u * 32u) lift_mixed(chunk[PARTS - 1u], keys, key, tile, x);
    }
    __syncthreads();
    float* out = reinterpret_cast<float*>(tile);
    if (warp < 8u) {
        const float over[2] = {divisor[g], divisor[g + 8u]};
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            // Column 2 t + (i & 1) of a tile is channel t or t + 4 of its eight.
            const u32 c = warp * 8u + t + 4u * (i & 1u);
            out[(g + 8u * (i >> 1)) * MIX_CHANNELS + c] = sum[i] * over[i >> 1];
        }
    }
    __syncthreads();
    if (LANE < 16u * MIX_CHANNELS / 8u) {
        const u32 head = LANE / 8u, c = LANE % 8u * 8u;
        float y[8];
        load_floats(shared_address(out + head * MIX_CHANNELS + c), y);
        load_floats(shared_address(out + head * MIX_CHANNELS + c + 4u), y + 4);
        store_eight(args, row, head0 + head, channel, y, by);
    }
}
