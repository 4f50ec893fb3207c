// Products of up to 8 rows of a group: bound by the reading of the weights. matmul_wide.cuh has FP4's, and those of more rows.
//
// A group has two warpgroups that multiply, two warps that add and two that read. A team is one of each, or all of them: it
// takes tiles, its warpgroups their quads of four steps in turn, one or two at a time. A lane reads these ahead through a
// ring, across tiles, and before the launches it depends on have ended. A warpgroup multiplies the four steps at once, one
// a warp: of its instruction's columns row r of step j is j R + r, and a warp keeps those of its own step in shared memory.
// There the lanes that add take them, each some (output, row), in the order of steps.
//
// Rows lie in shared memory, 128 bytes of R rows for each step; R, the places for rows, is 1, 2, 4 or 8.
#pragma once
#ifdef HOPPER

#define FEW_STAGES 32u
#define FEW_GROUPS 512u
#define FEW_LANES 384u
// Lanes from here on add, and from there on read.
#define FEW_ADDERS 256u
#define FEW_READERS 320u
// Bytes that a group has on their way while it fills its rings.
#define FEW_AHEAD 32768u
// From one row's 16 parts of a step to the next's, so that a warp's stores meet no bank twice.
#define FEW_APART 20u

struct FewShape {
    u32 steps, turns;      // of a tile: steps, and stages of a ring
    u32 tiles;             // of 16 outputs
    u32 team, teams;       // warpgroups of a team, teams
    u32 own, side;         // this warpgroup, or warp, in its team, and this team
};

DEVICE u32 least(u32 a, u32 b) { return a < b ? a : b; }
DEVICE constexpr u32 most(u32 a, u32 b) { return a > b ? a : b; }

// The stages of a team in order, part after part; one lane's.
struct FewReader {
    u32 tile, last, end;   // of all tiles of all parts: the next, where its part ends, where all end
    u32 part, turn, scale; // the next stage of the tile, and which of the weight's scales its first is
    GLOBAL const u8 *from, *scales;
};

// The parts of the rows, each of one group. With `groups`, of which it has the (weight, first place, end), part i is group
// `part[i] % 512`, from its row 8 E (part[i] / 512) on; else rows are cut where `most_rows` of them are a part.
struct FewParts {
    const u16* part;
    const u32* groups;
};
struct FewPart {
    u32 group, start, rows;
};
DEVICE u32 parts_of_rows(const TileArgs& args) { return (args.rows + args.most_rows - 1u) / args.most_rows; }
template <u32 E> DEVICE FewPart part_of(const TileArgs& args, const FewParts& parts, u32 part) {
    if (!args.groups) {
        const u32 each = parts_of_rows(args), start = part % each * args.most_rows;
        return FewPart{part / each, start, least(args.rows - start, args.most_rows)};
    }
    const u32 group = parts.part[part] % 512u;
    const u32 start = parts.groups[group * 3u + 1u] + parts.part[part] / 512u * 8u * E;
    return FewPart{group, start, least(parts.groups[group * 3u + 2u] - start, 8u * E)};
}

// The weight of a part of the rows.
DEVICE GLOBAL const u8* weight_of(const TileArgs& args, const FewParts& parts, u32 part) {
    const u32 weight = args.groups ? parts.groups[parts.part[part] % 512u * 3u] : part / parts_of_rows(args);
    return args.weight + weight * args.expert_bytes;
}

// Where a team's ring lies: its stages, the words of scales of each (those that are asked for and up to three before
// them, as a copy begins at a multiple of 16), a signal of each that its bytes are there and one that it is free.
template <u32 U> DEVICE constexpr u32 few_steps() { return 4u * U; }
template <u32 F, u32 U> DEVICE constexpr u32 few_stage() { return few_steps<U>() * step_bytes<F>(); }
template <u32 U> DEVICE constexpr u32 few_scales() { return few_steps<U>() * 4u + 16u; }
struct FewRing {
    u32 stages, scales, full, free, count;
};

