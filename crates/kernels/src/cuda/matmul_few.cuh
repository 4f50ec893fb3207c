// Products of 1 to 32 rows: bound by the reading of the weights.
//
// A group has 16 warps. As many as there are slices share T tiles, one slice each; as many such teams
// work side by side as fit. A warp reads its slices ahead through a ring of its own, across tiles, and
// before the launches it depends on have ended. It leaves its sums in shared memory and goes on; a turn
// later one warp of the team, another each time, adds them. No warp waits for all others but where the
// rows change; groups are shared out so that few of them meet that. Two groups of a cluster may share the slices: then the odd turns are added in the second.
//
// Rows lie in shared memory, 128 bytes of a row for each step of 64 inputs, the 16-byte pieces of row r
// in the places piece ^ (r % 8).
#pragma once
#ifdef HOPPER

#define FEW_STAGES 8u
#define FEW_PARTS 1024u
#define FEW_GROUPS 512u
#define FEW_AT_ONCE 2u
#define FEW_WARPS 16u

struct FewShape {
    u32 steps;     // of 64 inputs, in all
    u32 length;    // steps of a slice
    u32 tiles;     // of 16 outputs
    u32 apart;     // from a team's tiles to its next
    u32 slice, skip;
    u64 tile_bytes;
};

DEVICE u32 least(u32 a, u32 b) { return a < b ? a : b; }

// Reads a warp's slices in order, turn after turn; one lane's.
template <u32 F> struct FewReader {
    u32 tile, last, end;   // of all tiles of all parts: the next, where its part ends, where all end
    u32 part, done, stage;
    GLOBAL const u8* at;
};

// The parts of the rows: part i is group `part[i] % 512`, from its row 8 E (part[i] / 512) on. `groups` has the
// (weight, first place, end) of each group where there are several.
struct FewParts {
    const u16* part;
    const u32* groups;
};
struct FewPart {
    u32 group, start, rows;
};
template <u32 E> DEVICE FewPart part_of(const TileArgs& args, const FewParts& parts, u32 part) {
    const u32 group = parts.part[part] % 512u;
    if (!args.groups) return FewPart{group, 0, args.rows};
    const u32 start = parts.groups[group * 3u + 1u] + parts.part[part] / 512u * 8u * E;
    return FewPart{group, start, least(parts.groups[group * 3u + 2u] - start, 8u * E)};
}

// The weight of a part of the rows.
DEVICE u32 expert_of(const TileArgs& args, const FewParts& parts, u32 part) {
    const u32 group = parts.part[part] % 512u;
    return args.groups ? parts.groups[group * 3u] : group;
}
// Where a warp's slice of a tile begins.
template <u32 F> DEVICE GLOBAL const u8* slice_at(const TileArgs& args, const FewShape& shape, const FewParts& parts, u32 part, u32 tile) {
    return args.weight + expert_of(args, parts, part) * args.expert_bytes + (tile - part * shape.tiles) * shape.tile_bytes
        + shape.slice * shape.length * step_bytes<F>();
}

// Asks for the next bytes of the warp's slices, if there are more.
template <u32 F, u32 T>
DEVICE void read_on(FewReader<F>& r, const TileArgs& args, const FewShape& shape, const FewParts& parts, u32 ring, u32 signals, u64 policy) {
    if (r.tile >= r.end) return;
    const u32 bytes = least(shape.length - r.done, args.chunk) * step_bytes<F>(), count = least(r.last - r.tile, T);
    const u32 signal = signals + r.stage * 8u, to = ring + r.stage * T * args.chunk * step_bytes<F>();
    signal_expect(signal, bytes * count);
    copy_bulk(to, r.at, bytes, signal, policy);
    if (T > 1u && count > 1u) copy_bulk(to + args.chunk * step_bytes<F>(), r.at + shape.tile_bytes, bytes, signal, policy);
    r.stage = r.stage + 1u == args.stages ? 0u : r.stage + 1u;
    r.at += bytes;
    r.done += args.chunk;
    if (r.done < shape.length) return;
    r.done = 0;
    r.tile += shape.apart;
    r.at += shape.apart * shape.tile_bytes - shape.length * step_bytes<F>();
    if (r.tile < r.last) return;
    while (r.last < r.end) {
        r.part++;
        r.tile = r.last + shape.skip;
        r.last = least(r.end, r.last + shape.tiles);
        if (r.tile < r.last) {
            r.at = slice_at<F>(args, shape, parts, r.part, r.tile);
            return;
        }
    }
    r.tile = r.end;
}

