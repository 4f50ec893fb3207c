// What the kernels of CUDA alone take of the machine, each word of it a named function: this is the
// device's version, host/primitives.h has the emulator's. The kernels themselves have no assembly.
//
// Shared memory has two names: a pointer, and an address of 32 bits that instructions take.
#pragma once

// Shared memory that the kernel declares, and that a launch asks for beside it.
#define GROUP_SHARED(T, name, dimensions) __shared__ T name dimensions
#define LAUNCH_SHARED(T, name) extern __shared__ T name[]
#define GROUPS_X gridDim.x

DEVICE u32 shared_address(const void* at) { return u32(__cvta_generic_to_shared(at)); }

// Two products of bf16, exact where the result fits. Before 9.0 a product is a sum with -0, which changes none.
DEVICE u32 times_bf16(u32 a, u32 b) {
    u32 out;
#if __CUDA_ARCH__ >= 900
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
#else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(0x80008000u));
#endif
    return out;
}

// Both halves a word's low one, or its high one: instructions on halves take either as it is.
DEVICE u32 low_twice(u32 x) {
    u32 out;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\nmov.b32 %0, {l, l};\n}" : "=r"(out) : "r"(x));
    return out;
}
DEVICE u32 high_twice(u32 x) {
    u32 out;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\nmov.b32 %0, {h, h};\n}" : "=r"(out) : "r"(x));
    return out;
}

// Four bytes of two words, one by each of the low nibbles of `places`: its number from the low word's first, or with 8
// more the byte's sign in all of its bits.
DEVICE u32 byte_select(u32 low, u32 high, u32 places) {
    u32 out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(places));
    return out;
}

// The two values of f32 nearest in bf16, `low` in the low half; a NaN stays one.
DEVICE u32 pair_bf16(float low, float high) {
    u32 out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

// 2^x within two units of its last place; what is subnormal is 0.
DEVICE float exp2_fast(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// x where it is above 0, 0 below, a NaN as it is.
DEVICE float positive_part(float x) {
    float out;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(out) : "f"(x));
    return out;
}

// d += a b, [16, 16] times [16, 8] in bf16, by the 32 lanes of a warp. Lane (g, t) = (lane / 4, lane % 4)
// has of a rows g and g + 8, columns 2 t and the next, then those 8 further; of b rows 2 t.. and those 8
// further of column g; of d rows g, then g + 8, columns 2 t and the next.
DEVICE void multiply(float* d, const u32* a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 by 8 parts of 16-bit words, one row's 16 bytes by each lane's address.
DEVICE void load_parts(u32 from, u32* to) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}
// The same, each part transposed.
DEVICE void load_transposed(u32 from, u32* to) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}

// Shared memory by address.
DEVICE u32 load_byte(u32 from) {
    u32 to;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(to) : "r"(from));
    return to;
}
DEVICE u32 load_half(u32 from) {
    u32 to;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(to) : "r"(from));
    return to;
}
DEVICE u32 load_word(u32 from) {
    u32 to;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to) : "r"(from));
    return to;
}
DEVICE void load_words(u32 from, u32* to) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}
DEVICE void load_pair(u32 from, float* to) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(from));
}
DEVICE void load_pair(u32 from, u32* to) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(from));
}
DEVICE void load_floats(u32 from, float* to) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"(from));
}
DEVICE void store_word(u32 to, u32 x) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory"); }

// Copies 16 bytes to shared memory; they are there after a wait for the lane's copies of its commit.
DEVICE void copy16(u32 to, GLOBAL const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// The same of 4 bytes.
DEVICE void copy4(u32 to, GLOBAL const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// The signal has this lane's arrival once what the lane asked for so far is there.
DEVICE void copies_arrive(u32 signal) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(signal) : "memory");
}
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all commits but the last N.
template <u32 N> DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// So many lanes from the first of the group on meet here; what they stored before is there for all of them. The index is
// theirs alone, from 1 on.
DEVICE void team_meets(u32 index, u32 lanes) { asm volatile("bar.sync %0, %1;" ::"r"(index), "r"(lanes) : "memory"); }
