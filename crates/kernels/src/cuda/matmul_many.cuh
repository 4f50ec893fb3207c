// Products of many rows.
//
// A group takes pieces of work, outputs times some rows, one after another. The last of its warpgroups brings
// steps of 64 inputs into a ring of shared memory and runs ahead, into the next piece too. The others do 64
// outputs each. Two of them lift a step's weights to registers while the tensor cores multiply by their last one's.
// Three, of FP4, lift two steps while the tensor cores multiply for the others: the four warps of each meet at every
// chain of products, so these are long. An instruction multiplies 64 outputs, 16 inputs and all rows; its sums have
// the bits of `multiply`'s, which a contract case holds.
#pragma once
#ifdef HOPPER

#define MANY_BRING 128u  // lanes that bring
#define MANY_PANEL 16u   // pieces side by side that are done together, of one weight
#define MANY_GROUPS 1024u

// Warpgroups that multiply, and the outputs of a piece.
template <u32 F> DEVICE constexpr u32 many_teams() { return F == FORMAT_FP4 ? 3u : 2u; }
template <u32 F> DEVICE constexpr u32 many_warps() { return many_teams<F>() * 4u; }
template <u32 F> DEVICE constexpr u32 many_outputs() { return many_teams<F>() * 64u; }
template <u32 F> DEVICE constexpr u32 many_threads() { return many_warps<F>() * 32u + MANY_BRING; }

// Most rows of a piece; a launch may take fewer, so that its last turn is as full as the others.
template <u32 F> DEVICE constexpr u32 many_rows() { return F == FORMAT_FP4 ? 96u : F == FORMAT_FP8 ? 160u : 128u; }

// Of rows of 128 bytes whose 16-byte parts lie at part ^ (row % 8).
DEVICE u64 rows_descriptor(u32 at) {
    return u64((at & 0x3ffffu) >> 4) | (u64(1u) << 16) | (u64(64u) << 32) | (u64(1u) << 62);
}

// A stage of the ring has two steps, of FP4 those of one slice: the rows of both, then their tiles. So many fit beside the rest in 227 KiB.
template <u32 F> DEVICE constexpr u32 many_row_bytes() { return many_rows<F>() * 128u; }
template <u32 F> DEVICE constexpr u32 many_tile_bytes() { return many_warps<F>() * step_bytes<F>(); }
template <u32 F> DEVICE constexpr u32 many_stage() {
    return (2u * (many_row_bytes<F>() + many_tile_bytes<F>()) + 1023u) / 1024u * 1024u;
}
template <u32 F> DEVICE constexpr u32 many_stages() { return F == FORMAT_FP4 ? 5u : 3u; }

// Bytes for the ring's signals.
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

// A place in the ring; `parity` turns with each round.
template <u32 F> struct ManyRing {
    u32 base, full, free, stage, parity;
};
template <u32 F> DEVICE u32 stage_of(const ManyRing<F>& ring) { return ring.base + ring.stage * many_stage<F>(); }
template <u32 F> DEVICE void next_stage(ManyRing<F>& ring) {
    ring.stage++;
    if (ring.stage < many_stages<F>()) return;
    ring.stage = 0;
    ring.parity ^= 1u;
}

// Writes the parts of the rows before each group's, and at the end all; every lane of the group.
template <u32 F> DEVICE void many_parts(const TileArgs& args, u32 at) {
    const u32 lane = LANE % 32u, each = (args.groups_max + 31u) / 32u, most = args.chunk;
    for (u32 i = LANE; i < args.groups_max; i += many_threads<F>())
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
    const u32 across = (args.outputs + many_outputs<F>() - 1u) / many_outputs<F>(), most = args.chunk;
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
            const u32 wide = least(across - panel, MANY_PANEL), place = within - panel * parts;
            piece.group = piece.expert = at / (across * parts);
            piece.start = 0;
            column = panel + place % wide;
            part = place / wide;
        }
        // Parts as equal as can be: a small one costs nearly what a large one does.
        piece.tile = column * many_warps<F>();
        piece.first = rows * part / cut;
        piece.rows = rows * (part + 1u) / cut - piece.first;
        one(piece);
    }
}

