// Shared memory by address, and what comes to it beside the lanes' own stores.
#pragma once

namespace finback {

// An access that no memory is there for.
struct Fault {
    unsigned long long address;
    unsigned kind, lane, x, y;
};
const unsigned FAULT_NONE = 0, FAULT_MEMORY = 1, FAULT_SHARED = 2, FAULT_RULE = 3, FAULT_STACK = 4;

// The memory that a launch asked for, and that of a lane's next declaration.
void* launch_shared();
void* group_shared(unsigned bytes);
unsigned shared_address(const void* at);
// Where the bytes of an address are. What lies outside or off its alignment is noted.
char* shared_at(unsigned address, unsigned bytes, unsigned alignment);
// Whether this is in the room of a group's shared memory, used or not.
bool in_shared(const void* at);

// Copies that a lane asks for, in commits.
// 4 or 16 bytes.
void copy(unsigned to, const void* from, unsigned bytes);
void commit_copies();
void wait_for_copies(unsigned but);
// Arrives at a signal once all of them are there.
void arrive_after_copies(unsigned signal);

// A signal is a word of shared memory.
void make_signal(unsigned signal, unsigned arrivals);
void arrive(unsigned signal, unsigned bytes_to_come);
void wait_for_signal(unsigned signal, unsigned parity);
void copy_in_bulk(unsigned to, const void* from, unsigned bytes, unsigned signal);

// One lane's part of d += a b in a warp, [16, 16] times [16, 8], and what a warp does with all of them.
// Products of bf16 are exact and added in f64, k ascending, and rounded to f32 once with what was there: not the
// device's bits, but the same for the same chain. Those of codes have its bits.
struct Product {
    float* d;
    const unsigned* a;
    unsigned b[2];
};
void multiply_warp(void* const* brought, unsigned lanes);

// The same of a warpgroup, [64, depth] times [depth, rows], the right operand by its descriptor, and the left one too
// where it is not the lanes' words: 16 inputs in bf16, those where the right operand lies by its inputs, 64 columns a
// row, or 32 in e4m3 codes.
enum Kind { BF16, COLUMNS, CODES };
struct RowsProduct {
    float* d;
    const unsigned* a;
    unsigned long long left, b;
    unsigned rows;
    bool add;
    Kind kind;
    unsigned commit;
};
void ask_for_product(const RowsProduct& product);
void commit_products();
void wait_for_products(unsigned but);

}  // namespace finback
