// Products of many rows.
//
// A group takes pieces of work, outputs times some rows, one after another. The last of its warpgroups brings steps into
// rings of shared memory and runs ahead, into the next piece too. The others multiply, one of them beside the tensor
// cores' work for the other. Codes that are lifted to registers are the left operand: a warpgroup has 128 outputs and
// all rows of a piece. Where tiles are multiplied as they lie, rows are the left operand: a warpgroup has 64 rows and all
// outputs, so that a lane has two rows' scales and shared memory is read least.
#pragma once
#ifdef HOPPER

#define MANY_BRING 128u  // lanes that bring
#define MANY_PANEL 16u   // pieces side by side that are done together, of one weight
#define MANY_GROUPS 1024u

// Warpgroups that multiply, the registers of their lanes and of those that bring, and the most tiles of a piece.
#define MANY_TEAMS 2u
#define MANY_THREADS (MANY_TEAMS * 128u + MANY_BRING)
template <u32 F> DEVICE constexpr u32 many_registers() { return direct<F>() ? 224u : 232u; }
template <u32 F> DEVICE constexpr u32 bring_registers() { return direct<F>() ? 56u : 40u; }
#define MANY_TILES 16u

// Most rows of a piece, and places for them. A launch may take fewer, or fewer tiles where rows are the left operand, so
// that its last turn is as full as the others.
template <u32 F> DEVICE constexpr u32 many_rows() { return direct<F>() ? 128u : 80u; }
template <u32 F> DEVICE constexpr u32 many_places() { return direct<F>() ? 128u : 84u; }
template <u32 F> DEVICE u32 rows_of_piece(const TileArgs& args) { return direct<F>() ? many_rows<F>() : args.chunk; }
template <u32 F> DEVICE u32 tiles_of_piece(const TileArgs& args) { return direct<F>() ? args.chunk / 16u : MANY_TILES; }

// A ring of shared memory, and a place in it; `parity` turns with each round.
template <u32 STAGES, u32 BYTES> struct ManyRing {
    static constexpr u32 stages = STAGES, bytes = BYTES;
    u32 base, full, free, stage, parity, four;
};
template <u32 S, u32 B> DEVICE u32 stage_of(const ManyRing<S, B>& ring) { return ring.base + ring.stage * B; }
template <u32 S, u32 B> DEVICE u32 full_of(const ManyRing<S, B>& ring) { return ring.full + ring.stage * 8u; }
template <u32 S, u32 B> DEVICE u32 free_of(const ManyRing<S, B>& ring) { return ring.free + ring.stage * 8u; }
template <u32 S, u32 B> DEVICE void next_stage(ManyRing<S, B>& ring) {
    ring.stage++;
    if (ring.stage < S) return;
    ring.stage = 0;
    ring.parity ^= 1u;
}

// Where rows are the left operand one ring has all of a step: rows, tiles, the tiles' scales.
template <u32 F> DEVICE constexpr u32 tiles_in_stage() { return many_places<F>() * 128u; }
template <u32 F> DEVICE constexpr u32 tile_scales_in_stage() { return tiles_in_stage<F>() + MANY_TILES * step_bytes<F>(); }
template <u32 F> DEVICE constexpr u32 many_stage() { return (tile_scales_in_stage<F>() + MANY_TILES * 4u + 1023u) / 1024u * 1024u; }
template <u32 F> using StepRing = ManyRing<4u, many_stage<F>()>;

// Else tiles have a ring of their own, two steps at a time: memory gives a tile's bytes best so. The rows' has a step's rows,
// their scales, the tiles'.
template <u32 F> DEVICE constexpr u32 tile_in_stage() { return 2u * step_bytes<F>(); }
template <u32 F> DEVICE constexpr u32 row_scales() { return many_places<F>() * 128u; }
template <u32 F> DEVICE constexpr u32 tile_scales() { return row_scales<F>() + many_places<F>() * 4u; }
template <u32 F> using TileRing = ManyRing<5u, MANY_TILES * tile_in_stage<F>()>;
template <u32 F> using RowRing = ManyRing<4u, (tile_scales<F>() + MANY_TILES * 4u + 1023u) / 1024u * 1024u>;

