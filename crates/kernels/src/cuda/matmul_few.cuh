// Products of 1 to 32 rows: bound by the reading of the weights.
//
// A group has 16 warps, which share tiles: as many warps a tile as there are slices, one slice each; as
// many tiles side by side as fit. A warp reads its slices ahead through a ring of its own, across tiles,
// and before the launches it depends on have ended. It leaves a slice's sums in shared memory and goes
// on; a tile later one of the tile's warps, another each time, adds them. No warp waits for all others
// but where the rows change. Two groups of a cluster may share the slices: then the odd tiles are added
// in the second.
//
// Rows lie in shared memory, 128 bytes of a row for each step of 64 inputs, the 16-byte pieces of row r
// in the places piece ^ (r % 8).
#pragma once
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define FEW_STAGES 8u
#define FEW_WARPS 16u

struct FewShape {
    u32 steps;     // of 64 inputs, in all
    u32 length;    // steps of a slice
    u32 tiles;     // of 16 outputs
    u32 wide;      // tiles side by side
    u32 slice, side;
    u64 tile_bytes;
};

// Reads a warp's slices in order, tile after tile; one lane's.
template <u32 F> struct FewReader {
    u32 left;      // tiles yet to be begun, this one too
    u32 tile, group, done, stage;
    GLOBAL const u8* at;
};

DEVICE u32 expert_of(const TileArgs& args, u32 group) { return args.groups ? args.groups[group * 3u] : group; }

// Where a warp's slice of a tile begins.
template <u32 F> DEVICE GLOBAL const u8* slice_at(const TileArgs& args, const FewShape& shape, u32 group, u32 tile) {
    return args.weight + expert_of(args, group) * args.expert_bytes + tile * shape.tile_bytes
        + shape.slice * shape.length * step_bytes<F>();
}

// Asks for the next bytes of the warp's slices, if there are more.
template <u32 F>
DEVICE void read_on(FewReader<F>& r, const TileArgs& args, const FewShape& shape, u32 ring, u32 signals, u64 policy) {
    if (r.left == 0) return;
    const u32 rest = shape.length - r.done, count = rest < args.chunk ? rest : args.chunk;
    const u32 bytes = count * step_bytes<F>();
    copy_bulk(ring + r.stage * args.chunk * step_bytes<F>(), r.at, bytes, signals + r.stage * 8u, policy);
    r.stage = r.stage + 1u == args.stages ? 0u : r.stage + 1u;
    r.at += bytes;
    r.done += count;
    if (r.done < shape.length) return;
    r.done = 0;
    r.left--;
    r.tile += shape.wide;
    r.at += shape.wide * shape.tile_bytes - shape.length * step_bytes<F>();
    if (r.tile < shape.tiles || r.left == 0) return;
    while (r.tile >= shape.tiles) {
        r.tile -= shape.tiles;
        r.group++;
    }
    r.at = slice_at<F>(args, shape, r.group, r.tile);
}

// A warp's slice of a tile times up to 8 R rows.
template <u32 F, u32 R>
DEVICE void few_slice(const TileArgs& args, const FewShape& shape, FewReader<F>& reader, u32& stage, u32& parity,
    u32 ring, u32 signals, u64 policy, u32 exponents, u32 x, u32 zeros, u32 rows, u32 own, u32 lane, float (&sum)[R][4]) {
#pragma unroll
    for (u32 r = 0; r < R; r++)
        for (u32 i = 0; i < 4u; i++) sum[r][i] = 0.0f;
    // A lane's row of each eight, and its piece of the first 32 inputs; no row reads zeros.
    const u32 apart = rows * 128u, piece = ((lane / 8u) ^ (lane % 8u)) * 16u;
    u32 row_at[R], row_step[R], flip[R];
#pragma unroll
    for (u32 r = 0; r < R; r++) {
        const u32 row = r * 8u + lane % 8u;
        const bool there = row < rows;
        row_at[r] = there ? x + own * shape.length * apart + row * 128u + piece : zeros;
        row_step[r] = there ? apart : 0u;
        flip[r] = there ? 64u : 0u;
    }
    u32 step = 0;
    while (step < shape.length) {
        signal_wait(signals + stage * 8u, parity);
        u32 weights = ring + stage * args.chunk * step_bytes<F>();
        const u32 left = shape.length - step, count = left < args.chunk ? left : args.chunk;
        for (u32 i = 0; i < count; i++) {
            u32 a[4][4], pair = 0;
            if (F == FORMAT_FP8)
                pair = __shfl_sync(0xffffffffu, exponents, step + i);
            lift_step<F>(weights, lane, pair, a);
#pragma unroll
            for (u32 r = 0; r < R; r++) {
                u32 b[4], c[4];
                load_parts(row_at[r], b);
                load_parts(row_at[r] ^ flip[r], c);
                row_at[r] += row_step[r];
                multiply(sum[r], a[0], b[0], b[1]);
                multiply(sum[r], a[1], b[2], b[3]);
                multiply(sum[r], a[2], c[0], c[1]);
                multiply(sum[r], a[3], c[2], c[3]);
            }
            weights += step_bytes<F>();
        }
        __syncwarp();
        if (lane == 0) read_on(reader, args, shape, ring, signals, policy);
        step += count;
        stage++;
        if (stage == args.stages) {
            stage = 0;
            parity ^= 1u;
        }
    }
}