// Where a lane reads its rows: for each eight the place of its row's first piece, from one step to the next, and
// what leads to the other half of a step.
template <u32 R> struct FewRows {
    u32 at[R], step[R], flip[R];
};

// S steps from `step` on: all is on its way before the first is lifted.
template <u32 F, u32 T, u32 R, u32 S>
DEVICE void few_steps(FewRows<R>& rows, u32 weights, u32 apart, const u32 (&powers)[T], u32 step, u32 lane, float (&sum)[T][R][4]) {
    Codes<F> codes[S][T];
    u32 b[S][R][4], c[S][R][4];
#pragma unroll
    for (u32 s = 0; s < S; s++) {
#pragma unroll
        for (u32 t = 0; t < T; t++) {
            const u32 by = F == FORMAT_FP8 ? __shfl_sync(0xffffffffu, powers[t], step + s) : 0;
            read_step<F>(weights + t * apart + s * step_bytes<F>(), lane, by, codes[s][t]);
        }
#pragma unroll
        for (u32 r = 0; r < R; r++) {
            load_parts(rows.at[r], b[s][r]);
            load_parts(rows.at[r] ^ rows.flip[r], c[s][r]);
            rows.at[r] += rows.step[r];
        }
    }
#pragma unroll
    for (u32 s = 0; s < S; s++)
#pragma unroll
        for (u32 t = 0; t < T; t++) {
            u32 a[4][4];
            lift_codes<F>(codes[s][t], a);
#pragma unroll
            for (u32 r = 0; r < R; r++) {
                multiply(sum[t][r], a[0], b[s][r][0], b[s][r][1]);
                multiply(sum[t][r], a[1], b[s][r][2], b[s][r][3]);
                multiply(sum[t][r], a[2], c[s][r][0], c[s][r][1]);
                multiply(sum[t][r], a[3], c[s][r][2], c[s][r][3]);
            }
        }
}

// A warp's slice of T tiles times up to 8 R rows; past the last tile sums of nothing that is kept.
template <u32 F, u32 T, u32 R>
DEVICE void few_slice(const TileArgs& args, const FewShape& shape, const FewParts& parts, FewReader<F>& reader, u32& stage, u32& parity,
    u32 ring, u32 signals, u64 policy, const u32 (&powers)[T], u32 x, u32 zeros, u32 rows, u32 lane,
    float (&sum)[T][R][4]) {
#pragma unroll
    for (u32 t = 0; t < T; t++)
        for (u32 r = 0; r < R; r++)
            for (u32 i = 0; i < 4u; i++) sum[t][r][i] = 0.0f;
    // A lane's row of each eight, and its piece of the first 32 inputs; no row reads zeros.
    constexpr u32 AT_ONCE = R == 1u ? FEW_AT_ONCE : 1u;
    const u32 apart = rows * 128u, piece = ((lane / 8u) ^ (lane % 8u)) * 16u;
    FewRows<R> places;
#pragma unroll
    for (u32 r = 0; r < R; r++) {
        const u32 row = r * 8u + lane % 8u;
        const bool there = row < rows;
        places.at[r] = there ? x + row * 128u + piece : zeros;
        places.step[r] = there ? apart : 0u;
        places.flip[r] = there ? 64u : 0u;
    }
    for (u32 step = 0; step < shape.length;) {
        signal_wait(signals + stage * 8u, parity);
        u32 weights = ring + stage * T * args.chunk * step_bytes<F>();
        const u32 until = least(shape.length, step + args.chunk);
        const u32 beside = args.chunk * step_bytes<F>();
#pragma unroll 1
        for (; AT_ONCE > 1u && step + AT_ONCE <= until; step += AT_ONCE) {
            few_steps<F, T, R, AT_ONCE>(places, weights, beside, powers, step, lane, sum);
            weights += AT_ONCE * step_bytes<F>();
        }
#pragma unroll 1
        for (; step < until; step++) {
            few_steps<F, T, R, 1u>(places, weights, beside, powers, step, lane, sum);
            weights += step_bytes<F>();
        }
        __syncwarp();
        if (lane == 0) read_on<F, T>(reader, args, shape, parts, ring, signals, policy);
        stage++;
        if (stage == args.stages) {
            stage = 0;
            parity ^= 1u;
        }
    }
}

