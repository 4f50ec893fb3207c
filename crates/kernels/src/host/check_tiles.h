// A kernel whose lane 5 does what a device refuses, or reads what is not there yet, by `mode`: holds the
// emulator to what it must find.
#pragma once

struct AstrayArgs {
    u8* memory;
    u32* out;
    u32 bytes;
    u32 mode;
};

#define ASTRAY_CLEAN 0u
#define ASTRAY_PAST 1u
#define ASTRAY_NULL 2u
#define ASTRAY_UNALIGNED 3u
#define ASTRAY_INDEX 4u
#define ASTRAY_SHARED 5u
#define ASTRAY_ADDRESS 6u
#define ASTRAY_EARLY 7u
#define ASTRAY_SIGNAL 8u
#define ASTRAY_BULK 9u

CUDA_KERNEL(astray, AstrayArgs, 128) {
    LAUNCH_SHARED(u32, words);
    GROUP_SHARED(uint4, signal, [1]);
    const u32 mode = args.mode, bytes = args.bytes, at = shared_address(words), turn = shared_address(signal);
    u32 own[4] = {1u, 2u, 3u, 4u}, found = 0;
    if (LANE == 5u) {
        if (mode == ASTRAY_PAST) found = args.memory[bytes];
        if (mode == ASTRAY_NULL) found = *reinterpret_cast<const u32*>(u64(bytes / 16u));
        if (mode == ASTRAY_UNALIGNED) found = *reinterpret_cast<const u32*>(args.memory + 2u);
        if (mode == ASTRAY_INDEX) found = own[bytes];
        if (mode == ASTRAY_SHARED) found = words[64u];
        if (mode == ASTRAY_ADDRESS) found = load_word(at + 256u);
        if (mode == ASTRAY_EARLY) {
            copy16(at, args.memory);
            copies_commit();
            args.out[6] = words[0];
            copies_wait<0>();
            found = words[0];
        }
        if (mode == ASTRAY_SIGNAL || mode == ASTRAY_BULK) {
            signal_new(turn, 1u);
            signal_expect(turn, 16u);
            if (mode == ASTRAY_BULK) copy_bulk(at, args.memory, 16u, turn, read_once());
            args.out[6] = words[0];
            signal_wait(turn, 0u);
            found = words[0];
        }
    }
    __syncthreads();
    if (LANE == 5u) args.out[LANE] = found;
}

// A chain of two instructions of codes, [all outputs alike, 32] times [32, all rows alike]: the sum.
struct CutArgs {
    const u8* codes;
    float* out;
};
CUDA_KERNEL(cut_codes, CutArgs, 128) {
    LAUNCH_SHARED(u32, words);
    const u32 at = shared_address(words), rows = (at + 1023u) / 1024u * 1024u, lane = LANE, c = lane % 4u;
    GLOBAL const u32* codes = reinterpret_cast<const u32*>(args.codes);
    // A row has both instructions' codes, in pieces at piece ^ row.
    if (lane < 8u)
        for (u32 i = 0; i < 16u; i++) store_word(rows + lane * 128u + ((i / 4u) ^ lane) * 16u + i % 4u * 4u, codes[16u + i]);
    __syncthreads();
    const u64 b = u64(rows >> 4) | (u64(1u) << 16) | (u64(64u) << 32) | (u64(1u) << 62);
    float d[4];
    u32 a[2][4];
    for (u32 i = 0; i < 2u; i++) {
        for (u32 j = 0; j < 4u; j++) a[i][j] = codes[i * 8u + j / 2u * 4u + c];
        multiply_codes<8u>(d, a[i], b + i * 2u, i > 0);
    }
    group_commit();
    group_wait();
    for (u32 i = 0; i < 4u; i++) args.out[lane * 4u + i] = d[i];
}