// Bytes for the rings' signals.
#define MANY_SIGNALS 256u

// Rows `first` to `first + rows` of a group, by a weight's tiles from `tile` on. No rows: the end.
struct Piece {
    u32 group, expert, start, first, rows, tile;
};

// A piece in shared memory, beside a signal that it is there and one that it is read.
#define MANY_PIECES 2u
#define MANY_PIECE 64u
DEVICE u32 piece_there(u32 at) { return at + 32u; }
DEVICE u32 piece_read(u32 at) { return at + 40u; }
DEVICE void store_piece(u32 at, const Piece& piece) {
    store_word(at, piece.group);
    store_word(at + 4u, piece.expert);
    store_word(at + 8u, piece.start);
    store_word(at + 12u, piece.first);
    store_word(at + 16u, piece.rows);
    store_word(at + 20u, piece.tile);
}
DEVICE Piece load_piece(u32 at) {
    return Piece{load_word(at), load_word(at + 4u), load_word(at + 8u), load_word(at + 12u), load_word(at + 16u), load_word(at + 20u)};
}

// Where the scales of all rows' next four steps lie, if rows are the left operand: behind the ring. Four steps fill it, so that
// as many such places suffice.
template <u32 F> DEVICE u32 next_four(StepRing<F>& ring) {
    ring.four = ring.four % 4u + 1u;
    return ring.base + 4u * many_stage<F>() + (ring.four - 1u) * many_places<F>() * 16u;
}

// Writes the parts of the rows before each group's, and at the end all; every lane of the group.
template <u32 F> DEVICE void many_parts(const TileArgs& args, u32 at) {
    const u32 lane = LANE % 32u, each = (args.groups_max + 31u) / 32u, most = rows_of_piece<F>(args);
    for (u32 i = LANE; i < args.groups_max; i += MANY_THREADS)
        store_word(at + i * 4u, (args.groups[i * 3u + 2u] - args.groups[i * 3u + 1u] + most - 1u) / most);
    __syncthreads();
    if (LANE < 32u) {
        u32 own = 0;
        for (u32 i = lane * each; i < least(args.groups_max, lane * each + each); i++) own += load_word(at + i * 4u);
        u32 before = own;
#pragma unroll
        for (u32 apart = 1; apart < 32u; apart *= 2u) {
            const u32 other = __shfl_up_sync(0xffffffffu, before, apart);
            if (lane >= apart) before += other;
        }
        if (lane == 31u) store_word(at + args.groups_max * 4u, before);
        before -= own;
        for (u32 i = lane * each; i < least(args.groups_max, lane * each + each); i++) {
            const u32 parts = load_word(at + i * 4u);
            store_word(at + i * 4u, before);
            before += parts;
        }
    }
    __syncthreads();
}