// Stages of FP4 on their way while the next one is asked for: two of the other three are in use.
#define MANY_AHEAD 2u

// What a lane of those that bring has of a step's tiles, in 16 bytes.
template <u32 F> DEVICE constexpr u32 many_tile_parts() { return (many_tile_bytes<F>() / 16u + MANY_BRING - 1u) / MANY_BRING; }

// Where it reads them, and of each 16th row 16 bytes.
template <u32 F> struct ManyFrom {
    GLOBAL const u8* row[many_rows<F>() / 16u];
    GLOBAL const u8* tile[many_tile_parts<F>()];
};

// Brings a piece's stages of R times 16 rows. `shown` is the signal of the oldest on its way: who brings makes it
// readable for products, so that those who multiply need not.
template <u32 F, u32 R> DEVICE void bring_stages(const TileArgs& args, ManyRing<F>& ring, ManyFrom<F>& from, u32& shown) {
    const u32 thread = LANE % MANY_BRING, steps = args.inputs / 64u, length = steps / args.slices;
    const u32 row_place = thread / 8u * 128u + (thread % 8u ^ thread / 8u % 8u) * 16u;
    const auto bring = [&](u32 half) {
        const u32 rows_to = stage_of(ring) + half * many_row_bytes<F>() + row_place;
        const u32 tiles_to = stage_of(ring) + 2u * many_row_bytes<F>() + half * many_tile_bytes<F>() + thread * 16u;
#pragma unroll
        for (u32 i = 0; i < many_tile_parts<F>(); i++)
            if (thread + i * MANY_BRING < many_tile_bytes<F>() / 16u)
                copy16(tiles_to + i * MANY_BRING * 16u, from.tile[i] + half * step_bytes<F>());
#pragma unroll
        for (u32 i = 0; i < R; i++) copy16(rows_to + i * 16u * 128u, from.row[i] + half * 128u);
    };
    const auto show = [&] {
        copies_shown();
        warp_arrives<1u>(shown);
        shown += 8u;
        if (shown == ring.full + many_stages<F>() * 8u) shown = ring.full;
    };
    u32 left = length, asked = 0;
    for (u32 step = 0; step < steps;) {
        const u32 both = least(left, 2u);
        signal_wait(ring.free + ring.stage * 8u, ring.parity ^ 1u);
        bring(0u);
        if (both == 2u) bring(1u);
        copies_commit();
        next_stage(ring);
        step += both;
        left -= both;
        if (left == 0) left = length;
#pragma unroll
        for (u32 i = 0; i < many_tile_parts<F>(); i++) from.tile[i] += both * step_bytes<F>();
#pragma unroll
        for (u32 i = 0; i < R; i++) from.row[i] += both * 128u;
        if (asked < MANY_AHEAD) {
            asked++;
        } else {
            copies_wait<MANY_AHEAD>();
            show();
        }
    }
    // What makes the next piece takes a while.
    copies_wait<0>();
    for (; asked > 0; asked--) show();
}