// Cuts the groups' rows into parts of up to 8 E. Returns how many there are; every lane of the group.
template <u32 E> DEVICE u32 few_parts(const TileArgs& args, u16* parts, u32* groups, u32* counts) {
    const u32 thread = LANE, lane = thread % 32u, warp = thread / 32u;
    u32 own = 0;
    if (thread < args.groups_max) {
        own = 1u;
        if (args.groups) {
            const u32 weight = args.groups[thread * 3u], start = args.groups[thread * 3u + 1u], end = args.groups[thread * 3u + 2u];
            groups[thread * 3u] = weight, groups[thread * 3u + 1u] = start, groups[thread * 3u + 2u] = end;
            own = (end - start + 8u * E - 1u) / (8u * E);
        }
    }
    u32 before = own;
#pragma unroll
    for (u32 apart = 1; apart < 32u; apart *= 2u) {
        const u32 other = __shfl_up_sync(0xffffffffu, before, apart);
        if (lane >= apart) before += other;
    }
    if (lane == 31u) counts[warp] = before;
    __syncthreads();
    u32 all = 0;
    before -= own;
    for (u32 i = 0; i < FEW_WARPS; i++) {
        if (i < warp) before += counts[i];
        all += counts[i];
    }
    for (u32 i = 0; i < own; i++) parts[before + i] = u16(thread | (i << 9));
    __syncthreads();
    return all;
}

// A lane's scales of the tiles' slices: those of step `lane`, two a word.
template <u32 F, u32 T>
DEVICE void scales_of(const TileArgs& args, const FewShape& shape, const FewParts& parts, u32 part, u32 tile, u32 last, u32 lane,
    u32 (&to)[T]) {
    if (F != FORMAT_FP8) return;
    GLOBAL const u8* scales = args.weight + expert_of(args, parts, part) * args.expert_bytes + shape.tiles * shape.tile_bytes
        + (shape.slice * shape.length + lane) * 2u;
#pragma unroll
    for (u32 t = 0; t < T; t++)
        if (lane < shape.length && tile + t < last)
            to[t] = *reinterpret_cast<GLOBAL const u16*>(scales + u64(tile + t - part * shape.tiles) * shape.steps * 2u);
}

// Whether one row is every place's.
DEVICE bool few_same_row(const TileArgs& args) { return args.list && args.rows == 1u; }

// Asks for the rows of a part, or for the group's inputs of them.
DEVICE void few_rows(const TileArgs& args, const FewPart& own, u32 first_input, u32 inputs, u32 to) {
    for (u32 row = 0; row < own.rows; row++) {
        const u32 place = own.start + row - (PLANTED(FAULT_TILE_NEIGHBOUR_ROW) && row > 0 ? 1u : 0u);
        const u32 at = few_same_row(args) ? 0u : args.list ? args.list[place] : place;
        const u64 from = u64(at) * args.x_stride + u64(own.group) * args.x_step + first_input;
        for (u32 piece = LANE; piece < inputs / 8u; piece += FEW_WARPS * 32u)
            copy16(to + (piece / 8u * own.rows + row) * 128u + ((piece % 8u) ^ (row % 8u)) * 16u, args.x + from * 2u + piece * 16u);
    }
    copies_commit();
}