// The pieces of this group, in order. Those that run at once share rows and weights.
template <u32 F, class Do> DEVICE void many_pieces(const TileArgs& args, u32 before, const Do& one) {
    const u32 wide = tiles_of_piece<F>(args), across = (args.outputs + wide * 16u - 1u) / (wide * 16u), most = rows_of_piece<F>(args);
    const u32 parts = args.groups ? load_word(before + args.groups_max * 4u) : (args.rows + most - 1u) / most;
    const u32 all = across * parts * (args.groups ? 1u : args.groups_max);
    for (u32 at = GROUP_X; at < all; at += GROUPS_X) {
        Piece piece;
        u32 column = at % across, part = at / across, rows = args.rows, cut = parts;
        if (args.groups) {
            u32 low = 0, high = args.groups_max;
            while (high - low > 1u) {
                const u32 middle = (low + high) / 2u;
                if (load_word(before + middle * 4u) <= part) low = middle;
                else high = middle;
            }
            piece.group = low;
            piece.expert = args.groups[low * 3u];
            piece.start = args.groups[low * 3u + 1u];
            part -= load_word(before + low * 4u);
            cut = load_word(before + low * 4u + 4u) - load_word(before + low * 4u);
            rows = args.groups[low * 3u + 2u] - piece.start;
        } else {
            const u32 within = at % (across * parts), panel = within / (MANY_PANEL * parts) * MANY_PANEL;
            const u32 columns = least(across - panel, MANY_PANEL), place = within - panel * parts;
            piece.group = piece.expert = at / (across * parts);
            piece.start = 0;
            column = panel + place % columns;
            part = place / columns;
        }
        // Parts as equal as can be: a small one costs nearly what a large one does.
        piece.tile = column * wide;
        piece.first = rows * part / cut;
        piece.rows = rows * (part + 1u) / cut - piece.first;
        one(piece);
    }
}

// Says what the pieces are; the first of the lanes that bring.
DEVICE void say_piece(u32 pieces, u32& count, const Piece& piece) {
    const u32 at = pieces + count % MANY_PIECES * MANY_PIECE;
    if (LANE % MANY_BRING == 0) {
        signal_wait(piece_read(at), count / MANY_PIECES % 2u ^ 1u);
        store_piece(at, piece);
        signal_arrive(piece_there(at));
    }
    count++;
}

// Where a row of a piece lies; past the last it is that one, whose sums are not kept. A launch's rows lie within 4 GiB.
DEVICE u32 row_of(const TileArgs& args, const Piece& piece, u32 row) {
    const u32 own = piece.first + least(row, piece.rows - 1u);
    const u32 place = piece.start + own - (PLANTED(FAULT_TILE_NEIGHBOUR_ROW) && own > 0 ? 1u : 0u);
    return (args.list ? args.list[place] : place) * args.x_stride + piece.group * args.x_step;
}

// Brings the steps of all pieces where rows are the left operand.
template <u32 F> DEVICE void bring_steps(const TileArgs& args, StepRing<F> ring, u32 pieces, u32 before) {
    const u32 thread = LANE % MANY_BRING, steps = args.inputs / step_inputs<F>(), tiles = (args.outputs + 15u) / 16u;
    const u32 row_to = thread / 8u * 128u + (thread % 8u ^ thread / 8u % 8u) * 16u;
    u32 count = 0;
    many_pieces<F>(args, before, [&](const Piece& piece) {
        say_piece(pieces, count, piece);
        // Of each 16th row 16 bytes, the scales of a row and of a tile, and 16 bytes of each tile: a copy in bulk costs the
        // same for any bytes, and pieces of a step are too small for it.
        u32 row[many_places<F>() / 16u], scale = row_of(args, piece, thread) + args.inputs;
#pragma unroll
        for (u32 i = 0; i < many_places<F>() / 16u; i++) row[i] = row_of(args, piece, thread / 8u + i * 16u) + thread % 8u * 16u;
        const u32 wide = least(tiles_of_piece<F>(args), tiles - piece.tile);
        const u64 apart = u64(steps) * step_bytes<F>();
        GLOBAL const u8* from = args.weight + piece.expert * args.expert_bytes;
        GLOBAL const u8* tile_scale = from + tiles * apart + u64(piece.tile + least(thread, wide - 1u)) * steps * 4u;
        from += piece.tile * apart + thread * 16u;
        for (u32 step = 0; step < steps; step++) {
            const u32 to = stage_of(ring);
            signal_wait(free_of(ring), ring.parity ^ 1u);
            GLOBAL const u8* tile = from;
#pragma unroll 8
            for (u32 i = 0; i < wide; i++, tile += apart) copy16(to + tiles_in_stage<F>() + i * step_bytes<F>() + thread * 16u, tile);
            from += step_bytes<F>();
#pragma unroll
            for (u32 i = 0; i < many_places<F>() / 16u; i++)
                if (i * 16u < piece.rows) copy16(to + row_to + i * 2048u, args.x + row[i] + step * 128u);
            if (coded<F>() && step % 4u == 0) copy16(next_four<F>(ring) + thread * 16u, args.x + scale + step * 4u);
            if (scaled<F>() && thread < wide) copy4(to + tile_scales_in_stage<F>() + thread * 4u, tile_scale + step * 4u);
            copies_arrive(full_of(ring));
            next_stage(ring);
        }
    });
    say_piece(pieces, count, Piece{});
}

