// Attention on the tensor cores, for rows of at most TILE_KEYS keys of TILE_DIM channels and heads in
// sixteens: the sum of attend.h, its queries rotated first and its outputs rotated back.
//
// A score is one chain of 32 products of 16 channels: step 4 j + i of lane (g, t) takes words 2 i and
// 2 i + 1 of its channels 64 j + 16 t on. e_k = exp(s_k - m) with m over all keys and the sink; lane l
// of 32 adds the e of keys k % 32 == l ascending, then warp_sum, then the sink's share. A weight enters
// the mix as two bf16, e to the nearest and what is left of it to the nearest: 17 bits. A channel is one
// chain over the keys ascending, 16 a step, the high parts of a step before its low ones.
//
// Few rows take two launches: `tile_attend_scores`, a group for 16 heads and 64 keys of a row, and
// `tile_attend_mix`, a group for 16 heads and 128 channels. Many rows take `tile_attend_many`, a group
// for 64 heads of a row. Both do exactly these chains, so a row has the same bits in both.
#pragma once

#define TILE_DIM 512u
#define TILE_KEYS 640u
#define TILE_PAIRS 32u
#define TILE_ROPE (TILE_DIM - 2u * TILE_PAIRS)

// Where the keys of a row lie.
struct TileKeys {
    KeyList list;
    u32 windows, count;
    u64 row;
};

DEVICE TileKeys tile_keys(const TileAttendArgs& args, u64 row) {
    TileKeys k;
    k.list = keys_of(args.rows, row, args.window, args.draft);
    k.windows = k.list.last + 1u - k.list.first;
    k.count = k.windows + (args.n_picks ? args.n_picks[row] : 0);
    if (k.count > TILE_KEYS) k.count = TILE_KEYS;
    k.row = row;
    return k;
}

struct Place {
    const u8* row;
    u32 kind;
};

DEVICE Place place_of_key(const TileAttendArgs& args, const TileKeys& keys, u32 k) {
    if (k >= keys.count) return Place{0, KEY_NONE};
    if (k < keys.windows)
        return Place{window_row(args.ring, args.fresh, keys.list, args.ring_rows, TILE_DIM, keys.list.first + k),
            KEY_WINDOW};
    u32 j = args.picks[keys.row * args.picks_stride + k - keys.windows];
    if (PLANTED(FAULT_ATTEND_WRONG_PICK)) j ^= 1u;
    const u64 place = pool_row(args.blocks, keys.list.slot, args.blocks_stride, args.rows_per_block, j);
    return Place{args.pool + place * compressed_bytes(TILE_DIM), KEY_COMPRESSED};
}

// Eight channels of a query from c on, rotated where they are among the last ones, as four words.
DEVICE void query_words(const TileAttendArgs& args, u64 row, u32 head, u32 c, u32* out) {
    if (PLANTED(FAULT_ATTEND_NEIGHBOUR_HEAD)) head ^= 1u;
    const float* from = args.q + (row * args.heads + head) * TILE_DIM + c;
    const float4 low = *reinterpret_cast<const float4*>(from);
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (c >= TILE_ROPE && args.cos) {
#pragma unroll
        for (u32 i = 0; i < 8u; i += 2u) {
            const u64 at = row * TILE_PAIRS + (c + i - TILE_ROPE) / 2u;
            const float cos = args.cos[at], sin = args.sin[at], even = x[i], odd = x[i + 1u];
            x[i] = even * cos - odd * sin;
            x[i + 1u] = even * sin + odd * cos;
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

// The weights of one head from its scores `s`, lane l's being keys l, l + 32, ..; gives the divisor.
DEVICE float tile_weights(float* s, u32 count, float sink, u32 lane) {
    float top = PLANTED(FAULT_ATTEND_NO_SINK) ? -1e30f : sink;
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 32u; i++)
        if (i * 32u + lane < count) top = max_of(s[i], top);
    for (u32 apart = 16u; apart > 0; apart /= 2u) top = max_of(SHUFFLE_XOR(top, apart), top);
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < TILE_KEYS / 32u; i++) {
        if (i * 32u + lane >= count) {
            s[i] = 0.0f;
            continue;
        }
        s[i] = exp_of(s[i] - top);
        sum = sum + s[i];
    }
    return warp_sum(sum) + (PLANTED(FAULT_ATTEND_NO_SINK) ? 0.0f : exp_of(sink - top));
}

// Where the weight of a key of a head lies in its shared rows: lanes of a load meet no bank twice.
DEVICE u32 weight_at(u32 head, u32 key) { return head * TILE_KEYS + (key ^ ((head & 3u) << 3)); }

// The weights of 16 heads and 16 keys as operands: the high parts and the low parts.
DEVICE void load_weights(const u32* weights, u32 head, u32 key, u32 lane, u32* high, u32* low) {
    const u32 g = lane / 4u, t = lane % 4u;
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        const uint2 w = *reinterpret_cast<const uint2*>(
            weights + weight_at(head + g + 8u * (i & 1u), key + 2u * t + 8u * (i >> 1)));
        high[i] = __byte_perm(w.x, w.y, 0x7632);
        low[i] = __byte_perm(w.x, w.y, 0x5410);
    }
}