// Brings the steps of all pieces, and says what the pieces are.
template <u32 F> DEVICE void many_bring(const TileArgs& args, ManyRing<F> ring, u32 pieces, u32 before) {
    const u32 thread = LANE % MANY_BRING;
    // 16-byte parts of a tile's step, and of all tiles'.
    const u32 parts = step_bytes<F>() / 16u, all = many_warps<F>() * parts;
    const u32 steps = args.inputs / 64u, tiles = (args.outputs + 15u) / 16u;
    u32 count = 0, shown = ring.full;
    const auto say = [&](const Piece& piece) {
        const u32 at = pieces + count % MANY_PIECES * MANY_PIECE;
        if (thread == 0) {
            signal_wait(piece_read(at), count / MANY_PIECES % 2u ^ 1u);
            store_piece(at, piece);
            signal_arrive<1u>(piece_there(at));
        }
        count++;
    };
    many_pieces<F>(args, before, [&](const Piece& piece) {
        say(piece);
        // Past the last row it is that one, whose sums are not kept.
        ManyFrom<F> from;
#pragma unroll
        for (u32 i = 0; i < many_rows<F>() / 16u; i++) {
            const u32 row = piece.first + least(thread / 8u + i * 16u, piece.rows - 1u);
            const u32 place = piece.start + row - (PLANTED(FAULT_TILE_NEIGHBOUR_ROW) && row > 0 ? 1u : 0u);
            const u64 at = u64(args.list ? args.list[place] : place) * args.x_stride + u64(piece.group) * args.x_step;
            from.row[i] = args.x + at * 2u + thread % 8u * 16u;
        }
#pragma unroll
        for (u32 i = 0; i < many_tile_parts<F>(); i++) {
            const u32 part = thread + i * MANY_BRING, tile = least(piece.tile + part / parts, tiles - 1u);
            from.tile[i] = args.weight + piece.expert * args.expert_bytes + (u64(tile) * steps * parts + part % parts) * 16u;
        }
        if (F == FORMAT_FP4) {
            if (piece.rows <= 16u) bring_stages<F, 1u>(args, ring, from, shown);
            else if (piece.rows <= 32u) bring_stages<F, 2u>(args, ring, from, shown);
            else if (piece.rows <= 48u) bring_stages<F, 3u>(args, ring, from, shown);
            else if (piece.rows <= 64u) bring_stages<F, 4u>(args, ring, from, shown);
            else if (piece.rows <= 80u) bring_stages<F, 5u>(args, ring, from, shown);
            else bring_stages<F, many_rows<F>() / 16u>(args, ring, from, shown);
            return;
        }
        const u32 row_place = thread / 8u * 128u + (thread % 8u ^ thread / 8u % 8u) * 16u;
        // Four steps at a time, whose places are fixed distances from the first's.
        for (u32 step = 0; step < steps; step += 4u) {
#pragma unroll
            for (u32 ahead = 0; ahead < 4u; ahead++) {
                if (step + ahead >= steps) break;
                const u32 half = ahead % 2u;
                if (half == 0) signal_wait(ring.free + ring.stage * 8u, ring.parity ^ 1u);
                const u32 rows_to = stage_of(ring) + half * many_row_bytes<F>() + row_place;
                const u32 tiles_to = stage_of(ring) + 2u * many_row_bytes<F>() + half * many_tile_bytes<F>() + thread * 16u;
#pragma unroll
                for (u32 i = 0; i < many_tile_parts<F>(); i++)
                    if (thread + i * MANY_BRING < all) copy16(tiles_to + i * MANY_BRING * 16u, from.tile[i] + ahead * step_bytes<F>());
#pragma unroll
                for (u32 i = 0; i < many_rows<F>() / 16u; i++)
                    if (i * 16u < piece.rows) copy16(rows_to + i * 16u * 128u, from.row[i] + ahead * 128u);
                if (half == 0 && step + ahead + 1u < steps) continue;
                copies_arrive(ring.full + ring.stage * 8u);
                next_stage(ring);
            }
#pragma unroll
            for (u32 i = 0; i < many_tile_parts<F>(); i++) from.tile[i] += 4u * step_bytes<F>();
#pragma unroll
            for (u32 i = 0; i < many_rows<F>() / 16u; i++) from.row[i] += 4u * 128u;
        }
    });
    say(Piece{});
}

// What a warp keeps from piece to piece, so that sums of any size have one place. A sum begins by an
// instruction that does not add to what was there.
template <u32 F> struct ManySums {
    float sum[many_rows<F>() / 2u];
    u32 even[4][4], odd[4][4];
};