// Brings the tiles of all pieces whose codes are lifted; the last of the warps that bring.
template <u32 F> DEVICE void bring_tiles(const TileArgs& args, TileRing<F> ring, u32 before) {
    const u32 lane = LANE % 32u, steps = args.inputs / step_inputs<F>(), tiles = (args.outputs + 15u) / 16u;
    const u64 policy = args.groups ? read_once() : read_often();
    many_pieces<F>(args, before, [&](const Piece& piece) {
        GLOBAL const u8* tile = args.weight + piece.expert * args.expert_bytes;
        tile += u64(least(piece.tile + lane, tiles - 1u)) * steps * step_bytes<F>();
        for (u32 step = 0; step < steps; step += 2u) {
            const u32 bytes = least(2u, steps - step) * step_bytes<F>();
            signal_wait(free_of(ring), ring.parity ^ 1u);
            if (lane == 0) signal_expect(full_of(ring), MANY_TILES * bytes);
            if (lane < MANY_TILES) copy_bulk(stage_of(ring) + lane * tile_in_stage<F>(), tile, bytes, full_of(ring), policy);
            tile += bytes;
            next_stage(ring);
        }
    });
}

// Steps whose rows are on their way while the next one's are asked for.
#define MANY_AHEAD 2u
// Lanes that bring rows.
#define MANY_ROW_LANES 96u

// Where a row's scale lies among those of a step whose rows are the right operand: a lane's of 16 rows are side by side.
DEVICE u32 scale_place(u32 row) { return row / 16u * 16u + row % 8u / 2u * 4u + row / 8u % 2u * 2u + row % 2u; }

// Brings their rows, and their scales.
template <u32 F> DEVICE void bring_rows(const TileArgs& args, RowRing<F> ring, u32 pieces, u32 before) {
    const u32 thread = LANE % MANY_BRING, steps = args.inputs / step_inputs<F>(), tiles = (args.outputs + 15u) / 16u;
    const u32 part = thread % 8u ^ thread / 8u % 8u;
    u32 count = 0, shown = ring.full;
    // The rows of the oldest step on its way are there: who brings makes them readable for products.
    const auto show = [&] {
        copies_shown();
        warp_arrives(shown);
        shown += 8u;
        if (shown == ring.full + ring.stages * 8u) shown = ring.full;
    };
    many_pieces<F>(args, before, [&](const Piece& piece) {
        say_piece(pieces, count, piece);
        // Of each 12th row 16 bytes, and the scales of a row and of a tile.
        u32 row[many_places<F>() / 12u], scale = row_of(args, piece, thread) + args.inputs;
#pragma unroll
        for (u32 i = 0; i < many_places<F>() / 12u; i++) row[i] = row_of(args, piece, thread / 8u + i * 12u) + thread % 8u * 16u;
        GLOBAL const u8* tile_scale = args.weight + piece.expert * args.expert_bytes + u64(tiles) * steps * step_bytes<F>();
        tile_scale += u64(least(piece.tile + thread % MANY_TILES, tiles - 1u)) * steps * 4u;
        for (u32 step = 0; step < steps; step++) {
            const u32 to = stage_of(ring);
            signal_wait(free_of(ring), ring.parity ^ 1u);
#pragma unroll
            for (u32 i = 0; i < many_places<F>() / 12u; i++)
                if (i * 12u < piece.rows)
                    copy16(to + (thread / 8u + i * 12u) * 128u + (part ^ i % 2u * 4u) * 16u, args.x + row[i] + step * 128u);
            if (coded<F>() && thread < many_rows<F>()) copy4(to + row_scales<F>() + scale_place(thread) * 4u, args.x + scale + step * 4u);
            if (scaled<F>() && thread < MANY_TILES) copy4(to + tile_scales<F>() + thread * 4u, tile_scale + step * 4u);
            copies_commit();
            next_stage(ring);
            if (step < MANY_AHEAD) continue;
            copies_wait<MANY_AHEAD>();
            show();
        }
        // What makes the next piece takes a while.
        copies_wait<0>();
        for (u32 left = least(steps, MANY_AHEAD); left > 0; left--) show();
    });
    say_piece(pieces, count, Piece{});
}