// The tiles of a group, of all parts: its share of one part where that takes no more turns of so many tiles than its
// share of all, which may lie in two.
struct FewTiles {
    u32 first, end;
};
DEVICE FewTiles shared_out(u32 first, u32 tiles, u32 own, u32 shares) {
    const u32 each = tiles / shares, more = tiles % shares;
    return FewTiles{first + own * each + least(own, more), first + (own + 1u) * each + least(own + 1u, more)};
}
DEVICE u32 turns_of(u32 tiles, u32 shares, u32 turn) { return ((tiles + shares - 1u) / shares + turn - 1u) / turn; }
DEVICE FewTiles few_tiles(u32 parts, u32 tiles, u32 own, u32 groups, u32 turn) {
    const u32 shares = parts > 0 ? groups / parts : 0;
    if (shares == 0 || turns_of(tiles, shares, turn) > turns_of(parts * tiles, groups, turn)) return shared_out(0, parts * tiles, own, groups);
    if (own / shares >= parts) return FewTiles{0, 0};
    return shared_out(own / shares * tiles, tiles, own % shares, shares);
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

// F, the format; C, the groups that share the slices; T, the tiles of a team's turn; E, the most eights of
// rows.
template <u32 F, u32 C, u32 T, u32 E> DEVICE void few(const TileArgs& args) {
    LAUNCH_SHARED(__align__(1024) u8, shared);
    const u32 lane = LANE % 32u, warp = LANE / 32u, rank = C == 1u ? 0u : GROUP_Y;
    const u32 local = args.slices / C, own = warp % local, side = warp / local, wide = FEW_WARPS / local;
    FewShape shape;
    shape.steps = args.inputs / 64u;
    shape.length = shape.steps / args.slices;
    shape.tiles = (args.outputs + 15u) / 16u;
    shape.apart = wide * T;
    shape.slice = rank * local + own;
    shape.skip = side * T;
    shape.tile_bytes = u64(shape.steps) * step_bytes<F>();
    const bool works = side < wide;

    // Shared memory: zeros and counts, parts, the rings' signals, the sums' (full, free), sums, rows, rings.
    u32* counts = reinterpret_cast<u32*>(shared + 64u);
    u16* part_words = reinterpret_cast<u16*>(shared + 128u);
    u32* group_words = reinterpret_cast<u32*>(shared + 128u + FEW_PARTS * 2u);
    const FewParts parts{part_words, group_words};
    const u32 base = shared_address(shared), zeros = base, full = base + 128u + FEW_PARTS * 2u + FEW_GROUPS * 12u, free = full + FEW_WARPS * 16u;
    const u32 signals = free + FEW_WARPS * 16u + warp * FEW_STAGES * 8u, sums = free + FEW_WARPS * (16u + FEW_STAGES * 8u);
    const u32 a_slice = (args.most_rows + 7u) / 8u * 512u, a_tile = args.slices * a_slice, a_turn = T * a_tile;
    const u32 rows_at = sums + 2u * FEW_WARPS * T * a_slice, x_inputs = args.inputs / C;
    const u32 ring = rows_at + args.most_rows * x_inputs * 2u + warp * args.stages * T * args.chunk * step_bytes<F>();
    if (LANE < 4u) reinterpret_cast<u32*>(shared)[LANE] = 0;
    if (lane == 0) {
        for (u32 i = 0; i < args.stages; i++) signal_new(signals + i * 8u, 1u);
        for (u32 i = 0; i < 2u; i++) {
            signal_new(full + (warp * 2u + i) * 8u, C == 1u ? args.slices * WARP_ARRIVALS : 1u);
            signal_new(free + (warp * 2u + i) * 8u, WARP_ARRIVALS);
        }
        signals_made();
    }
    __syncwarp();
    const u64 policy = read_once();
    const bool waits = args.groups && !args.known;
    if (waits) wait_for_launches_before();
    // Rows that are there come before the weights: they would wait behind all of those.
    const bool at_once = waits && few_same_row(args);
    if (at_once) few_rows(args, FewPart{0, 0, 1u}, rank * x_inputs, x_inputs, rows_at);
    const u32 count = few_parts<E>(args, part_words, group_words, counts);
    const FewTiles tiles = few_tiles(count, shape.tiles, GROUP_X, GROUPS_X, shape.apart);
    const u32 first = tiles.first, end = tiles.end;
    if (waits && !at_once && first < end) few_rows(args, part_of<E>(args, parts, first / shape.tiles), rank * x_inputs, x_inputs, rows_at);
    FewReader<F> reader{end, end, end, 0, 0, 0, 0};
    if (works && lane == 0 && first < end) {
        reader.part = first / shape.tiles;
        reader.last = least(end, (reader.part + 1u) * shape.tiles);
        reader.tile = first + shape.skip;
        while (reader.tile >= reader.last && reader.last < end) {
            reader.part++;
            reader.tile = reader.last + shape.skip;
            reader.last = least(end, reader.last + shape.tiles);
        }
        if (reader.tile >= reader.last) reader.tile = end;
        else reader.at = slice_at<F>(args, shape, parts, reader.part, reader.tile);
        for (u32 i = 0; i < args.stages; i++) read_on<F, T>(reader, args, shape, parts, ring, signals, policy);
    }
    if (!waits && !args.beside) wait_for_launches_before();
    // What starts from here on finds all that was there before this launch, or before the one that it runs beside.
    dependents_may_start();
    if (C > 1u) everyone();

    // The next turn that this warp adds.
    u32 duty = C == 1u ? own : own * 2u + rank;
    u32 stage = 0, parity = 0, turn = 0;
    for (u32 at = first; at < end;) {
        // The tiles of one part of the rows.
        const u32 part = at / shape.tiles, last = least(end, (part + 1u) * shape.tiles);
        const FewPart mine = part_of<E>(args, parts, part);
        const u32 group = mine.group, start = mine.start, rows = mine.rows;
        if (at > first || !waits) {
            __syncthreads();
            few_rows(args, mine, rank * x_inputs, x_inputs, rows_at);
        }
        u32 tile = at + shape.skip, scales[T] = {};
        if (works && tile < last) scales_of<F, T>(args, shape, parts, part, tile, last, lane, scales);
        copies_wait<0>();
        __syncthreads();
        const u32 x = rows_at + own * shape.length * rows * 128u;
        bool before = false;
        for (; works && tile < last; tile += shape.apart, turn++) {
            u32 powers[T];
#pragma unroll
            for (u32 t = 0; t < T; t++) powers[t] = F == FORMAT_FP8 ? multipliers_of(scales[t]) : 0u;
            const bool more = tile + shape.apart < last;
            if (more) scales_of<F, T>(args, shape, parts, part, tile + shape.apart, last, lane, scales);
            // Where the turn's sums go, in the group that adds them.
            const u32 place = C == 1u ? side * 2u + turn % 2u : side, freed = free + (side * 2u + turn % 2u) * 8u;
            u32 to = sums + place * a_turn + shape.slice * a_slice + lane * 16u, filled = full + place * 8u;
            if (C > 1u) {
                to = place_in(to, turn % 2u);
                filled = place_in(filled, turn % 2u);
            }
#define FEW_ROWS(R)                                                                                            \
    {                                                                                                          \
        float sum[T][R][4];                                                                                    \
        few_slice<F, T, R>(args, shape, parts, reader, stage, parity, ring, signals, policy, powers, x, zeros,     \
            rows, lane, sum);                                                                                  \
        if (turn >= 2u) signal_wait_all<C>(freed, (turn / 2u - 1u) & 1u);                                      \
        /* Between groups, stores count as bytes: the signal waits for those of all slices. */                 \
        if (C > 1u && rank == turn % 2u && own == 0 && lane == 0)                                              \
            signal_expect(full + place * 8u, args.slices * T * R * 512u);                                      \
        _Pragma("unroll") for (u32 t = 0; t < T; t++)                                                           \
            _Pragma("unroll") for (u32 r = 0; r < R; r++)                                                       \
                store_floats<C>(to + t * a_tile + r * 512u, sum[t][r], filled);                                 \
    }
            if (E == 1u || rows <= 8u) FEW_ROWS(1u)
            else if (rows <= 16u) FEW_ROWS(2u)
            else if (rows <= 24u) FEW_ROWS(3u)
            else FEW_ROWS(4u)
            if (C == 1u) warp_arrives<C>(filled);
            // The turn before, and at the end this one too.
            for (u32 due = before ? turn - 1u : turn; due < (more ? turn : turn + 1u); due++) {
                if (due != duty) continue;
                duty += local * C;
                const u32 from = C == 1u ? side * 2u + due % 2u : side, due_tile = tile - (turn - due) * shape.apart;
                signal_wait_all<C>(full + from * 8u, due / 2u & 1u);
                for (u32 t = 0; t < T && due_tile + t < last; t++)
                    add_slices(args, sums + from * a_turn + t * a_tile, a_slice, group,
                        due_tile + t - part * shape.tiles, start, rows, lane);
                const u32 signal = free + (side * 2u + due % 2u) * 8u;
                for (u32 i = 0; i < C; i++) warp_arrives<C>(C == 1u ? signal : place_in(signal, i));
            }
            before = true;
        }
        at = last;
    }
    if (C > 1u) everyone();
    // What waits for this launch waits for the one beside it.
    if (args.beside) wait_for_launches_before();
}

CUDA_FULL_KERNEL(tile_fp8_few, TileArgs, 512) { few<FORMAT_FP8, 1u, 2u, 1u>(args); }
CUDA_FULL_KERNEL(tile_fp4_few, TileArgs, 512) { few<FORMAT_FP4, 1u, 2u, 1u>(args); }
CUDA_FULL_KERNEL(tile_bf16_few, TileArgs, 512) { few<FORMAT_BF16, 1u, 2u, 1u>(args); }
CUDA_FULL_KERNEL(tile_fp8_some, TileArgs, 512) { few<FORMAT_FP8, 1u, 1u, 4u>(args); }
CUDA_FULL_KERNEL(tile_fp4_some, TileArgs, 512) { few<FORMAT_FP4, 1u, 1u, 4u>(args); }
CUDA_FULL_KERNEL(tile_bf16_some, TileArgs, 512) { few<FORMAT_BF16, 1u, 1u, 4u>(args); }
CUDA_PAIR_KERNEL(tile_fp8_pair, TileArgs, 512) { few<FORMAT_FP8, 2u, 1u, 4u>(args); }
CUDA_PAIR_KERNEL(tile_fp4_pair, TileArgs, 512) { few<FORMAT_FP4, 2u, 1u, 4u>(args); }
CUDA_PAIR_KERNEL(tile_bf16_pair, TileArgs, 512) { few<FORMAT_BF16, 2u, 1u, 4u>(args); }
#endif