// The groups that have rows.
DEVICE u32 groups_in_use(const TileArgs& args) {
    if (!args.groups) return args.groups_max;
    u32 count = 0;
    for (u32 first = 0; first < args.groups_max; first += FEW_WARPS * 32u) {
        const u32 at = first + threadIdx.x;
        count += __syncthreads_count(at < args.groups_max && args.groups[at * 3u + 2u] > args.groups[at * 3u + 1u]);
    }
    return count;
}

// A lane's pair of scales of a tile's slice: those of step `lane`.
template <u32 F> DEVICE u32 scales_of(const TileArgs& args, const FewShape& shape, u32 group, u32 tile, u32 lane) {
    if (F != FORMAT_FP8 || lane >= shape.length) return 0;
    GLOBAL const u8* scales = args.weight + expert_of(args, group) * args.expert_bytes + shape.tiles * shape.tile_bytes;
    return *reinterpret_cast<GLOBAL const u16*>(scales + (u64(tile) * shape.steps + shape.slice * shape.length + lane) * 2u);
}

// Adds a tile's slices in order and writes its outputs; one warp.
DEVICE void add_slices(const TileArgs& args, u32 from, u32 a_slice, u32 group, u32 tile, u32 start, u32 rows, u32 lane) {
    const u32 output = tile * 16u + lane / 4u, slices = args.slices - (PLANTED(FAULT_TILE_DROPPED_SLICE) ? 1u : 0u);
    const Outputs to = outputs_of(args, group, start, output);
    for (u32 r = 0; r * 8u < rows; r++) {
        float total[4], next[4];
        u32 at = from + r * 512u + lane * 16u;
        load_floats(at, total);
#pragma unroll 4
        for (u32 s = 1; s < slices; s++) {
            load_floats(at + s * a_slice, next);
#pragma unroll
            for (u32 i = 0; i < 4u; i++) total[i] = total[i] + next[i];
        }
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            const u32 row = r * 8u + lane % 4u * 2u + i % 2u, down = i / 2u * 8u;
            if (row < rows && output + down < args.outputs) to.at[row * to.stride + down] = stored(total[i], args.round);
        }
    }
}

