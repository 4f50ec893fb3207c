// What products on Hopper take of the machine beside primitives.cuh: signals, copies in bulk and
// the instruction of a warpgroup. The emulator's version stands in host/primitives.h too.
#pragma once
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HOPPER

// A group that has a processor to itself.
#define CUDA_FULL_KERNEL(name, Args, lanes)                                                        \
    extern "C" __global__ void __launch_bounds__(lanes, 1) name(const __grid_constant__ Args args)

// Two groups share a processor.
#define CUDA_HALF_KERNEL(name, Args, lanes)                                                        \
    extern "C" __global__ void __launch_bounds__(lanes, 2) name(const __grid_constant__ Args args)

// A signal turns after so many arrivals.
DEVICE void signal_new(u32 signal, u32 arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(signal), "r"(arrivals) : "memory");
}
DEVICE void signal_arrive(u32 signal) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(signal) : "memory");
}
// Of a warp's lanes so many arrive for it. One is enough, but a race checker sees the order of lanes that arrive
// themselves only: for it each does.
#ifdef EVERY_LANE_SIGNALS
#define WARP_ARRIVALS 32u
#else
#define WARP_ARRIVALS 1u
#endif
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
// Copies whole multiples of 16 bytes; `signal` counts them as they arrive.
DEVICE void copy_bulk(u32 to, GLOBAL const u8* from, u32 bytes, u32 signal, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(signal), "l"(policy) : "memory");
}
DEVICE u64 read_often() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
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

// Signals made here may be used by copies.
DEVICE void signals_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// What this lane's copies brought may be read by `multiply_rows`, after a barrier.
DEVICE void copies_shown() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Products of a warpgroup run beside its lanes from `group_commit` on. All but the last N commits are done after
// `group_wait`; of several in flight, a sum is read once it is `settled`.
DEVICE void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <u32 N = 0> DEVICE void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
DEVICE void settled(float& x) { asm volatile("" : "+f"(x)::"memory"); }

// A warpgroup takes registers that another has given, until its lanes have N each.
template <u32 N> DEVICE void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <u32 N> DEVICE void registers_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// The sums of so many columns: their names in an instruction's text, and what stands for these.
#define NAMES_8 "%0, %1, %2, %3"
#define NAMES_16 NAMES_8 ", %4, %5, %6, %7"
#define NAMES_24 NAMES_16 ", %8, %9, %10, %11"
#define NAMES_32 NAMES_24 ", %12, %13, %14, %15"
#define NAMES_40 NAMES_32 ", %16, %17, %18, %19"
#define NAMES_48 NAMES_40 ", %20, %21, %22, %23"
#define NAMES_56 NAMES_48 ", %24, %25, %26, %27"
#define NAMES_64 NAMES_56 ", %28, %29, %30, %31"
#define NAMES_72 NAMES_64 ", %32, %33, %34, %35"
#define NAMES_80 NAMES_72 ", %36, %37, %38, %39"
#define NAMES_96 NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_112 NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define NAMES_128 NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FOUR_SUMS(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_8 FOUR_SUMS(0)
#define SUMS_16 SUMS_8, FOUR_SUMS(4)
#define SUMS_24 SUMS_16, FOUR_SUMS(8)
#define SUMS_32 SUMS_24, FOUR_SUMS(12)
#define SUMS_40 SUMS_32, FOUR_SUMS(16)
#define SUMS_48 SUMS_40, FOUR_SUMS(20)
#define SUMS_56 SUMS_48, FOUR_SUMS(24)
#define SUMS_64 SUMS_56, FOUR_SUMS(28)
#define SUMS_72 SUMS_64, FOUR_SUMS(32)
#define SUMS_80 SUMS_72, FOUR_SUMS(36)
#define SUMS_96 SUMS_80, FOUR_SUMS(40), FOUR_SUMS(44)
#define SUMS_112 SUMS_96, FOUR_SUMS(48), FOUR_SUMS(52)
#define SUMS_128 SUMS_112, FOUR_SUMS(56), FOUR_SUMS(60)
// The widths there are, each with the places of what follows its sums in the text.
#define EACH_WIDTH(multiply, kind)                                                                 \
    multiply(kind, 8, 4, 5, 6, 7, 8, 9)                                                            \
    multiply(kind, 16, 8, 9, 10, 11, 12, 13)                                                       \
    multiply(kind, 24, 12, 13, 14, 15, 16, 17)                                                     \
    multiply(kind, 32, 16, 17, 18, 19, 20, 21)                                                     \
    multiply(kind, 40, 20, 21, 22, 23, 24, 25)                                                     \
    multiply(kind, 48, 24, 25, 26, 27, 28, 29)                                                     \
    multiply(kind, 56, 28, 29, 30, 31, 32, 33)                                                     \
    multiply(kind, 64, 32, 33, 34, 35, 36, 37)                                                     \
    multiply(kind, 72, 36, 37, 38, 39, 40, 41)                                                     \
    multiply(kind, 80, 40, 41, 42, 43, 44, 45)                                                     \
    multiply(kind, 96, 48, 49, 50, 51, 52, 53)                                                     \
    multiply(kind, 112, 56, 57, 58, 59, 60, 61)                                                    \
    multiply(kind, 128, 64, 65, 66, 67, 68, 69)