// Goes to the tile that is next, or to the end.
template <u32 F> DEVICE void read_where(FewReader& r, const TileArgs& args, const FewShape& shape, const FewParts& parts) {
    while (r.tile >= r.last && r.last < r.end) {
        r.part++;
        r.tile = r.last + shape.side;
        r.last = least(r.end, r.last + shape.tiles);
    }
    if (r.tile >= r.last) {
        r.tile = r.end;
        return;
    }
    GLOBAL const u8* weight = weight_of(args, parts, r.part);
    r.turn = 0;
    r.scale = (r.tile - r.part * shape.tiles) * shape.steps;
    r.from = weight + u64(r.scale) * step_bytes<F>();
    r.scales = weight + u64(shape.tiles) * shape.steps * step_bytes<F>();
}
// Asks for the next stage of the team.
template <u32 F, u32 U>
DEVICE void read_on(FewReader& r, const TileArgs& args, const FewShape& shape, const FewParts& parts, const FewRing& ring, u32 stage, u64 policy) {
    const u32 count = least(few_steps<U>(), shape.steps - r.turn * few_steps<U>()), bytes = count * step_bytes<F>(), signal = ring.full + stage * 8u;
    const u32 scale_bytes = scaled<F>() ? (r.scale % 4u + count + 3u) / 4u * 16u : 0u;
    signal_expect(signal, bytes + scale_bytes);
    copy_bulk(ring.stages + stage * few_stage<F, U>(), r.from, bytes, signal, policy);
    if (scaled<F>()) copy_bulk(ring.scales + stage * few_scales<U>(), r.scales + r.scale / 4u * 16u, scale_bytes, signal, policy);
    r.from += bytes;
    r.scale += count;
    if (++r.turn < shape.turns) return;
    r.tile += shape.teams;
    read_where<F>(r, args, shape, parts);
}

// The sum of what the lanes before this one have.
DEVICE u32 warp_before(u32 own, u32 lane) {
    u32 sum = own;
#pragma unroll
    for (u32 apart = 1; apart < 32u; apart *= 2u) {
        const u32 other = __shfl_up_sync(0xffffffffu, sum, apart);
        if (lane >= apart) sum += other;
    }
    return sum - own;
}

// Cuts the groups' rows into parts of up to 8 E. Returns how many there are; every one of the group's lanes.
template <u32 E, u32 LANES> DEVICE u32 few_parts(const TileArgs& args, u16* parts, u32* groups, u32* counts) {
    constexpr u32 EACH = (FEW_GROUPS + LANES - 1u) / LANES;
    const u32 lane = LANE % 32u, warp = LANE / 32u;
    if (args.groups_max <= 32u) {
        // One warp does it.
        if (warp == 0) {
            const bool mine = lane < args.groups_max;
            const u32 weight = mine ? args.groups[lane * 3u] : 0, start = mine ? args.groups[lane * 3u + 1u] : 0, end = mine ? args.groups[lane * 3u + 2u] : 0;
            const u32 own = (end - start + 8u * E - 1u) / (8u * E);
            u32 before = warp_before(own, lane);
            if (mine) groups[lane * 3u] = weight, groups[lane * 3u + 1u] = start, groups[lane * 3u + 2u] = end;
            if (lane == 31u) counts[0] = before + own;
#pragma unroll 1
            for (u32 j = 0; j < own; j++) parts[before++] = u16(lane | (j << 9));
        }
        __syncthreads();
        return counts[0];
    }
    u32 own[EACH], sum = 0;
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        const u32 group = LANE * EACH + i;
        own[i] = 0;
        if (group < args.groups_max) {
            const u32 weight = args.groups[group * 3u], start = args.groups[group * 3u + 1u], end = args.groups[group * 3u + 2u];
            groups[group * 3u] = weight, groups[group * 3u + 1u] = start, groups[group * 3u + 2u] = end;
            own[i] = (end - start + 8u * E - 1u) / (8u * E);
        }
        sum += own[i];
    }
    u32 before = warp_before(sum, lane);
    if (lane == 31u) counts[warp] = before + sum;
    __syncthreads();
    u32 all = 0;
    for (u32 i = 0; i < LANES / 32u; i++) {
        if (i < warp) before += counts[i];
        all += counts[i];
    }
