// The order of routes by expert, for any number of them: what group_routes makes, by counting. A warp has a
// stretch of routes and its own counts, so routes of an expert keep their order.
#pragma once

#define ROUTE_WARPS 32u
#define ROUTES_SHARED (ROUTE_WARPS * ROUTE_EXPERTS * 4u)

CUDA_KERNEL(tile_group_routes, GroupArgs, 1024) {
    LAUNCH_SHARED(uint4, tile_shared);
    GROUP_SHARED(u32, routes_before, [ROUTE_WARPS]);
    GROUP_SHARED(u32, used_before, [ROUTE_WARPS]);
    u32* counts = reinterpret_cast<u32*>(tile_shared);
    const u32 lane = LANE % 32u, warp = LANE / 32u, below = (1u << lane) - 1u;
    const u32 stretch = (args.routes + ROUTE_EXPERTS - 1u) / ROUTE_EXPERTS * 32u;
    const u32 first = warp * stretch, warps = (args.routes + stretch - 1u) / stretch;
    for (u32 w = 0; w < warps; w++) counts[w * ROUTE_EXPERTS + LANE] = 0;
    __syncthreads();
    u32* own = counts + warp * ROUTE_EXPERTS;
    for (u32 at = first + lane; at < first + stretch && warp < warps; at += 32u) {
        const u32 expert = at < args.routes ? args.experts[at] : NO_PICK;
        const u32 peers = __match_any_sync(0xffffffffu, expert);
        if (expert < ROUTE_EXPERTS && (peers & below) == 0) own[expert] += __popc(peers);
        __syncwarp();
    }
    __syncthreads();
    // A thread is an expert now: its routes in the warps before each, then those of the experts before.
    u32 total = 0;
    for (u32 w = 0; w < warps; w++) {
        const u32 count = counts[w * ROUTE_EXPERTS + LANE];
        counts[w * ROUTE_EXPERTS + LANE] = total;
        total += count;
    }
    u32 routes = total, used = total > 0 ? 1u : 0u;
    for (u32 apart = 1u; apart < 32u; apart *= 2u) {
        const u32 more = __shfl_up_sync(0xffffffffu, routes, apart), others = __shfl_up_sync(0xffffffffu, used, apart);
        if (lane >= apart) routes += more, used += others;
    }
    if (lane == 31u) routes_before[warp] = routes, used_before[warp] = used;
    __syncthreads();
    const u32 before = __reduce_add_sync(0xffffffffu, lane < warp ? routes_before[lane] : 0);
    const u32 before_used = __reduce_add_sync(0xffffffffu, lane < warp ? used_before[lane] : 0);
    const u32 all_used = __reduce_add_sync(0xffffffffu, used_before[lane]);
    const u32 start = before + routes - total;
    for (u32 w = 0; w < warps; w++) counts[w * ROUTE_EXPERTS + LANE] += start;
    if (total > 0) {
        GLOBAL u32* group = args.groups + (before_used + used - 1u) * 3u;
        group[0] = LANE;
        group[1] = start;
        group[2] = start + total;
    }
    for (u32 i = all_used * 3u + LANE; i < args.groups_max * 3u; i += ROUTE_EXPERTS) args.groups[i] = 0;
    __syncthreads();
    for (u32 at = first + lane; at < first + stretch && warp < warps; at += 32u) {
        const u32 expert = at < args.routes ? args.experts[at] : NO_PICK;
        const u32 peers = __match_any_sync(0xffffffffu, expert);
        const u32 ahead = PLANTED(FAULT_GROUP_UNSTABLE) ? __popc(peers & ~below) - 1u : __popc(peers & below);
        const u32 place = expert < ROUTE_EXPERTS ? own[expert] + ahead : 0;
        __syncwarp();
        if (expert < ROUTE_EXPERTS) {
            if ((peers & below) == 0) own[expert] += __popc(peers);
            args.places[at] = place;
            args.rows[place] = at / args.topk;
            args.sorted[place] = args.weights[at];
        }
        __syncwarp();
    }
}
