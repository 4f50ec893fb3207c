// Products of 1 to 32 rows by FP4 weights, of 9 to 32 by others: what is read of the weights bounds them, and what is done to it.
//
// A group has four warpgroups that multiply, and for each of them a warp that brings. A warpgroup takes tiles by fours, each
// of its warps one, with all of its steps: sums stay in registers. Its warp that brings reads the tiles ahead, some steps of
// each at once, through a ring, across tiles, and before the launches it depends on have ended. While the tensor cores
// multiply a step the lanes read and lift the next. Where a group has few tiles so many warpgroups work as they need.
#pragma once
#ifdef HOPPER

// Lanes that multiply, and all.
#define WIDE_WORK 512u
#define WIDE_LANES 640u
#define WIDE_STAGES 8u
// Stages of a warpgroup that are on their way while it fills its ring, of up to 8 rows.
#define WIDE_AHEAD 2u

// Steps of each tile in a stage: a copy of less than 2 KB costs as much.
template <u32 F> DEVICE constexpr u32 wide_steps() { return step_bytes<F>() < 2048u ? 2u : 1u; }
template <u32 F> DEVICE constexpr u32 wide_tile() { return wide_steps<F>() * step_bytes<F>(); }

// Shared memory: the rows, the powers of two of their steps (`wide` of a row), this warpgroup's ring and its signals (each
// stage's that its bytes are there, each stage's that it is free), the table.
struct WidePlaces {
    u32 rows, powers, wide, ring, full, free, table;
};
// The stage that is next, and how the signals of its round turn.
struct WideTurn {
    u32 stage, parity;
};
DEVICE void go_on(WideTurn& turn, u32 stages) {
    turn.stage++;
    if (turn.stage < stages) return;
    turn.stage = 0;
    turn.parity ^= 1u;
}

// A warp's words of scales, which lie behind a weight's tiles: lane l has those of 32 steps, and of the 32 after them.
template <u32 F> struct WideScales {
    GLOBAL const u8* from;
    u32 now, next;
};
template <u32 F> DEVICE u32 scale_at(const WideScales<F>& scales, u32 step, u32 steps) {
    return scaled<F>() && step < steps ? *reinterpret_cast<GLOBAL const u32*>(scales.from + step * 4u) : 0u;
}

// A step's left operand, and what its parts are multiplied by.
struct WideStep {
    u32 a[4][4];
    float by[2];
};
template <u32 F> DEVICE void read_left(WideStep& to, u32 from, u32 scale, u32 table, u32 lane) {
    if constexpr (direct<F>()) {
        // Part p of an instruction has outputs 8 (p % 2).. and its inputs' 16 bytes p / 2.
        const u32 output = lane % 16u;
#pragma unroll
        for (u32 i = 0; i < 4u; i++) load_parts(from + output * 128u + ((2u * i + lane / 16u) ^ (output % 8u)) * 16u, to.a[i]);
        to.by[0] = to.by[1] = AS_FLOAT(scale) * (PLANTED(FAULT_TILE_WRONG_SCALE) ? 2.0f : 1.0f);
    } else {
        Codes<F> codes;
        load_words(from + lane * 16u, codes.word);
        load_words(from + 512u + lane * 16u, codes.word + 4);
        codes.scales = F == FORMAT_FP4 ? load_byte(from + 1024u + lane) : scale;
        if (F == FORMAT_FP4) fp4_multipliers(from, lane, to.by);
        lift_codes<F>(codes, table, to.a);
    }
}