// Whether a step's part is left out: the last one's, where that is planted.
DEVICE bool many_drops(u32 step, u32 steps) { return PLANTED(FAULT_TILE_DROPPED_STEP) && step + 1u == steps; }

// A piece's sums of up to N rows, twice 64 outputs, by codes that a warpgroup lifts to registers.
template <u32 F, u32 N>
DEVICE void multiply_lifted(const TileArgs& args, TileRing<F>& tiles, RowRing<F>& rows, float (&total)[2][N / 2u], u32 table) {
    const u32 lane = LANE % 32u, own = LANE / 128u * 8u + LANE / 32u % 4u, steps = args.inputs / step_inputs<F>();
    float part[2][N / 2u] = {};
    u32 a[2][4][4] = {};
    for (u32 step = 0; step < steps; step++) {
        if (step % 2u == 0) signal_wait(full_of(tiles), tiles.parity);
        // LIFTED's scales come with the rows.
        if (scaled<F>()) signal_wait(full_of(rows), rows.parity);
        Codes<F> codes[2];
        float ws[2][2] = {};
#pragma unroll
        for (u32 half = 0; half < 2u; half++) {
            const u32 tile = own + half * 4u, at = stage_of(tiles) + tile * tile_in_stage<F>() + step % 2u * step_bytes<F>();
            read_step<F>(at, stage_of(rows) + tile_scales<F>() + tile * 4u, lane, codes[half]);
            if (F == FORMAT_FP4) fp4_multipliers(at, lane, ws[half]);
        }
#pragma unroll
        for (u32 half = 0; half < 2u; half++) lift_codes<F>(codes[half], table, a[half]);
        if (step % 2u == 1u || step + 1u == steps) {
            warp_arrives(free_of(tiles));
            next_stage(tiles);
        }
        if (!scaled<F>()) signal_wait(full_of(rows), rows.parity);
        const u64 right = rows_descriptor(stage_of(rows));
        group_begin();
#pragma unroll
        for (u32 half = 0; half < 2u; half++) {
#pragma unroll
            for (u32 i = 0; i < 4u; i++) {
                if (F == FORMAT_FP4) multiply_codes<N>(part[half], a[half][i], right + i * 2u, i > 0);
                else multiply_rows<N>(part[half], a[half][i], right + i * 2u, i > 0);
            }
        }
        group_commit();
        group_wait<0>();
#pragma unroll
        for (u32 i = 0; i < N; i++) settled(part[i % 2u][i / 2u]);
        // Of every other eight rows the scales are those read with the eight before.
        float xs[4];
#pragma unroll
        for (u32 i = 0; i < N / 8u && !many_drops(step, steps); i++) {
            if (coded<F>() && i % 2u == 0) load_floats(stage_of(rows) + row_scales<F>() + i * 32u + lane % 4u * 16u, xs);
#pragma unroll
            for (u32 j = 0; j < 8u; j++) {
                float& to = total[j / 4u][i * 4u + j % 4u];
                const float x = part[j / 4u][i * 4u + j % 4u];
                if (coded<F>()) to = FMA(x, ws[j / 4u][j % 4u / 2u] * xs[i % 2u * 2u + j % 2u], to);
                else to = to + x;
            }
        }
        warp_arrives(free_of(rows));
        next_stage(rows);
    }
}

