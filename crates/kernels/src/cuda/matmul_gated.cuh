// The first product of one row's routed experts with what follows it: a group makes a step of 128 channels of an expert's
// hidden row, eight tiles of each of the two weights, gates them as `swiglu` does and stores their codes. The sums are
// matmul_wide.cuh's, so a channel has the bits that it has by the two launches.
#pragma once
#ifdef HOPPER

// Tiles of a step of channels: of both weights, which lie one behind the other.
#define GATED_TILES 16u

CUDA_FULL_KERNEL(tile_fp4_gated, GatedArgs, WIDE_LANES) {
    LAUNCH_SHARED(__align__(1024) u8, shared);
    GROUP_SHARED(float, values, [GATED_TILES * 16u]);
    GROUP_SHARED(u32, chosen, [3]);
    const u32 steps = args.inputs / step_inputs<FORMAT_FP4>(), lane = LANE % 32u, made = args.width / STEP_CHANNELS;
    const bool brings = LANE >= WIDE_WORK;
    const u32 warpgroup = brings ? (LANE - WIDE_WORK) / 32u : LANE / 128u;
    // The one row's product: all of the group's tiles are its own, and their outputs stay here.
    TileArgs own = {};
    own.x = args.x;
    own.out = values;
    own.rows = own.most_rows = 1u;
    own.inputs = args.inputs;
    own.outputs = own.split = GATED_TILES * 16u;
    own.round = args.round;
    own.chunk = 4u;
    own.stages = args.stages;
    const WidePlaces places = wide_places<FORMAT_FP4, 1u>(own, shared_address(shared), steps, warpgroup);
    if (brings) wide_signals(places, args.stages, lane);
    if (LANE < 32u) write_table(places.table);
    wait_for_launches_before();
    const FewPart part{0, 0, 1u};
    if (!brings) few_rows<FORMAT_FP4, 1u, WIDE_WORK>(own, steps, part, places.rows, places.powers, places.wide);
    if (LANE < 3u) chosen[LANE] = args.groups[GROUP_X / made * 3u + LANE];
    __syncthreads();
    // A group without a row makes nothing.
    const bool used = chosen[1] < chosen[2];
    const u32 place = chosen[1], step = GROUP_X % made;
    if (brings) {
        if (lane == 0) {
            // Warpgroups 0 and 1 take the gates' tiles, the others the same of the other weight.
            const u64 tile_bytes = u64(steps) * step_bytes<FORMAT_FP4>();
            const u32 tile = warpgroup / 2u * (args.width / 16u) + step * (GATED_TILES / 2u) + warpgroup % 2u * 4u;
            WideTurn turn = {0, 1u};
            u32 asked = 0;
            GLOBAL const u8* from = args.weight + chosen[0] * args.expert_bytes + tile * tile_bytes;
            if (used) wide_bring_four<FORMAT_FP4, 1u>(own, steps, places, from, 4u, turn, asked, [] {});
            // The next product's groups would take the room of what runs beside this one, and have no rows before its end.
            dependents_may_start();
        }
        __syncwarp();
        return;
    }
    copies_wait<0>();
    copies_shown();
    team_meets(1u, WIDE_WORK);
    if (!used) return;
    WideTurn turn = {0, 0};
    wide_multiply<FORMAT_FP4, 1u>(own, steps, turn, places, nullptr, part, 0, GATED_TILES);
    team_meets(1u, WIDE_WORK);
    if (LANE >= 32u) return;
    SwigluArgs gates = {};
    gates.limit = args.limit;
    gates.round = args.round;
    const float share = args.shares[place];
    float x[4];
#pragma unroll
    for (u32 i = 0; i < 4u; i++) x[i] = gated(gates, values[lane * 4u + i], values[STEP_CHANNELS + lane * 4u + i], share);
    store_coded_fours(x, true, args.coded + u64(place) * row_bytes(args.width), step * STEP_CHANNELS + lane * 4u, args.width);
}
#endif