// Heads' mixed channels from `out` (f32, so many a head), rotated back, to bf16; channels c0..c0 + width.
DEVICE void store_heads(const TileAttendArgs& args, u64 row, u32 head0, u32 heads, u32 c0, u32 width,
    const float* out, u32 stride, u32 thread, u32 threads) {
    for (u32 at = thread; at < heads * width / 2u; at += threads) {
        const u32 head = at / (width / 2u), c = 2u * (at % (width / 2u));
        float even = round_bf16(out[head * stride + c]), odd = round_bf16(out[head * stride + c + 1u]);
        if (c0 + c >= TILE_ROPE && args.cos) {
            const u64 pair = row * TILE_PAIRS + (c0 + c - TILE_ROPE) / 2u;
            const float cos = args.cos[pair], sin = PLANTED(FAULT_ROPE_NOT_INVERSE) ? args.sin[pair] : -args.sin[pair];
            const float x = even * cos - odd * sin;
            odd = even * sin + odd * cos;
            even = x;
        }
        reinterpret_cast<u32*>(args.out)[((row * args.heads + head0 + head) * TILE_DIM + c0 + c) / 2u] =
            pair_bf16(even, odd);
    }
}

CUDA_KERNEL(tile_attend_scores, TileAttendArgs, 256) {
    __shared__ uint4 query[32 * 32];
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u;
    const u32 blocks16 = args.heads / 16u;
    const u32 head0 = GROUP_X % blocks16 * 16u, key0 = GROUP_X / blocks16 * 64u;
    const u64 row = GROUP_Y;
    const TileKeys keys = tile_keys(args, row);
    if (key0 >= keys.count) return;
    const Place place = place_of_key(args, keys, key0 + warp * 8u + g);
    Chunk chunk[8];
#pragma unroll
    for (u32 j = 0; j < 8u; j++) chunk[j] = load_chunk(place.row, place.kind, TILE_DIM, 4u * j + t);
    // Eight channels of a head are two steps of one lane's words.
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        const u32 at = LANE + i * 256u, head = at / 64u, eight = at % 64u;
        u32 word[4];
        query_words(args, row, head0 + head, eight * 8u, word);
        const u32 step = eight / 8u * 4u + eight % 2u * 2u, to = head % 8u * 4u + eight % 8u / 2u;
        u32* first = reinterpret_cast<u32*>(&query[step * 32u + to]) + head / 8u;
        u32* second = reinterpret_cast<u32*>(&query[(step + 1u) * 32u + to]) + head / 8u;
        first[0] = word[0], first[2] = word[1];
        second[0] = word[2], second[2] = word[3];
    }
    __syncthreads();
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (u32 j = 0; j < 8u; j++) {
        u32 word[8];
        lift_chunk16(chunk[j], place.kind, word);
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            const uint4 q = query[(4u * j + i) * 32u + lane];
            const u32 a[4] = {q.x, q.y, q.z, q.w};
            mma_keys(sum, a, word[2u * i], word[2u * i + 1u]);
        }
    }
    float* to = args.scores + (row * args.heads + head0 + g) * TILE_KEYS + key0 + warp * 8u + 2u * t;
    *reinterpret_cast<float2*>(to) = make_float2(sum[0] * args.scale, sum[1] * args.scale);
    *reinterpret_cast<float2*>(to + 8u * TILE_KEYS) = make_float2(sum[2] * args.scale, sum[3] * args.scale);
}