template <u32 F, u32 N> DEVICE void add_slice(ManySums<F>& own, float (&total)[N]) {
#pragma unroll
    for (u32 i = 0; i < N; i++) settled(own.sum[i]);
#pragma unroll
    for (u32 i = 0; i < N; i++) total[i] = total[i] + own.sum[i];
}

// Where the codes of a warp's tile lie in the ring's stage.
template <u32 F> DEVICE u32 codes_at(const ManyRing<F>& ring, u32 half) {
    return stage_of(ring) + 2u * many_row_bytes<F>() + half * many_tile_bytes<F>() + LANE / 32u * step_bytes<F>();
}

// A piece's sums of up to N rows, a step at a time.
template <u32 F, u32 N>
DEVICE void multiply_steps(const TileArgs& args, ManyRing<F>& ring, ManySums<F>& own, float (&total)[N / 2u], u32 exponents) {
    const u32 steps = args.inputs / 64u, length = steps / args.slices;
    Codes<F> codes;
    u32 left = length;
    const auto ready = [&] {
        signal_wait(ring.full + ring.stage * 8u, ring.parity);
        copies_shown();
    };
    const auto read = [&](u32 step, u32 half) {
        const u32 by = F == FORMAT_FP8 ? multipliers_of(load_half(exponents + step * 2u)) : 0u;
        read_step<F>(codes_at(ring, half), LANE % 32u, by, codes);
    };
    // Asks for a step's products, and waits for those of the step before.
    const auto multiply_by = [&](u32 (&a)[4][4], u64 rows) {
        group_begin();
#pragma unroll
        for (u32 i = 0; i < 4u; i++) multiply_rows<N>(own.sum, a[i], rows + i * 2u, i > 0 || left < length);
        group_commit();
        group_wait<1>();
    };
    const auto end_slice = [&](u32 step) {
        if (--left > 0) return;
        left = length;
        group_wait<0>();
        if (PLANTED(FAULT_TILE_DROPPED_SLICE) && step + 1u == steps) return;
        add_slice(own, total);
    };
    ready();
    read(0, 0);
    lift_codes<F>(codes, own.even);
    if (steps > 1u) read(1u, 1u);
    // While a step is multiplied the next one is lifted, and the one after it read. The ring is a stage ahead.
    u32 stage = ring.stage;
    next_stage(ring);
    for (u32 step = 0;; step += 2u) {
        const u64 rows = rows_descriptor(ring.base + stage * many_stage<F>());
        const bool more = step + 2u < steps;
        multiply_by(own.even, rows);
        if (step > 0) warp_arrives<1u>(ring.free + (stage > 0 ? stage - 1u : many_stages<F>() - 1u) * 8u);
        if (step + 1u < steps) lift_codes<F>(codes, own.odd);
        if (more) {
            ready();
            read(step + 2u, 0);
        }
        end_slice(step);
        if (step + 1u >= steps) break;
        multiply_by(own.odd, rows + many_row_bytes<F>() / 16u);
        if (more) lift_codes<F>(codes, own.even);
        if (step + 3u < steps) read(step + 3u, 1u);
        end_slice(step + 1u);
        if (!more) break;
        stage = ring.stage;
        next_stage(ring);
    }
    group_wait<0>();
    warp_arrives<1u>(ring.free + stage * 8u);
}