// A piece's outputs, of up to N rows, whose codes are lifted.
template <u32 F, u32 N> DEVICE void many_lifted(const TileArgs& args, TileRing<F>& tiles_ring, RowRing<F>& rows_ring, u32 at, u32 table) {
    const u32 lane = LANE % 32u, tiles = (args.outputs + 15u) / 16u;
    float total[2][N / 2u] = {};
    multiply_lifted<F, N>(args, tiles_ring, rows_ring, total, table);
    const Piece piece = load_piece(at);
    warp_arrives(piece_read(at));
#pragma unroll
    for (u32 half = 0; half < 2u; half++) {
        const u32 tile = piece.tile + LANE / 128u * 8u + half * 4u + LANE / 32u % 4u, output = tile * 16u + lane / 4u;
        if (tile >= tiles) return;
        if (args.round) {
#pragma unroll
            for (u32 i = 0; i < N / 2u; i++) total[half][i] = round_bf16(total[half][i]);
        }
        const Outputs to = outputs_of(args, piece.group, piece.start, output);
        const bool one_there = output < args.outputs, two_there = output + 8u < args.outputs;
        u32 row = lane % 4u * 2u;
        GLOBAL float* out = to.at + (piece.first + row) * to.stride;
#pragma unroll
        for (u32 i = 0; i < N / 8u; i++) {
            const bool first = one_there && row < piece.rows, second = one_there && row + 1u < piece.rows;
            if (first) out[0] = total[half][i * 4u];
            if (first && two_there) out[8] = total[half][i * 4u + 2u];
            if (second) out[to.stride] = total[half][i * 4u + 1u];
            if (second && two_there) out[to.stride + 8u] = total[half][i * 4u + 3u];
            row += 8u;
            out += 8u * to.stride;
        }
    }
}

// A piece's sums, twice N outputs, by tiles as they lie.
template <u32 F, u32 N> DEVICE void multiply_tiles(const TileArgs& args, StepRing<F>& ring, float (&total)[2][N / 2u]) {
    const u32 steps = args.inputs / step_inputs<F>(), row = LANE / 32u * 16u + LANE % 32u / 4u;
    float part[N / 2u] = {};
    u32 scales = 0;
    for (u32 step = 0; step < steps; step++) {
        const u32 stage = stage_of(ring), free = free_of(ring);
        const u64 rows = rows_descriptor(stage + LANE / 128u * 8192u), tiles = rows_descriptor(stage + tiles_in_stage<F>());
        signal_wait(full_of(ring), ring.parity);
        copies_shown();
        next_stage(ring);
        float xs[2] = {};
        if (F == FORMAT_FP8) {
            if (step % 4u == 0) scales = next_four<F>(ring) + row * 16u;
            xs[0] = AS_FLOAT(load_word(scales + step % 4u * 4u));
            xs[1] = AS_FLOAT(load_word(scales + step % 4u * 4u + 128u));
            if (PLANTED(FAULT_TILE_WRONG_SCALE)) xs[0] = xs[0] * 2.0f;
        }
#pragma unroll
        for (u32 half = 0; half < 2u; half++) {
            group_begin();
#pragma unroll
            for (u32 i = 0; i < 4u; i++) {
                if (F == FORMAT_FP8) multiply_codes<N>(part, rows + i * 2u, tiles + half * N * 8u + i * 2u, i > 0);
                else multiply_rows<N>(part, rows + i * 2u, tiles + half * N * 8u + i * 2u, i > 0);
            }
            group_commit();
            group_wait<0>();
#pragma unroll
            for (u32 i = 0; i < N / 2u; i++) settled(part[i]);
            if (many_drops(step, steps)) continue;
#pragma unroll
            for (u32 tile = 0; tile < N / 16u; tile++) {
                float ws = 0.0f;
                if (F == FORMAT_FP8) ws = AS_FLOAT(load_word(stage + tile_scales_in_stage<F>() + (half * N / 16u + tile) * 4u));
                const float by[2] = {ws * xs[0], ws * xs[1]};
#pragma unroll
                for (u32 i = tile * 8u; i < tile * 8u + 8u; i++)
                    total[half][i] = F == FORMAT_FP8 ? FMA(part[i], by[i / 2u % 2u], total[half][i]) : total[half][i] + part[i];
            }
        }
        warp_arrives(free);
    }
}