// Bytes of a key's channels in the mix's tile: a row of 128 and what keeps banks apart.
#define MIX_CHANNELS 128u
#define MIX_ROW (MIX_CHANNELS * 2u + 16u)
#define MIX_SHARED (TILE_KEYS * MIX_ROW + 16u * TILE_KEYS * 4u + 64u)

CUDA_KERNEL(tile_attend_mix, TileAttendArgs, 256) {
    extern __shared__ uint4 tile_shared[];
    u8* tile = reinterpret_cast<u8*>(tile_shared);
    u32* weights = reinterpret_cast<u32*>(tile + TILE_KEYS * MIX_ROW);
    float* divisor = reinterpret_cast<float*>(weights + 16u * TILE_KEYS);
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u;
    const u32 blocks16 = args.heads / 16u;
    const u32 head0 = GROUP_X % blocks16 * 16u, slice = GROUP_X / blocks16;
    const u64 row = GROUP_Y;
    const TileKeys keys = tile_keys(args, row);
    u32 steps = (keys.count + 15u) / 16u;

    // A lane's keys lie 32 apart, all on their way before the first is used.
    const u32 PER_LANE = TILE_KEYS / 32u, x = LANE % 8u;
    Chunk chunk[PER_LANE];
    u32 kind[PER_LANE];
#pragma unroll
    for (u32 i = 0; i < PER_LANE; i++) {
        const Place place = place_of_key(args, keys, LANE / 8u + 32u * i);
        kind[i] = place.kind;
        chunk[i] = load_chunk(place.row, place.kind, TILE_DIM, slice * 8u + x);
    }
    for (u32 h = warp * 2u; h < warp * 2u + 2u; h++) {
        const float* from = args.scores + (row * args.heads + head0 + h) * TILE_KEYS;
        float s[TILE_KEYS / 32u];
#pragma unroll
        for (u32 i = 0; i < TILE_KEYS / 32u; i++)
            s[i] = i * 32u + lane < keys.count ? from[i * 32u + lane] : 0.0f;
        const float all = tile_weights(s, keys.count, args.sinks[head0 + h], lane);
        if (lane == 0) divisor[h] = all;
#pragma unroll
        for (u32 i = 0; i < TILE_KEYS / 32u; i++)
            weights[weight_at(h, i * 32u + lane)] = split_weight(s[i]);
    }
#pragma unroll
    for (u32 i = 0; i < PER_LANE; i++) {
        const u32 key = LANE / 8u + 32u * i;
        if (key >= steps * 16u) continue;
        u32 word[8];
        lift_chunk16(chunk[i], kind[i], word);
        uint4* to = reinterpret_cast<uint4*>(tile + key * MIX_ROW + x * 32u);
        const u32 first = x / 4u;
        to[first] = first ? make_uint4(word[4], word[5], word[6], word[7]) : make_uint4(word[0], word[1], word[2], word[3]);
        to[1u - first] = first ? make_uint4(word[0], word[1], word[2], word[3]) : make_uint4(word[4], word[5], word[6], word[7]);
    }
    __syncthreads();

    float sum[2][4] = {};
    const u32 from = shared_at(tile) + (lane % 16u) * MIX_ROW + warp * 32u + lane / 16u * 16u;
    if (PLANTED(FAULT_ATTEND_DROPPED_KEY) && steps > 1u) steps -= 1u;
#pragma unroll 4
    for (u32 step = 0; step < steps; step++) {
        u32 b[4], high[4], low[4];
        load_transposed(b, from + step * 16u * MIX_ROW);
        load_weights(weights, 0, step * 16u, lane, high, low);
        mma_keys(sum[0], high, b[0], b[1]);
        mma_keys(sum[1], high, b[2], b[3]);
        mma_keys(sum[0], low, b[0], b[1]);
        mma_keys(sum[1], low, b[2], b[3]);
    }
    __syncthreads();
    float* out = reinterpret_cast<float*>(tile);
    const float by[2] = {divisor[g], divisor[g + 8u]};
#pragma unroll
    for (u32 n = 0; n < 2u; n++)
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            // Column 2 t + (i & 1) of a tile is channel t or t + 4 of its eight.
            const u32 c = warp * 16u + n * 8u + t + 4u * (i & 1u);
            out[(g + 8u * (i >> 1)) * MIX_CHANNELS + c] = sum[n][i] / by[i >> 1];
        }
    __syncthreads();
    store_heads(args, row, head0, 16u, slice * MIX_CHANNELS, MIX_CHANNELS, out, MIX_CHANNELS, LANE, 256u);
}

