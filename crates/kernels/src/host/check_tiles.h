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