// The same of FP4, a stage at a time. What a warpgroup lifts it does not lift beside its own products.
template <u32 F, u32 N> DEVICE void multiply_stages(const TileArgs& args, ManyRing<F>& ring, ManySums<F>& own, float (&total)[N / 2u]) {
    const u32 lane = LANE % 32u, steps = args.inputs / 64u, length = steps / args.slices;
    Codes<F> codes[2] = {};
    const auto multiply_by = [&](const u32 (&a)[4][4], u64 rows, bool add) {
#pragma unroll
        for (u32 i = 0; i < 4u; i++) multiply_rows<N>(own.sum, a[i], rows + i * 2u, i > 0 || add);
    };
    u32 done = 0, used = 0;
    for (u32 step = 0; step < steps;) {
        const bool both = done + 1u < length;
        signal_wait(ring.full + ring.stage * 8u, ring.parity);
        read_step<F>(codes_at(ring, 0u), lane, 0u, codes[0]);
        if (both) read_step<F>(codes_at(ring, 1u), lane, 0u, codes[1]);
        group_wait<0>();
        if (step > 0) warp_arrives<1u>(used);
        if (step > 0 && done == 0) add_slice(own, total);
        // Always so. Under a condition the operands have one place for pieces of all sizes; without one ptxas finds none.
        if (args.slices > 0) {
            lift_codes<F>(codes[0], own.even);
            if (both) lift_codes<F>(codes[1], own.odd);
        }
        const u64 rows = rows_descriptor(stage_of(ring));
        if (both) {
            group_begin();
            multiply_by(own.even, rows, done > 0);
            multiply_by(own.odd, rows + many_row_bytes<F>() / 16u, true);
            group_commit();
        } else {
            group_begin();
            multiply_by(own.even, rows, done > 0);
            group_commit();
        }
        step += both ? 2u : 1u;
        done += both ? 2u : 1u;
        if (done == length) done = 0;
        used = ring.free + ring.stage * 8u;
        next_stage(ring);
    }
    group_wait<0>();
    warp_arrives<1u>(used);
    if (!PLANTED(FAULT_TILE_DROPPED_SLICE)) add_slice(own, total);
}

// A piece's sums, of up to N rows. `exponents` are the warp's own words, for the scales of its tile.
template <u32 F, u32 N>
DEVICE void many_multiply(const TileArgs& args, ManyRing<F>& ring, ManySums<F>& own, u32 at, u32 exponents) {
    const u32 lane = LANE % 32u, warp = LANE / 32u;
    const u32 steps = args.inputs / 64u, tiles = (args.outputs + 15u) / 16u;
    if (F == FORMAT_FP8) {
        const Piece piece = load_piece(at);
        const u32 tile = least(piece.tile + warp, tiles - 1u);
        GLOBAL const u8* scales = args.weight + piece.expert * args.expert_bytes + u64(tiles) * steps * 1024u + u64(tile) * steps * 2u;
        for (u32 i = lane; i < steps; i += 32u) store_half(exponents + i * 2u, *reinterpret_cast<GLOBAL const u16*>(scales + i * 2u));
        __syncwarp();
    }
    // The sum of nothing that leaves a zero its sign.
    float total[N / 2u];
#pragma unroll
    for (u32 i = 0; i < N / 2u; i++) total[i] = -0.0f;
    if (F == FORMAT_FP4) multiply_stages<F, N>(args, ring, own, total);
    else multiply_steps<F, N>(args, ring, own, total, exponents);
    const Piece piece = load_piece(at);
    warp_arrives<1u>(piece_read(at));
    const u32 tile = piece.tile + warp, output = tile * 16u + lane / 4u;
    if (tile >= tiles) return;
    if (args.round) {
#pragma unroll
        for (u32 i = 0; i < N / 2u; i++) total[i] = round_bf16(total[i]);
    }
    const Outputs to = outputs_of(args, piece.group, piece.start, output);
    const bool one_there = output < args.outputs, two_there = output + 8u < args.outputs;
    u32 row = lane % 4u * 2u;
    GLOBAL float* out = to.at + (piece.first + row) * to.stride;
#pragma unroll
    for (u32 i = 0; i < N / 8u; i++) {
        const bool first = one_there && row < piece.rows, second = one_there && row + 1u < piece.rows;
        if (first) out[0] = total[i * 4u];
        if (first && two_there) out[8] = total[i * 4u + 2u];
        if (second) out[to.stride] = total[i * 4u + 1u];
        if (second && two_there) out[to.stride + 8u] = total[i * 4u + 3u];
        row += 8u;
        out += 8u * to.stride;
    }
}