// F, the format; C, the groups that share the slices.
template <u32 F, u32 C> DEVICE void few(const TileArgs& args) {
    extern __shared__ __align__(1024) u8 shared[];
    const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u, rank = C == 1u ? 0u : blockIdx.y;
    const u32 local = args.slices / C, own = warp % local;
    FewShape shape;
    shape.steps = args.inputs / 64u;
    shape.length = shape.steps / args.slices;
    shape.tiles = (args.outputs + 15u) / 16u;
    shape.wide = FEW_WARPS / local;
    shape.slice = rank * local + own;
    shape.side = warp / local;
    shape.tile_bytes = u64(shape.steps) * step_bytes<F>();
    const bool works = shape.side < shape.wide;

    // Shared memory: zeros, the rings' signals, the sums' (full, free), sums, rows, rings.
    const u32 base = shared_address(shared), zeros = base, signals = base + 256u + warp * FEW_STAGES * 8u;
    const u32 full = base + 256u + FEW_WARPS * FEW_STAGES * 8u, free = full + FEW_WARPS * 16u, sums = free + FEW_WARPS * 16u;
    const u32 a_slice = (args.most_rows + 7u) / 8u * 512u, a_tile = args.slices * a_slice;
    const u32 x = sums + 2u * FEW_WARPS * a_slice, x_inputs = args.inputs / C;
    const u32 ring = x + args.most_rows * x_inputs * 2u + warp * args.stages * args.chunk * step_bytes<F>();
    if (threadIdx.x < 64u) reinterpret_cast<u32*>(shared)[threadIdx.x] = 0;
    if (lane == 0) {
        for (u32 i = 0; i < args.stages; i++) signal_new(signals + i * 8u, 1u);
        for (u32 i = 0; i < 2u; i++) {
            signal_new(full + (warp * 2u + i) * 8u, args.slices);
            signal_new(free + (warp * 2u + i) * 8u, 1u);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    dependents_may_start();
    const u64 policy = read_once();
    if (args.groups) wait_for_launches_before();
    const u32 all = groups_in_use(args) * shape.tiles;
    const u32 first = u32(u64(all) * blockIdx.x / gridDim.x), end = u32(u64(all) * (blockIdx.x + 1u) / gridDim.x);
    FewReader<F> reader{0, 0, 0, 0, 0, 0};
    if (works && lane == 0 && first + shape.side < end) {
        reader.left = (end - first - shape.side + shape.wide - 1u) / shape.wide;
        reader.group = (first + shape.side) / shape.tiles;
        reader.tile = (first + shape.side) % shape.tiles;
        reader.at = slice_at<F>(args, shape, reader.group, reader.tile);
        for (u32 i = 0; i < args.stages; i++) read_on(reader, args, shape, ring, signals, policy);
    }
    if (!args.groups) wait_for_launches_before();
    if (C > 1u) everyone();

    u32 stage = 0, parity = 0, turn = 0;
    for (u32 at = first; at < end;) {
        // The tiles of one group of rows.
        const u32 group = at / shape.tiles, begin = group * shape.tiles;
        const u32 last = end < begin + shape.tiles ? end : begin + shape.tiles;
        const u32 start = args.groups ? args.groups[group * 3u + 1u] : 0u;
        const u32 rows = args.groups ? args.groups[group * 3u + 2u] - start : args.rows;
        __syncthreads();
        const u32 pieces = x_inputs / 8u;
        for (u32 row = 0; row < rows; row++) {
            const u32 place = start + row - (PLANTED(FAULT_TILE_NEIGHBOUR_ROW) && row > 0 ? 1u : 0u);
            const u64 from = u64(args.list ? args.list[place] : place) * args.x_stride
                + u64(group) * args.x_step + rank * x_inputs;
            for (u32 piece = threadIdx.x; piece < pieces; piece += FEW_WARPS * 32u)
                copy16(x + (piece / 8u * rows + row) * 128u + ((piece % 8u) ^ (row % 8u)) * 16u, args.x + from * 2u + piece * 16u);
        }
        copies_commit();
        // A side's tiles follow one another across groups.
        u32 tile = first + shape.side + turn * shape.wide;
        u32 scales = works && tile < last ? scales_of<F>(args, shape, group, tile - begin, lane) : 0u;
        copies_wait<0>();
        __syncthreads();
        u32 waiting = 0;
        for (; works && tile < last; tile += shape.wide, turn++) {
            const u32 exponents = scales;
            if (tile + shape.wide < last) scales = scales_of<F>(args, shape, group, tile + shape.wide - begin, lane);
            // The group that adds it, which of that group's places, and how often it was used.
            const u32 adder = C == 1u ? 0u : turn % 2u, used = turn / 2u;
            const u32 place = C == 1u ? shape.side * 2u + turn % 2u : shape.side;
            const u32 freed = free + (shape.side * 2u + turn % 2u) * 8u;
            u32 to = sums + place * a_tile + shape.slice * a_slice + lane * 16u, filled = full + place * 8u;
            if (C > 1u) {
                to = place_in(to, adder);
                filled = place_in(filled, adder);
            }
#define FEW_ROWS(N)                                                                                            \
    {                                                                                                          \
        float sum[N][4];                                                                                       \
        few_slice<F, N>(args, shape, reader, stage, parity, ring, signals, policy, exponents, x, zeros, rows,  \
            own, lane, sum);                                                                                   \
        if (used > 0) signal_wait(freed, (used - 1u) & 1u);                                                    \
        _Pragma("unroll") for (u32 r = 0; r < N; r++) store_floats<C>(to + r * 512u, sum[r]);                   \
    }
            if (rows <= 8u) FEW_ROWS(1u)
            else if (rows <= 16u) FEW_ROWS(2u)
            else if (rows <= 24u) FEW_ROWS(3u)
            else FEW_ROWS(4u)
            if (C > 1u) asm volatile("fence.acq_rel.cluster;" ::: "memory");
            __syncwarp();
            if (lane == 0) signal_arrive<C>(filled);
            // The tile before, and at the end this one too.
            const u32 until = tile + shape.wide < last ? turn : turn + 1u;
            for (u32 due = turn - waiting; due < until; due++) {
                const u32 pass = C == 1u ? due : due / 2u;
                if ((C > 1u && due % 2u != rank) || pass % local != own) continue;
                const u32 due_place = C == 1u ? shape.side * 2u + due % 2u : shape.side;
                signal_wait(full + due_place * 8u, due / 2u & 1u);
                if (C > 1u) asm volatile("fence.acq_rel.cluster;" ::: "memory");
                const u32 due_tile = first + shape.side + due * shape.wide - begin;
                add_slices(args, sums + due_place * a_tile, a_slice, group, due_tile, start, rows, lane);
                __syncwarp();
                if (lane < C) {
                    const u32 signal = free + (shape.side * 2u + due % 2u) * 8u;
                    signal_arrive<C>(C == 1u ? signal : place_in(signal, lane));
                }
            }
            waiting = 1;
        }
        at = last;
    }
    if (C > 1u) everyone();
}

CUDA_KERNEL(tile_fp8_few, TileArgs, 512) { few<FORMAT_FP8, 1u>(args); }
CUDA_KERNEL(tile_fp4_few, TileArgs, 512) { few<FORMAT_FP4, 1u>(args); }
CUDA_KERNEL(tile_bf16_few, TileArgs, 512) { few<FORMAT_BF16, 1u>(args); }
CUDA_PAIR_KERNEL(tile_fp8_pair, TileArgs, 512) { few<FORMAT_FP8, 2u>(args); }
CUDA_PAIR_KERNEL(tile_fp4_pair, TileArgs, 512) { few<FORMAT_FP4, 2u>(args); }
CUDA_PAIR_KERNEL(tile_bf16_pair, TileArgs, 512) { few<FORMAT_BF16, 2u>(args); }
#endif