// A warpgroup's tiles from `first` on to `last`, times a part of R rows' places.
template <u32 F, u32 R>
DEVICE void wide_multiply(const TileArgs& args, u32 steps, WideTurn& turn, const WidePlaces& places, GLOBAL const u8* scales_from, const FewPart& part,
    u32 first, u32 last) {
    constexpr u32 N = most(R, 8u), SUMS = N / 2u, STEPS = wide_steps<F>();
    const u32 lane = LANE % 32u, warp = LANE / 32u % 4u, column = lane % 4u * 2u;
    const u32 whole = steps - (PLANTED(FAULT_TILE_DROPPED_STEP) ? 1u : 0u);
    for (u32 four = first + LANE / 128u * 4u; four < last; four += args.chunk * 4u) {
        const u32 tile = four + warp;
        WideScales<F> scales{scales_from + u64(least(tile, last - 1u)) * steps * 4u, 0u, 0u};
        scales.next = scale_at<F>(scales, lane, steps);
        float total[SUMS];
#pragma unroll
        for (u32 i = 0; i < SUMS; i++) total[i] = 0.0f;
        // Columns without a row have the first one's: their sums are not kept.
        u32 powers = places.powers + (column < R ? column : 0u) * places.wide * 4u, rows = places.rows;
        const auto read = [&](WideStep& to, u32 from, u32 step) {
            if (scaled<F>() && step % 32u == 0) {
                scales.now = scales.next;
                scales.next = scale_at<F>(scales, step + 32u + lane, steps);
            }
            const u32 scale = scaled<F>() ? __shfl_sync(0xffffffffu, scales.now, step % 32u) : 0u;
            read_left<F>(to, from, scale, places.table, lane);
        };
        for (u32 step = 0; step < steps; step += STEPS) {
            const u32 from = places.ring + (turn.stage * 4u + warp) * wide_tile<F>();
            signal_wait(places.full + turn.stage * 8u, turn.parity);
            WideStep own[STEPS];
            read(own[0], from, step);
            if (STEPS == 1u) warp_arrives(places.free + turn.stage * 8u);
#pragma unroll
            for (u32 s = 0; s < STEPS; s++) {
                float d[SUMS], by[2u * ((R + 7u) / 8u)];
                const u64 right = rows_descriptor(rows);
                group_begin();
#pragma unroll
                for (u32 i = 0; i < 4u; i++) {
                    if constexpr (coded<F>()) multiply_codes<N>(d, own[s].a[i], right + i * 2u, i > 0);
                    else multiply_rows<N>(d, own[s].a[i], right + i * 2u, i > 0);
                }
                group_commit();
                if (s + 1u < STEPS) read(own[(s + 1u) % STEPS], from + (s + 1u) * step_bytes<F>(), step + s + 1u);
                else if (STEPS > 1u) warp_arrives(places.free + turn.stage * 8u);
#pragma unroll
                for (u32 i = 0; i < (R + 7u) / 8u && coded<F>(); i++) {
                    by[2u * i] = AS_FLOAT(load_word(powers + i * 32u * places.wide));
                    by[2u * i + 1u] = R == 1u ? 0.0f : AS_FLOAT(load_word(powers + (i * 8u + 1u) * places.wide * 4u));
                }
                powers += 4u;
                rows += R * 128u;
                group_wait<0>();
                if (step + s < whole) {
#pragma unroll
                    for (u32 i = 0; i < SUMS; i++) {
                        if constexpr (coded<F>()) total[i] = FMA(d[i] * own[s].by[i / 2u % 2u], by[i / 4u * 2u + i % 2u], total[i]);
                        else total[i] = total[i] + d[i];
                    }
                }
            }
            go_on(turn, args.stages);
        }
        const u32 output = tile * 16u + lane / 4u;
        if (tile >= last) continue;
        const Outputs to = outputs_of(args, part.group, part.start, output);
#pragma unroll
        for (u32 i = 0; i < SUMS; i++) {
            const u32 row = i / 4u * 8u + column + i % 2u, down = i / 2u % 2u * 8u;
            if (row < part.rows && output + down < args.outputs) to.at[row * to.stride + down] = stored(total[i], args.round);
        }
    }
}

// Waits for the launches before this one, and lets those come that depend on it: what starts from here on finds all that was
// there before this launch, or before the one that it runs beside.
DEVICE void wide_lets(const TileArgs& args, bool waited) {
    if (!waited && !args.beside) wait_for_launches_before();
    dependents_may_start();
}