// Bytes of a key in the many rows' tiles, of which there are two with 32 keys each.
#define MANY_ROW (TILE_DIM * 2u + 16u)
#define MANY_TILE (32u * MANY_ROW)
#define MANY_HEADS 64u
#define MANY_SHARED (MANY_HEADS * TILE_KEYS * 4u + 2u * MANY_TILE + MANY_HEADS * 4u)

// A lane's part of a tile of 32 keys: four times 16 channels of one key.
struct TilePart {
    Chunk chunk[4];
    u32 kind;
};

DEVICE TilePart load_part(const TileAttendArgs& args, Place place, u32 thread) {
    TilePart part;
    part.kind = place.kind;
#pragma unroll
    for (u32 i = 0; i < 4u; i++)
        part.chunk[i] = load_chunk(place.row, place.kind, TILE_DIM, thread % 8u + 8u * i);
    return part;
}

DEVICE void store_part(const TilePart& part, u8* tile, u32 thread) {
    const u32 x = thread % 8u, first = x / 4u;
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        u32 word[8];
        lift_chunk16(part.chunk[i], part.kind, word);
        uint4* to = reinterpret_cast<uint4*>(tile + thread / 8u * MANY_ROW + (x + 8u * i) * 32u);
        to[first] = first ? make_uint4(word[4], word[5], word[6], word[7]) : make_uint4(word[0], word[1], word[2], word[3]);
        to[1u - first] = first ? make_uint4(word[0], word[1], word[2], word[3]) : make_uint4(word[4], word[5], word[6], word[7]);
    }
}