template <u32 F> DEVICE void many(const TileArgs& args) {
    LAUNCH_SHARED(__align__(1024) u8, shared);
    const u32 full = shared_address(shared), free = full + many_stages<F>() * 8u, pieces = full + MANY_SIGNALS;
    const u32 before = pieces + MANY_PIECES * MANY_PIECE, base = (before + (MANY_GROUPS + 1u) * 4u + 1023u) / 1024u * 1024u;
    if (LANE == 0) {
        for (u32 i = 0; i < many_stages<F>(); i++) {
            signal_new(full + i * 8u, F == FORMAT_FP4 ? MANY_BRING / 32u * WARP_ARRIVALS : MANY_BRING);
            signal_new(free + i * 8u, many_warps<F>() * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < MANY_PIECES; i++) {
            signal_new(piece_there(pieces + i * MANY_PIECE), 1u);
            signal_new(piece_read(pieces + i * MANY_PIECE), many_warps<F>() * WARP_ARRIVALS);
        }
        signals_made();
    }
    dependents_may_start();
    wait_for_launches_before();
    __syncthreads();
    if (args.groups) many_parts<F>(args, before);
    ManyRing<F> ring{base, full, free, 0u, 0u};
    if (LANE >= many_warps<F>() * 32u) {
        registers_give<F == FORMAT_BF16 ? 88 : 56>();
        many_bring<F>(args, ring, pieces, before);
    } else {
        registers_take<F == FORMAT_FP4 ? 152 : F == FORMAT_FP8 ? 224 : 208>();
        const u32 exponents = base + many_stages<F>() * many_stage<F>() + LANE / 32u * (args.inputs / 64u) * 2u;
        ManySums<F> own = {};
        for (u32 count = 0;; count++) {
            const u32 at = pieces + count % MANY_PIECES * MANY_PIECE;
            signal_wait(piece_there(at), count / MANY_PIECES % 2u);
            const u32 rows = load_piece(at).rows;
            if (rows == 0) break;
            // Experts have few rows each: their pieces have sizes of their own. Other pieces have the launch's.
            if (F == FORMAT_FP4 && rows <= 16u) many_multiply<F, 16u>(args, ring, own, at, exponents);
            else if (F == FORMAT_FP4 && rows <= 32u) many_multiply<F, 32u>(args, ring, own, at, exponents);
            else if (F == FORMAT_FP4 && rows <= 48u) many_multiply<F, 48u>(args, ring, own, at, exponents);
            else if (F == FORMAT_FP4 && rows <= 56u) many_multiply<F, 56u>(args, ring, own, at, exponents);
            else if (rows <= 64u) many_multiply<F, 64u>(args, ring, own, at, exponents);
            else if (F == FORMAT_FP4 && rows <= 72u) many_multiply<F, 72u>(args, ring, own, at, exponents);
            else if (F == FORMAT_FP4 && rows <= 80u) many_multiply<F, 80u>(args, ring, own, at, exponents);
            else if (F != FORMAT_FP4 && rows <= 96u) many_multiply<F, 96u>(args, ring, own, at, exponents);
            else if (F == FORMAT_FP8 && rows <= 128u) many_multiply<F, 128u>(args, ring, own, at, exponents);
            else if (F == FORMAT_FP8 && rows <= 144u) many_multiply<F, 144u>(args, ring, own, at, exponents);
            else many_multiply<F, many_rows<F>()>(args, ring, own, at, exponents);
        }
    }
}

CUDA_FULL_KERNEL(tile_fp8_many, TileArgs, many_threads<FORMAT_FP8>()) { many<FORMAT_FP8>(args); }
CUDA_FULL_KERNEL(tile_fp4_many, TileArgs, many_threads<FORMAT_FP4>()) { many<FORMAT_FP4>(args); }
CUDA_FULL_KERNEL(tile_bf16_many, TileArgs, many_threads<FORMAT_BF16>()) { many<FORMAT_BF16>(args); }
#endif
