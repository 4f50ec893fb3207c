// What runs a launch: the lanes of a group, or of two that are beside each other, as fibers of one thread.
#pragma once
#include "fibers.h"
#include "shared.h"

#include <vector>

namespace finback {

const unsigned LANES_MAX = 1024, WARP_LANES = 32, BESIDE_MAX = 2;
const unsigned WARPS_MAX = LANES_MAX / WARP_LANES * BESIDE_MAX;
// A stride that spreads the lanes' newest words over the sets of a cache.
const unsigned long STACK = 64 * 1024 + 5 * 64;

enum State { READY, MEETS, WAITS, DONE };

struct Fiber {
    void* at;
    State state;
    int line;
    // What it waits for: a signal's phase of this parity to end.
    const unsigned long long* signal;
    unsigned parity;
    // Declarations of shared memory so far.
    unsigned declared;
};

struct Meeting {
    unsigned here;
    Together together;
};

// Bytes on their way: to shared memory, whose signal counts them as they arrive.
struct Delivery {
    char* to;
    const char* from;
    char own[16];
    unsigned bytes, rank;
    unsigned long long* signal;
};

struct Copy {
    char* to;
    const char* from;
    unsigned commit;
};
struct Copies {
    std::vector<Copy> waiting;
    unsigned commits;
};

// Products of a lane of a warpgroup that are still to be done.
struct Products {
    std::vector<RowsProduct> waiting;
    unsigned commits, due;
};

// A stretch of a group's shared memory, which ends where a page does that no access passes.
struct Stretch {
    unsigned first, bytes;
};

struct Machine {
    ~Machine();

    void (*kernel)(const void*);
    const void* args;
    unsigned lanes, beside, x, y, groups_x, fault, turns, epoch, group_epoch;
    // The fiber that runs: its lane, of which of the groups.
    unsigned current, lane, rank;
    // Whether a fiber runs; whether products read their rows at the commit.
    bool inside, early;
    void* scheduler;
    char* stacks;
    char* shared[BESIDE_MAX];
    // Lanes of each group that are done.
    unsigned done[BESIDE_MAX];
    std::vector<Stretch> stretches;
    std::vector<Delivery> deliveries;
    unsigned long long random;
    Report report;
    Fault broken;
    unsigned order[WARP_LANES], place;
    // Groups, or those that run beside each other, in the order in which they run.
    std::vector<unsigned> groups;
    // Warps, the first that can go on first; where that stays so for a while; where bytes come late.
    unsigned ahead[WARPS_MAX];
    bool steady, late;
    Fiber fibers[LANES_MAX * BESIDE_MAX];
    Copies copies[LANES_MAX * BESIDE_MAX];
    Products products[LANES_MAX * BESIDE_MAX];
    // Of every company, and what its lanes brought.
    Meeting meetings[4][WARPS_MAX];
    void* brought[4][LANES_MAX * BESIDE_MAX];
};

// This thread's, once it has launched anything.
extern thread_local Machine* own_machine;
inline Machine& machine() { return *own_machine; }
unsigned draw(unsigned below);
// Gives the other lanes a turn until this one is ready again.
void pause(State state);
// Memory of a launch of this many bytes of shared memory. False without it.
bool prepare_shared(unsigned bytes);
void free_shared(char* room);
// Shared memory as a group finds it: words that are no number.
void spoil_shared();
// Lets one of the bytes on their way arrive. False where there are none.
bool deliver();
bool turned(const unsigned long long* signal, unsigned parity);

}  // namespace finback