#pragma unroll
    for (u32 i = 0; i < EACH; i++)
#pragma unroll 1
        for (u32 j = 0; j < own[i]; j++) parts[before++] = u16((LANE * EACH + i) | (j << 9));
    __syncthreads();
    return all;
}

// Whether one row is every place's.
DEVICE bool few_same_row(const TileArgs& args) { return args.list && args.rows == 1u; }

// Places for so many rows.
template <u32 E> DEVICE u32 few_places(u32 rows) {
    if (E > 1u || rows > 4u) return (rows + 7u) / 8u * 8u;
    return rows > 2u ? 4u : rows;
}

// Asks for the rows of a part, and for the powers of two of their steps, `wide` of a row; the first LANES of the group.
template <u32 F, u32 E, u32 LANES>
DEVICE void few_rows(const TileArgs& args, u32 steps, const FewPart& own, u32 to, u32 powers, u32 wide) {
    const u32 places = few_places<E>(own.rows), pieces = steps * 8u;
    const u32 all = pieces + (coded<F>() ? (steps + 3u) / 4u : 0u);
#pragma unroll 1
    for (u32 row = 0; row < own.rows; row++) {
        const u32 place = own.start + row - (PLANTED(FAULT_TILE_NEIGHBOUR_ROW) && row > 0 ? 1u : 0u);
        const u32 at = few_same_row(args) ? 0u : args.list ? args.list[place] : place;
        GLOBAL const u8* from = args.x + (u64(at) * args.x_stride + u64(own.group) * args.x_step);
#pragma unroll 1
        for (u32 piece = LANE; piece < all; piece += LANES) {
            const u32 line = piece / 8u * places + row;
            copy16(piece < pieces ? to + line * 128u + ((piece % 8u) ^ (line % 8u)) * 16u : powers + row * wide * 4u + (piece - pieces) * 16u,
                from + piece * 16u);
        }
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
    if (parts == 1u) return shared_out(0, tiles, own, groups);
    const u32 shares = parts > 0 ? groups / parts : 0;
    if (shares == 0 || turns_of(tiles, shares, turn) > turns_of(parts * tiles, groups, turn)) return shared_out(0, parts * tiles, own, groups);
    if (own / shares >= parts) return FewTiles{0, 0};
    return shared_out(own / shares * tiles, tiles, own % shares, shares);
}

// The rest of shared memory: the rows, the powers of two of their steps (`wide` of a row), and parts.
struct FewPlaces {
    u32 rows, powers, wide;
    float* parts;
};

// What a warp multiplies: its warpgroup's place in the ring, the quad, lifted weights, and what its parts are multiplied by.
template <u32 F> struct FewQuad {
    u32 stage, quad;
    u32 a[direct<F>() ? 1u : 4u][4];
    float by;
};
template <u32 F> DEVICE void few_read(FewQuad<F>& to, const FewShape& shape, u32 scales, u32 tile) {
    const u32 lane = LANE % 32u, warp = LANE / 32u % 4u;
    const u32 own = scales + (tile * shape.steps % 4u + warp) * 4u, from = to.stage + warp * step_bytes<F>();
    if (F == FORMAT_FP8) to.by = AS_FLOAT(load_word(own)) * (PLANTED(FAULT_TILE_WRONG_SCALE) ? 2.0f : 1.0f);
    if constexpr (!direct<F>()) {
        Codes<F> codes;
        read_step<F>(from, own, lane, codes);
        lift_codes<F>(codes, 0, to.a);
    }
}

// Begins the parts of R rows at a quad's four steps: N columns.
template <u32 R> DEVICE constexpr u32 few_columns() { return R == 1u ? 8u : 4u * R; }
template <u32 F, u32 R> DEVICE void few_multiply(const FewQuad<F>& own, const FewPlaces& places, float* d) {
    constexpr u32 N = few_columns<R>();
    // One row's steps are columns by eights, two quads'.
    const u64 rows = rows_descriptor(places.rows + (R == 1u ? own.quad / 2u * 8u : own.quad * 4u * R) * 128u);
    const u64 left = rows_descriptor(own.stage);
    group_begin();
#pragma unroll
    for (u32 i = 0; i < 4u; i++) {
        if constexpr (F == FORMAT_FP8) multiply_codes<N>(d, left + i * 2u, rows + i * 2u, i > 0);
        else if constexpr (F == FORMAT_BF16) multiply_rows<N>(d, left + i * 2u, rows + i * 2u, i > 0);
        else multiply_rows<N>(d, own.a[i], rows + i * 2u, i > 0);
    }
    group_commit();
}
// Keeps the parts of the warp's step, times the weight's power of two. Past the last step they are nothing that is added.
template <u32 F, u32 R> DEVICE void few_keep(const FewQuad<F>& own, const float* d, float* to) {
    const u32 lane = LANE % 32u, warp = LANE / 32u % 4u, c = lane % 4u;
    float* here = to + warp * R * FEW_APART + lane / 4u;
    const auto keep = [&](u32 row, u32 down, float x) { here[row * FEW_APART + down * 8u] = coded<F>() ? x * own.by : x; };
    if constexpr (R == 1u) {
        if (c == own.quad % 2u * 2u + warp / 2u) {
            keep(0, 0, warp % 2u == 0 ? d[0] : d[1]);
            keep(0, 1u, warp % 2u == 0 ? d[2] : d[3]);
        }
    } else {
#pragma unroll
        for (u32 w = 0; w < 4u; w++) {
            if (warp != w) continue;
            // The warp's columns lie in one eight.
            const float* from = d + w * R / 8u * 4u;
            const u32 row = c * 2u - w * R % 8u;
            if (row < R) {
#pragma unroll
                for (u32 j = 0; j < 4u; j++) keep(row + j % 2u, j / 2u, from[j]);
            }
        }
    }
}

// A lane's sums of a tile: (output, row) `pair`, `lanes` further and so on.
template <u32 R> struct FewSums {
    float total[most(R / 2u, 1u)];
};
template <u32 F, u32 U, u32 R>
DEVICE void few_add(FewSums<R>& sums, const FewPlaces& places, const float* parts, u32 step, u32 count, u32 rows, u32 pair, u32 lanes) {
    constexpr u32 STEPS = few_steps<U>();
#pragma unroll
    for (u32 i = 0; i < sizeof(sums.total) / 4u; i++) {
        const u32 place = pair + i * lanes, row = place / 16u;
        if (row >= rows) break;
        float x[STEPS], by[STEPS];
        const float* from = parts + row * FEW_APART + place % 16u;
#pragma unroll
        for (u32 j = 0; coded<F>() && j < STEPS; j += 4u) load_floats(places.powers + (row * places.wide + step + j) * 4u, by + j);
#pragma unroll
        for (u32 j = 0; j < STEPS; j++) x[j] = from[j * R * FEW_APART];
#pragma unroll
        for (u32 j = 0; j < STEPS; j++)
            if (j < count) sums.total[i] = coded<F>() ? FMA(x[j], by[j], sums.total[i]) : sums.total[i] + x[j];
    }
}
template <u32 R>
DEVICE void few_store(FewSums<R>& sums, const TileArgs& args, const FewPart& part, u32 tile, u32 pair, u32 lanes) {
#pragma unroll
    for (u32 i = 0; i < sizeof(sums.total) / 4u; i++) {
        const u32 place = pair + i * lanes, row = place / 16u, output = tile * 16u + place % 16u;
        if (row < part.rows && output < args.outputs) {
            const Outputs to = outputs_of(args, part.group, part.start, output);
            to.at[row * to.stride] = stored(sums.total[i], args.round);
        }
        sums.total[i] = 0.0f;
    }
}

// Where a warp is: which of its team's stages, its place in the ring and the parity of the ring's turn.
struct FewTurn {
    u32 at, stage, turned;
};
DEVICE void go_on(FewTurn& turn, const FewRing& ring, u32 by) {
    turn.at += by;
    turn.stage += by;
    if (turn.stage < ring.count) return;
    turn.stage -= ring.count;
    turn.turned ^= 1u;
}

// Brings a team's stages of all parts; one lane. What it asks for ahead comes little by little: all of it at once would
// stand before what other launches wait for.
template <u32 F, u32 U>
DEVICE void few_bring(const TileArgs& args, const FewShape& shape, const FewParts& parts, const FewRing& ring, u32 first, u32 end) {
    const u64 policy = read_once();
    const u32 part = first / shape.tiles, apart = most(FEW_AHEAD / shape.teams / few_stage<F, U>(), 1u);
    FewReader reader{first + shape.side, least(end, (part + 1u) * shape.tiles), end, part, 0, 0, 0, 0};
    read_where<F>(reader, args, shape, parts);
    FewTurn turn = {0, 0, 1u};
#pragma unroll 1
    for (; reader.tile < end; go_on(turn, ring, 1u)) {
        if (turn.at >= ring.count) signal_wait(ring.free + turn.stage * 8u, turn.turned);
        else if (turn.at >= apart) signal_wait(ring.full + (turn.at - apart) * 8u, 0u);
        read_on<F, U>(reader, args, shape, parts, ring, turn.stage, policy);
    }
}

// A warpgroup has two places for parts, of each a signal that they are there, and behind these one that they were added.
// A warpgroup's stages of a part of the rows, from the team's `begin` on, whose tile is `first` of the weight, to `end`.
template <u32 F, u32 U, u32 R>
DEVICE void few_multiply_all(const FewShape& shape, const FewRing& ring, u32 signals, const FewPlaces& places, u32 first, u32 begin, u32 end,
    FewTurn& turn, u32& before) {
    // Of more rows one quad's weights and sums are all that registers hold.
    constexpr u32 PARTS = 4u * R * FEW_APART;
    constexpr bool BOTH = U == 1u || R <= 2u;
    float* const parts = places.parts + (shape.side * shape.team + shape.own) * 2u * U * PARTS;
    u32 tile = first, own = turn.at - begin;
    while (turn.at < end) {
        for (; own >= shape.turns; tile += shape.teams) own -= shape.turns;
        FewQuad<F> quads[U];
        float d[BOTH ? U : 1u][few_columns<R>() / 2u];
        const u32 place = before % 2u;
        float* const to = parts + place * U * PARTS;
        signal_wait(ring.full + turn.stage * 8u, turn.turned);
        const auto wait_for_place = [&] {
            if (before >= 2u) signal_wait(signals + (place + 2u) * 8u, (before / 2u - 1u) % 2u);
        };
        if (!BOTH) wait_for_place();
#pragma unroll
        for (u32 i = 0; i < U; i++) {
            float* const sums = d[BOTH ? i : 0u];
            quads[i].stage = ring.stages + turn.stage * few_stage<F, U>() + i * 4u * step_bytes<F>();
            quads[i].quad = own * U + i;
            few_read<F>(quads[i], shape, ring.scales + turn.stage * few_scales<U>() + i * 16u, tile);
            few_multiply<F, R>(quads[i], places, sums);
            if (BOTH) continue;
            group_wait();
            few_keep<F, R>(quads[i], sums, to + i * PARTS);
        }
        if (BOTH) {
            wait_for_place();
            group_wait();
        }
        warp_arrives(ring.free + turn.stage * 8u);
#pragma unroll
        for (u32 i = 0; BOTH && i < U; i++) few_keep<F, R>(quads[i], d[i], to + i * PARTS);
        warp_arrives(signals + place * 8u);
        before++;
        own += shape.team;
        go_on(turn, ring, shape.team);
    }
}

// A warp's part of the sums of those.
template <u32 F, u32 U, u32 R>
DEVICE void few_add_all(const TileArgs& args, const FewShape& shape, const FewPart& part, u32 signals, const FewPlaces& places, u32 first, u32 end,
    FewTurn& turn, u32& before) {
    const u32 lanes = shape.team * 32u, pair = shape.own * 32u + LANE % 32u;
    const u32 tail = shape.steps - (shape.turns - 1u) * few_steps<U>() - (PLANTED(FAULT_TILE_DROPPED_STEP) ? 1u : 0u);
    u32 tile = first, own = 0;
    FewSums<R> sums = {};
    for (; turn.at < end; turn.at++) {
        // The warpgroup whose stage it is, and its place for parts.
        const u32 owner = shape.side * shape.team + turn.stage, place = before % 2u, signal = signals + (owner * 4u + place) * 8u;
        const float* parts = places.parts + (owner * 2u + place) * few_steps<U>() * R * FEW_APART;
        signal_wait(signal, before / 2u % 2u);
        const bool more = own + 1u < shape.turns;
        few_add<F, U, R>(sums, places, parts, own * few_steps<U>(), more ? few_steps<U>() : tail, part.rows, pair, lanes);
        warp_arrives(signal + 16u);
        if (++turn.stage == shape.team) {
            turn.stage = 0;
            before++;
        }
        own++;
        if (more) continue;
        few_store<R>(sums, args, part, tile, pair, lanes);
        own = 0;
        tile += shape.teams;
    }
}

// F, the format; U, the quads at a time; places for LEAST to MOST rows.
template <u32 F, u32 U, u32 LEAST, u32 MOST> DEVICE void few(const TileArgs& args) {
    LAUNCH_SHARED(__align__(1024) u8, shared);
    constexpr u32 E = LEAST == 8u ? 2u : 1u;
    const bool reads = LANE >= FEW_READERS, adds = LANE >= FEW_ADDERS && !reads;
    const u32 which = reads ? (LANE - FEW_READERS) / 32u : adds ? (LANE - FEW_ADDERS) / 32u : LANE / 128u;
    FewShape shape;
    shape.steps = args.inputs / step_inputs<F>();
    shape.turns = (shape.steps + few_steps<U>() - 1u) / few_steps<U>();
    shape.tiles = (args.outputs + 15u) / 16u;
    shape.team = args.chunk;
    shape.teams = 2u / args.chunk;
    shape.own = which % shape.team;
    shape.side = which / shape.team;

    // Shared memory: rows, rings, rows' powers of two, parts, rings' scales, signals, the rows' parts.
    const u32 base = shared_address(shared), most_places = few_places<E>(args.most_rows);
    FewPlaces places;
    places.wide = (shape.steps + 7u) / 8u * 8u;
    places.rows = base;
    const u32 rings = base + most_places * places.wide * 128u, stages = 2u * args.stages;
    places.powers = rings + stages * few_stage<F, U>();
    const u32 parts_at = places.powers + most_places * places.wide * 4u, scales = parts_at + 4u * few_steps<U>() * most_places * FEW_APART * 4u;
    places.parts = reinterpret_cast<float*>(shared + (parts_at - base));
    const u32 full = scales + stages * few_scales<U>(), free = full + FEW_STAGES * 8u, there = free + FEW_STAGES * 8u, words = there + 64u;
    const u32 count = stages / shape.teams;
    const FewRing ring{rings + shape.side * count * few_stage<F, U>(), scales + shape.side * count * few_scales<U>(), full + shape.side * count * 8u, free + shape.side * count * 8u, count};
    u32* counts = reinterpret_cast<u32*>(shared + (words - base));
    u32* group_words = counts + FEW_LANES / 32u;
    u16* part_words = reinterpret_cast<u16*>(group_words + FEW_GROUPS * 3u);
    const FewParts parts{part_words, group_words};

    const bool asks = reads && LANE % 32u == 0 && shape.own == 0, waits = args.groups && !args.known;
    if (asks) {
#pragma unroll 1
        for (u32 i = 0; i < count; i++) {
            signal_new(ring.full + i * 8u, 1u);
            signal_new(ring.free + i * 8u, 4u * WARP_ARRIVALS);
        }
#pragma unroll 1
        for (u32 i = 0; i < shape.team * 4u; i++)
            signal_new(there + (shape.side * shape.team * 4u + i) * 8u, (i % 4u < 2u ? 4u : shape.team) * WARP_ARRIVALS);
        signals_made();
    }
    if (args.early) dependents_may_start();
    if (waits) wait_for_launches_before();
    // Where rows are there before the weights are asked for they come first, behind all of which they would wait.
    const bool at_once = waits && few_same_row(args);
    if (at_once && !reads) few_rows<F, E, FEW_READERS>(args, shape.steps, FewPart{0, 0, 1u}, places.rows, places.powers, places.wide);
    u32 all = args.groups_max * parts_of_rows(args);
    if (args.groups) all = few_parts<1u, FEW_LANES>(args, part_words, group_words, counts);
    else __syncthreads();
    const FewTiles tiles = few_tiles(all, shape.tiles, GROUP_X, GROUPS_X, shape.teams);
    const u32 first = tiles.first, end = tiles.end;
    if (reads) {
        // One lane: another that waited for launches would hold up the warp.
        if (asks && first < end) few_bring<F, U>(args, shape, parts, ring, first, end);
        __syncwarp();
    } else {
        if (!waits && !args.beside) wait_for_launches_before();
        // What starts from here on finds all that was there before this launch, or before the one that it runs beside.
        dependents_may_start();
        // Of a warpgroup how many stages it had before, of a warp that adds how many each of its team's had.
        FewTurn turn = {0, 0, 0};
        if (!adds) turn.at = turn.stage = shape.own;
        u32 had = 0, begin = 0;
        // The tiles of one part of the rows at a time.
        for (u32 own = first < end ? first / shape.tiles : 0, at = first; at < end; own++) {
            const FewPart part = part_of<1u>(args, parts, own);
            // The team's stages up to the part's end.
            const u32 last = least(end, (own + 1u) * shape.tiles), from = at + shape.side, before = own * shape.tiles;
            const u32 turns_end = begin + (from < last ? (last - from + shape.teams - 1u) / shape.teams * shape.turns : 0u);
            if (at > first) team_meets(1u, FEW_READERS);
            if (at > first || !at_once) few_rows<F, E, FEW_READERS>(args, shape.steps, part, places.rows, places.powers, places.wide);
            copies_wait<0>();
            copies_shown();
            team_meets(1u, FEW_READERS);
#define FEW_ROWS(R)                                                                                                           \
    {                                                                                                                         \
        if (adds) few_add_all<F, U, R>(args, shape, part, there, places, from - before, turns_end, turn, had);                \
        else few_multiply_all<F, U, R>(shape, ring, there + which * 32u, places, from - before, begin, turns_end, turn, had); \
    }
            const u32 rows = few_places<E>(part.rows);
            if (LEAST == 8u) FEW_ROWS(8u)
            else if (rows == 1u) FEW_ROWS(1u)
            else if (rows == 2u) FEW_ROWS(2u)
            else if (MOST == 4u || rows == 4u) FEW_ROWS(4u)
            else FEW_ROWS(8u)
            begin = turns_end;
            at = last;
        }
    }
    // What waits for this launch waits for the one beside it; one group is enough, the others leave their room.
    __syncwarp();
    if (args.beside && GROUP_X == 0) wait_for_launches_before();
}

template <u32 F> DEVICE void few_by_rows(const TileArgs& args) {
    if (args.quads == 2u) few<F, 2u, 1u, 4u>(args);
    else few<F, 1u, 1u, 8u>(args);
}

CUDA_HALF_KERNEL(tile_fp8_few, TileArgs, FEW_LANES) { few_by_rows<FORMAT_FP8>(args); }
CUDA_HALF_KERNEL(tile_bf16_few, TileArgs, FEW_LANES) { few_by_rows<FORMAT_BF16>(args); }
CUDA_HALF_KERNEL(tile_lifted_few, TileArgs, FEW_LANES) { few_by_rows<FORMAT_LIFTED>(args); }
// 5 to 8 long rows leave two groups too small a ring: here one has the processor.
CUDA_FULL_KERNEL(tile_fp8_eight, TileArgs, FEW_LANES) { few<FORMAT_FP8, 2u, 8u, 8u>(args); }
CUDA_FULL_KERNEL(tile_bf16_eight, TileArgs, FEW_LANES) { few<FORMAT_BF16, 2u, 8u, 8u>(args); }
#endif