// A piece's outputs, twice N, by tiles as they lie.
template <u32 F, u32 N> DEVICE void many_direct(const TileArgs& args, StepRing<F>& ring, u32 at) {
    const u32 lane = LANE % 32u, tiles = (args.outputs + 15u) / 16u, row = LANE / 32u * 16u + lane / 4u;
    float total[2][N / 2u] = {};
    multiply_tiles<F, N>(args, ring, total);
    const Piece piece = load_piece(at);
    warp_arrives(piece_read(at));
    // A lane of a pair takes the other's outputs of its own half of a tile: four lanes store a row's 16 at once.
    const bool second = lane % 2u == 1u;
#pragma unroll
    for (u32 i = 0; i < N / 8u; i++) {
        const u32 tile = piece.tile + i;
        if (tile >= tiles) return;
        float (&own)[N / 2u] = total[i / (N / 16u)];
        const u32 output = tile * 16u + lane % 2u * 8u + lane / 2u % 2u * 4u;
        const Outputs to = outputs_of(args, piece.group, piece.start, tile * 16u);
#pragma unroll
        for (u32 half = 0; half < 2u; half++) {
            float x[4];
#pragma unroll
            for (u32 j = 0; j < 2u; j++) {
                const u32 from = i % (N / 16u) * 8u + half * 2u + j;
                const float other = SHUFFLE_XOR(second ? own[from] : own[from + 4u], 1);
                x[j] = second ? other : own[from];
                x[j + 2u] = second ? own[from + 4u] : other;
            }
            if (row + half * 8u >= piece.rows) continue;
            GLOBAL float* out = to.at + (piece.first + row + half * 8u) * to.stride + output % 16u;
            Bytes16 words;
#pragma unroll
            for (u32 j = 0; j < 4u; j++) {
                if (args.round) x[j] = round_bf16(x[j]);
                words.word[j] = AS_BITS(x[j]);
            }
            if (output + 4u <= args.outputs && reinterpret_cast<u64>(out) % 16u == 0) {
                STORE16(out, words);
                continue;
            }
#pragma unroll
            for (u32 j = 0; j < 4u; j++)
                if (output + j < args.outputs) out[j] = x[j];
        }
    }
}

