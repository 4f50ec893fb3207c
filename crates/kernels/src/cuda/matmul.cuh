// Matrix products on Hopper's tensor cores: out[r][o] = sum_k W[o][k] x[r][k], rows x in bf16, weights in their
// stored codes, rearranged by arrange.h and lifted exactly to bf16 in registers.
//
// Order of a sum. K is cut into `slices` of equal length, fixed by the weight's shape. A slice is one
// chain of products of 16 inputs, ascending, from zero; slices are added in ascending order, the first
// one taken as it is. Every kernel here does this for each (row, output), whatever the number of rows.
#pragma once
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A group that has a processor to itself.
#define CUDA_FULL_KERNEL(name, Args, lanes)                                                        \
    extern "C" __global__ void __launch_bounds__(lanes, 1) name(const __grid_constant__ Args args)

// Two groups in y are a cluster: they reach into each other's shared memory.
#define CUDA_PAIR_KERNEL(name, Args, lanes)                                                        \
    extern "C" __global__ void __cluster_dims__(1, 2, 1) __launch_bounds__(lanes, 1)               \
        name(const __grid_constant__ Args args)

DEVICE u32 shared_address(const void* at) { return u32(__cvta_generic_to_shared(at)); }

// The stored bytes of 16 outputs times 64 inputs.
template <u32 F> DEVICE constexpr u32 step_bytes() {
    return F == FORMAT_FP8 ? 1024u : F == FORMAT_FP4 ? 544u : 2048u;
}

DEVICE u32 times(u32 a, u32 b) {
    u32 d;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

// The power of two whose biased exponent is byte `at` of `word`, in both halves.
DEVICE u32 multiplier(u32 word, u32 at) {
    const u32 byte = __byte_perm(word, 0u, 0x4440u | at);
    return (PLANTED(FAULT_TILE_WRONG_SCALE) ? byte + 1u : byte) * 0x00800080u;
}

DEVICE void load_words(u32 from, u32 (&to)[4]) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}

// The left operand of four products of 16 inputs: a[i] is inputs 16 i.. of a step, from shared memory.
// `exponents` has the scales' bytes of the step's two units of 32 inputs where the weight is FP8.
template <u32 F> DEVICE void lift_step(u32 from, u32 lane, u32 exponents, u32 (&a)[4][4]) {
    if (F == FORMAT_FP8) {
#pragma unroll
        for (u32 unit = 0; unit < 2u; unit++) {
            u32 w[4];
            load_words(from + unit * 512u + lane * 16u, w);
            const u32 by = multiplier(exponents, unit);
#pragma unroll
            for (u32 i = 0; i < 4u; i++) {
                const u32 first = w[i] & 0x87f087f0u;
                const u32 second = ((w[i] << 4) & 0x80f080f0u) | ((w[i] >> 4) & 0x07000700u);
                a[unit * 2u + i / 2u][i % 2u] = times(first, by);
                a[unit * 2u + i / 2u][i % 2u + 2u] = times(second, by);
            }
        }
    } else if (F == FORMAT_FP4) {
        u32 w[4], bytes;
        load_words(from + lane * 16u, w);
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(bytes) : "r"(from + 512u + lane / 4u * 4u));
#pragma unroll
        for (u32 i = 0; i < 4u; i++) {
            // Word i: row half i % 2, inputs 32 (i / 2)..; the scales' bytes lie in the same order.
            const u32 by = multiplier(bytes, i);
            const u32 x = w[i], right4 = __funnelshift_r(x, x, 4), right6 = __funnelshift_r(x, x, 6);
            const u32 k = i / 2u * 2u, half = i % 2u;
            a[k][half] = times(x & 0x81c081c0u, by);
            a[k][half + 2u] = times(right4 & 0x81c081c0u, by);
            a[k + 1u][half] = times((x << 6) & 0x81c081c0u, by);
            a[k + 1u][half + 2u] = times((right6 & 0x81808180u) | ((x << 2) & 0x00400040u), by);
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < 4u; i++) load_words(from + i * 512u + lane * 16u, a[i]);
    }
}

// d += a b, 16 outputs times 8 rows, 16 inputs.
DEVICE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 by 8 parts of the right operand, one row's 16 bytes by each lane's address.
DEVICE void load_parts(u32 from, u32 (&to)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}

DEVICE void copy16(u32 to, GLOBAL const u8* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <u32 N> DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

DEVICE void load_floats(u32 from, float (&to)[4]) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"(from));
}
// C, the groups of the cluster: with more than one, the place may be another group's, and its signal
// counts the bytes.
template <u32 C> DEVICE void store_floats(u32 to, const float (&x)[4], u32 signal) {
    if (C == 1u)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                     ::"r"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
    else
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                     ::"r"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(signal) : "memory");
}
// The same place in the shared memory of a group of the cluster.
DEVICE u32 place_in(u32 at, u32 group) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(group));
    return there;
}
// Every lane of the cluster meets here.
DEVICE void everyone() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A signal turns after so many arrivals.
DEVICE void signal_new(u32 signal, u32 arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(signal), "r"(arrivals) : "memory");
}
template <u32 C> DEVICE void signal_arrive(u32 signal) {
    if (C == 1u) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(signal) : "memory");
    else asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(signal) : "memory");
}
DEVICE void signal_wait(u32 signal, u32 parity) {
    u32 turned = 0;
    while (!turned)
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(turned) : "r"(signal), "r"(parity) : "memory");
}
// Arrives at a signal, which then waits for so many bytes too.
DEVICE void signal_expect(u32 signal, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(signal), "r"(bytes) : "memory");
}
// The same, after what any group of the cluster did before it arrived.
template <u32 C> DEVICE void signal_wait_all(u32 signal, u32 parity) {
    if (C == 1u) return signal_wait(signal, parity);
    u32 turned = 0;
    while (!turned)
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(turned) : "r"(signal), "r"(parity) : "memory");
}
// Copies whole multiples of 16 bytes; `signal` counts them as they arrive.
DEVICE void copy_bulk(u32 to, GLOBAL const u8* from, u32 bytes, u32 signal, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(signal), "l"(policy) : "memory");
}
DEVICE u64 read_once() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Launches that depend on this one may start; what they wait for is this one's end.
DEVICE void dependents_may_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// What launches before this one wrote may be read.
DEVICE void wait_for_launches_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Where outputs of a tile go: row r's are at `at + r * stride`. A tile lies on one side of the split.
struct Outputs {
    GLOBAL float* at;
    u64 stride;
};
DEVICE Outputs outputs_of(const TileArgs& args, u32 group, u32 start, u32 output) {
    const bool own = output < args.split;
    const u64 stride = own ? args.out_stride : args.second_stride;
    GLOBAL float* at = own ? args.out + u64(group) * args.out_step + output : args.second + (output - args.split);
    return Outputs{at + start * stride, stride};
}
#endif