// Brings so many tiles' stages from `from` on; one lane. `asked` counts all that were; once they fill the ring `lets` is called.
template <u32 F, u32 E, class L>
DEVICE void wide_bring_four(const TileArgs& args, u32 steps, const WidePlaces& places, GLOBAL const u8* from, u32 count, WideTurn& turn, u32& asked, const L& lets) {
    const u64 policy = read_once(), tile_bytes = u64(steps) * step_bytes<F>();
    for (u32 step = 0; step < steps; step += wide_steps<F>()) {
        const u32 bytes = least(wide_steps<F>(), steps - step) * step_bytes<F>(), signal = places.full + turn.stage * 8u;
        if (asked == args.stages) lets();
        asked++;
        if (E == 1u && asked > WIDE_AHEAD && asked <= args.stages) signal_wait(places.full + (asked - 1u - WIDE_AHEAD) * 8u, 0u);
        signal_wait(places.free + turn.stage * 8u, turn.parity);
        signal_expect(signal, bytes * count);
        for (u32 i = 0; i < count; i++)
            copy_bulk(places.ring + (turn.stage * 4u + i) * wide_tile<F>(), from + i * tile_bytes, bytes, signal, policy);
        from += bytes;
        go_on(turn, args.stages);
    }
}

// Brings warpgroup `own`'s stages of all parts; one lane.
template <u32 F, u32 E>
DEVICE void wide_bring(const TileArgs& args, u32 steps, u32 tiles, const FewParts& parts, const FewTiles& all, const WidePlaces& places, u32 own, bool waited) {
    const u64 tile_bytes = u64(steps) * step_bytes<F>();
    WideTurn turn = {0, 1u};
    u32 asked = 0;
    const auto lets = [&] { wide_lets(args, waited); };
    for (u32 at = all.first; at < all.end;) {
        const u32 part = at / tiles, last = least(all.end, (part + 1u) * tiles);
        for (u32 four = at + own * 4u; four < last; four += args.chunk * 4u) {
            GLOBAL const u8* from = weight_of(args, parts, part) + (four - part * tiles) * tile_bytes;
            wide_bring_four<F, E>(args, steps, places, from, least(4u, last - four), turn, asked, lets);
        }
        at = last;
    }
    if (asked <= args.stages) lets();
}

// Where things lie for a warpgroup, or for the warp that brings its weights.
template <u32 F, u32 E> DEVICE WidePlaces wide_places(const TileArgs& args, u32 base, u32 steps, u32 warpgroup) {
    const u32 most_places = few_places<E>(args.most_rows);
    WidePlaces places;
    places.wide = (steps + 7u) / 8u * 8u;
    places.rows = base;
    // One row's columns are eights of steps: those of the last step end past the rows.
    places.powers = places.rows + most_places * places.wide * 128u + 1024u;
    const u32 rings = places.powers + most_places * places.wide * 4u, ring_bytes = args.stages * 4u * wide_tile<F>();
    places.ring = rings + warpgroup * ring_bytes;
    places.table = rings + args.chunk * ring_bytes;
    places.full = places.table + TABLE_BYTES + warpgroup * WIDE_STAGES * 16u;
    places.free = places.full + WIDE_STAGES * 8u;
    return places;
}
// The signals of a ring; the warp that brings.
DEVICE void wide_signals(const WidePlaces& places, u32 stages, u32 lane) {
    if (lane < stages) {
        signal_new(places.full + lane * 8u, 1u);
        signal_new(places.free + lane * 8u, 4u * WARP_ARRIVALS);
    }
    signals_made();
}