CUDA_KERNEL(tile_attend_many, TileAttendArgs, 256) {
    extern __shared__ uint4 tile_shared[];
    u8* tiles = reinterpret_cast<u8*>(tile_shared);
    u32* weights = reinterpret_cast<u32*>(tiles + 2u * MANY_TILE);
    float* scores = reinterpret_cast<float*>(weights);
    float* divisor = reinterpret_cast<float*>(weights + MANY_HEADS * TILE_KEYS);
    const u32 lane = LANE % 32u, warp = LANE / 32u, g = lane / 4u, t = lane % 4u;
    const u64 row = GROUP_Y;
    const u32 head0 = GROUP_X * MANY_HEADS;
    const TileKeys keys = tile_keys(args, row);
    const u32 n_tiles = (keys.count + 31u) / 32u, steps = (keys.count + 15u) / 16u;
    const u32 own = LANE / 8u;

    Place next = place_of_key(args, keys, own);
    TilePart part = load_part(args, next, LANE);
    next = place_of_key(args, keys, own + 32u);
    {
        // Sixteen heads and half of each tile's keys a warp; its queries stay in registers.
        const u32 head = warp % 4u * 16u;
        u32 a[32][4];
#pragma unroll
        for (u32 j = 0; j < 8u; j++)
#pragma unroll
            for (u32 half = 0; half < 2u; half++)
#pragma unroll
                for (u32 m = 0; m < 2u; m++) {
                    u32 word[4];
                    query_words(args, row, head0 + head + g + 8u * half, 64u * j + 16u * t + 8u * m, word);
                    a[4u * j + 2u * m][half] = word[0], a[4u * j + 2u * m][half + 2u] = word[1];
                    a[4u * j + 2u * m + 1u][half] = word[2], a[4u * j + 2u * m + 1u][half + 2u] = word[3];
                }
        for (u32 at = 0; at < n_tiles; at++) {
            u8* tile = tiles + at % 2u * MANY_TILE;
            store_part(part, tile, LANE);
            part = load_part(args, next, LANE);
            next = place_of_key(args, keys, own + 32u * (at + 2u));
            __syncthreads();
            const u32 key = warp / 4u * 16u;
            float sum[2][4] = {};
#pragma unroll
            for (u32 j = 0; j < 8u; j++) {
                uint4 low[2], high[2];
#pragma unroll
                for (u32 n = 0; n < 2u; n++) {
                    const uint4* from = reinterpret_cast<const uint4*>(
                        tile + (key + 8u * n + g) * MANY_ROW + (4u * j + t) * 32u);
                    low[n] = from[0], high[n] = from[1];
                }
#pragma unroll
                for (u32 n = 0; n < 2u; n++) mma_keys(sum[n], a[4u * j], low[n].x, low[n].y);
#pragma unroll
                for (u32 n = 0; n < 2u; n++) mma_keys(sum[n], a[4u * j + 1u], low[n].z, low[n].w);
#pragma unroll
                for (u32 n = 0; n < 2u; n++) mma_keys(sum[n], a[4u * j + 2u], high[n].x, high[n].y);
#pragma unroll
                for (u32 n = 0; n < 2u; n++) mma_keys(sum[n], a[4u * j + 3u], high[n].z, high[n].w);
            }
#pragma unroll
            for (u32 n = 0; n < 2u; n++)
#pragma unroll
                for (u32 half = 0; half < 2u; half++) {
                    const u32 to = weight_at(head + g + 8u * half, at * 32u + key + 8u * n + 2u * t);
                    *reinterpret_cast<float2*>(scores + to) =
                        make_float2(sum[n][2u * half] * args.scale, sum[n][2u * half + 1u] * args.scale);
                }
        }
    }
    // The first tile of the mix is on its way while the weights are made.
    part = load_part(args, place_of_key(args, keys, own), LANE);
    next = place_of_key(args, keys, own + 32u);
    __syncthreads();
    for (u32 h = warp * 8u; h < warp * 8u + 8u; h++) {
        float s[TILE_KEYS / 32u];
#pragma unroll
        for (u32 i = 0; i < TILE_KEYS / 32u; i++)
            s[i] = i * 32u + lane < keys.count ? scores[weight_at(h, i * 32u + lane)] : 0.0f;
        const float all = tile_weights(s, keys.count, args.sinks[head0 + h], lane);
        if (lane == 0) divisor[h] = all;
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < TILE_KEYS / 32u; i++)
            weights[weight_at(h, i * 32u + lane)] = split_weight(s[i]);
    }
    // All heads and 64 channels a warp.
    float sum[4][8][4] = {};
    for (u32 at = 0; at < n_tiles; at++) {
        u8* tile = tiles + at % 2u * MANY_TILE;
        store_part(part, tile, LANE);
        part = load_part(args, next, LANE);
        next = place_of_key(args, keys, own + 32u * (at + 2u));
        __syncthreads();
        const u32 from = shared_at(tile) + (lane % 16u) * MANY_ROW + warp * 128u + lane / 16u * 16u;
#pragma unroll
        for (u32 step = 0; step < 2u; step++) {
            if (at * 2u + step >= steps) continue;
            u32 b[4][4];
#pragma unroll
            for (u32 n = 0; n < 4u; n++) load_transposed(b[n], from + step * 16u * MANY_ROW + n * 32u);
#pragma unroll
            for (u32 m = 0; m < 4u; m++) {
                u32 high[4], low[4];
                load_weights(weights, 16u * m, at * 32u + step * 16u, lane, high, low);
#pragma unroll
                for (u32 n = 0; n < 8u; n++)
                    mma_keys(sum[m][n], high, b[n / 2u][n % 2u * 2u], b[n / 2u][n % 2u * 2u + 1u]);
#pragma unroll
                for (u32 n = 0; n < 8u; n++)
                    mma_keys(sum[m][n], low, b[n / 2u][n % 2u * 2u], b[n / 2u][n % 2u * 2u + 1u]);
            }
        }
    }
    __syncthreads();
    float* out = reinterpret_cast<float*>(weights);
#pragma unroll
    for (u32 m = 0; m < 4u; m++) {
        const float by[2] = {divisor[16u * m + g], divisor[16u * m + g + 8u]};
#pragma unroll
        for (u32 n = 0; n < 8u; n++)
#pragma unroll
            for (u32 i = 0; i < 4u; i++) {
                const u32 c = warp * 64u + n * 8u + t + 4u * (i & 1u);
                out[(16u * m + g + 8u * (i >> 1)) * TILE_DIM + c] = sum[m][n][i] / by[i >> 1];
            }
    }
    __syncthreads();
    store_heads(args, row, head0, MANY_HEADS, 0, TILE_DIM, out, TILE_DIM, LANE, 256u);
}