template <u32 F> DEVICE void many(const TileArgs& args) {
    LAUNCH_SHARED(__align__(1024) u8, shared);
    const u32 full = shared_address(shared), pieces = full + MANY_SIGNALS;
    const u32 table = pieces + MANY_PIECES * MANY_PIECE, before = table + TABLE_BYTES, base = (before + (MANY_GROUPS + 1u) * 4u + 1023u) / 1024u * 1024u;
    const u32 stages = direct<F>() ? StepRing<F>::stages : TileRing<F>::stages + RowRing<F>::stages, free = full + stages * 8u;
    if (LANE == 0) {
        for (u32 i = 0; i < stages; i++) {
            // Of a stage of tiles who says how many bytes come; of one of rows the warps that bring them; else each lane's copies.
            const u32 lifted = i < TileRing<F>::stages ? 1u : MANY_ROW_LANES / 32u * WARP_ARRIVALS;
            signal_new(full + i * 8u, direct<F>() ? MANY_BRING : lifted);
            signal_new(free + i * 8u, MANY_TEAMS * 4u * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < MANY_PIECES; i++) {
            signal_new(piece_there(pieces + i * MANY_PIECE), 1u);
            signal_new(piece_read(pieces + i * MANY_PIECE), MANY_TEAMS * 4u * WARP_ARRIVALS);
        }
        signals_made();
    }
    if (F == FORMAT_FP4 && LANE < 32u) write_table(table);
    dependents_may_start();
    wait_for_launches_before();
    __syncthreads();
    if (args.groups) many_parts<F>(args, before);
    StepRing<F> ring{base, full, free, 0u, 0u, 0u};
    RowRing<F> own_rows{base, full + TileRing<F>::stages * 8u, free + TileRing<F>::stages * 8u, 0u, 0u, 0u};
    TileRing<F> tiles{base + RowRing<F>::stages * RowRing<F>::bytes, full, free, 0u, 0u, 0u};
    if (LANE >= MANY_TEAMS * 128u) {
        registers_give<bring_registers<F>()>();
        if constexpr (direct<F>()) bring_steps<F>(args, ring, pieces, before);
        else if (LANE % MANY_BRING < MANY_ROW_LANES) bring_rows<F>(args, own_rows, pieces, before);
        else bring_tiles<F>(args, tiles, before);
    } else {
        registers_take<many_registers<F>()>();
        for (u32 count = 0;; count++) {
            const u32 at = pieces + count % MANY_PIECES * MANY_PIECE;
            signal_wait(piece_there(at), count / MANY_PIECES % 2u);
            const u32 rows = load_piece(at).rows;
            if (rows == 0) break;
            // Experts have few rows each: their pieces have sizes of their own.
            if constexpr (!direct<F>()) {
                if (rows <= 16u) many_lifted<F, 16u>(args, tiles, own_rows, at, table);
                else if (rows <= 24u) many_lifted<F, 24u>(args, tiles, own_rows, at, table);
                else if (rows <= 32u) many_lifted<F, 32u>(args, tiles, own_rows, at, table);
                else if (rows <= 40u) many_lifted<F, 40u>(args, tiles, own_rows, at, table);
                else if (rows <= 48u) many_lifted<F, 48u>(args, tiles, own_rows, at, table);
                else if (rows <= 56u) many_lifted<F, 56u>(args, tiles, own_rows, at, table);
                else if (rows <= 64u) many_lifted<F, 64u>(args, tiles, own_rows, at, table);
                else if (rows <= 72u) many_lifted<F, 72u>(args, tiles, own_rows, at, table);
                else many_lifted<F, 80u>(args, tiles, own_rows, at, table);
            } else {
                if (args.chunk <= 64u) many_direct<F, 32u>(args, ring, at);
                else if (args.chunk <= 128u) many_direct<F, 64u>(args, ring, at);
                else if (args.chunk <= 192u) many_direct<F, 96u>(args, ring, at);
                else if (args.chunk <= 224u) many_direct<F, 112u>(args, ring, at);
                else many_direct<F, 128u>(args, ring, at);
            }
        }
    }
}

CUDA_FULL_KERNEL(tile_fp8_many, TileArgs, MANY_THREADS) { many<FORMAT_FP8>(args); }
CUDA_FULL_KERNEL(tile_fp4_many, TileArgs, MANY_THREADS) { many<FORMAT_FP4>(args); }
CUDA_FULL_KERNEL(tile_lifted_many, TileArgs, MANY_THREADS) { many<FORMAT_LIFTED>(args); }
CUDA_FULL_KERNEL(tile_bf16_many, TileArgs, MANY_THREADS) { many<FORMAT_BF16>(args); }
#endif