// F, the format; E, the most eights of rows.
template <u32 F, u32 E> DEVICE void wide(const TileArgs& args) {
    LAUNCH_SHARED(__align__(1024) u8, shared);
    const u32 steps = args.inputs / step_inputs<F>(), tiles = (args.outputs + 15u) / 16u, lane = LANE % 32u;
    const bool waits = args.groups && !args.known, brings = LANE >= WIDE_WORK;
    const u32 warpgroup = brings ? (LANE - WIDE_WORK) / 32u : LANE / 128u;
    const WidePlaces places = wide_places<F, E>(args, shared_address(shared), steps, warpgroup);
    u32* counts = reinterpret_cast<u32*>(shared + (places.table + TABLE_BYTES + 4u * WIDE_STAGES * 16u - places.rows));
    u32* group_words = counts + WIDE_LANES / 32u;
    u16* part_words = reinterpret_cast<u16*>(group_words + FEW_GROUPS * 3u);
    const FewParts parts{part_words, group_words};
    if (brings) wide_signals(places, args.stages, lane);
    if (F == FORMAT_FP4 && LANE < 32u) write_table(places.table);
    if (waits) wait_for_launches_before();
    // Rows that are there come before the weights: they would wait behind all of those.
    const bool at_once = waits && few_same_row(args);
    if (at_once && !brings) few_rows<F, E, WIDE_WORK>(args, steps, FewPart{0, 0, 1u}, places.rows, places.powers, places.wide);
    u32 count = args.groups_max * parts_of_rows(args);
    if (args.groups) count = few_parts<E, WIDE_LANES>(args, part_words, group_words, counts);
    else __syncthreads();
    const FewTiles all = few_tiles(count, tiles, GROUP_X, GROUPS_X, 1u);
    if (brings) {
        // One lane: another that waited for launches would hold up the warp.
        if (lane == 0 && warpgroup < args.chunk) wide_bring<F, E>(args, steps, tiles, parts, all, places, warpgroup, waits);
        __syncwarp();
    } else {
        wide_lets(args, waits);
        WideTurn turn = {0, 0};
        for (u32 at = all.first; at < all.end;) {
            // The tiles of one part of the rows.
            const u32 own = at / tiles, last = least(all.end, (own + 1u) * tiles), before = own * tiles;
            const FewPart part = part_of<E>(args, parts, own);
            GLOBAL const u8* scales = weight_of(args, parts, own) + u64(tiles) * steps * step_bytes<F>();
            if (at > all.first) team_meets(1u, WIDE_WORK);
            if (at > all.first || !at_once) few_rows<F, E, WIDE_WORK>(args, steps, part, places.rows, places.powers, places.wide);
            copies_wait<0>();
            copies_shown();
            team_meets(1u, WIDE_WORK);
#define WIDE_ROWS(R)                                                                                          \
    {                                                                                                        \
        if (LANE / 128u < args.chunk) wide_multiply<F, R>(args, steps, turn, places, scales, part, at - before, last - before); \
    }
            const u32 rows = few_places<E>(part.rows);
            if (E == 1u) {
                if (rows == 1u) WIDE_ROWS(1u)
                else if (rows == 2u) WIDE_ROWS(2u)
                else if (rows == 4u) WIDE_ROWS(4u)
                else WIDE_ROWS(8u)
            } else {
                if (rows == 8u) WIDE_ROWS(8u)
                else if (rows == 16u) WIDE_ROWS(16u)
                else if (rows == 24u) WIDE_ROWS(24u)
                else WIDE_ROWS(32u)
            }
            at = last;
        }
    }
    // What waits for this launch waits for the one beside it; one group is enough, the others leave their room.
    __syncwarp();
    if (args.beside && GROUP_X == 0) wait_for_launches_before();
}

CUDA_FULL_KERNEL(tile_fp4_few, TileArgs, WIDE_LANES) { wide<FORMAT_FP4, 1u>(args); }
CUDA_FULL_KERNEL(tile_fp4_some, TileArgs, WIDE_LANES) { wide<FORMAT_FP4, 4u>(args); }
CUDA_FULL_KERNEL(tile_fp8_some, TileArgs, WIDE_LANES) { wide<FORMAT_FP8, 4u>(args); }
CUDA_FULL_KERNEL(tile_bf16_some, TileArgs, WIDE_LANES) { wide<FORMAT_BF16, 4u>(args); }
CUDA_FULL_KERNEL(tile_lifted_some, TileArgs, WIDE_LANES) { wide<FORMAT_LIFTED, 4u>(args); }
#endif