#define BF16_PRODUCT "k16.f32.bf16.bf16"
#define CODES_PRODUCT "k32.f32.e4m3.e4m3"
#define PRODUCT_TEXT(kind, n, left, right, add, order)                                             \
    "{\n.reg .pred p;\nsetp.ne.b32 p, %" #add ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n kind " {" NAMES_##n \
    "}, " left ", %" #right ", p, 1, 1" order ";\n}"
#define FROM_REGISTERS(kind, n, a0, a1, a2, a3, right, add_)                                       \
    if constexpr (N == n##u)                                                                       \
        asm volatile(PRODUCT_TEXT(kind##_PRODUCT, n, "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}", right, add_, kind##_ORDER) \
                     : SUMS_##n : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(u32(add)));
#define FROM_ROWS(kind, n, left, right, add_, a3, a4, a5)                                          \
    if constexpr (N == n##u)                                                                       \
        asm volatile(PRODUCT_TEXT(kind##_PRODUCT, n, "%" #left, right, add_, kind##_BOTH_ORDER)    \
                     : SUMS_##n : "l"(a), "l"(b), "r"(u32(add)));
// Which operands of bf16 in shared memory lie by their inputs; codes cannot.
#define BF16_ORDER ", 0"
#define BF16_BOTH_ORDER ", 0, 0"
#define CODES_ORDER ""
#define CODES_BOTH_ORDER ""

// d += a b of 64 outputs times N rows and 16 inputs in bf16; the first of a chain begins from zero.
template <u32 N> DEVICE void multiply_rows(float* d, const u32 (&a)[4], u64 b, bool add) {
    EACH_WIDTH(FROM_REGISTERS, BF16)
}
// The same where the left operand lies in shared memory too, in rows of 128 bytes.
template <u32 N> DEVICE void multiply_rows(float* d, u64 a, u64 b, bool add) { EACH_WIDTH(FROM_ROWS, BF16) }
// The same of 32 inputs in e4m3 codes: word 0 of a lane's four has codes 4 (lane % 4).. of output lane / 4, word 1
// those of the output 8 further, words 2 and 3 the codes 16 further of both.
template <u32 N> DEVICE void multiply_codes(float* d, const u32 (&a)[4], u64 b, bool add) {
    EACH_WIDTH(FROM_REGISTERS, CODES)
}
template <u32 N> DEVICE void multiply_codes(float* d, u64 a, u64 b, bool add) { EACH_WIDTH(FROM_ROWS, CODES) }
// As multiply_rows where the right operand's 16 inputs lie one after another and each has its 128 columns in a row.
DEVICE void multiply_columns(float (&d)[64], u64 a, u64 b, bool add) {
    asm volatile(PRODUCT_TEXT(BF16_PRODUCT, 128, "%64", 65, 66, ", 0, 1") : SUMS_128 : "l"(a), "l"(b), "r"(u32(add)));
}
#endif
