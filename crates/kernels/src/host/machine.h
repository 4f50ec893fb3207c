// What runs a launch: the lanes of a group as fibers of one thread.
#pragma once
#include "fibers.h"
#include "shared.h"

#include <vector>

namespace finback {

const unsigned LANES_MAX = 1024, WARP_LANES = 32;
const unsigned WARPS_MAX = LANES_MAX / WARP_LANES;
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
    unsigned bytes;
    unsigned long long* signal;
};

struct Copy {
    char* to;
    const char* from;
    unsigned bytes, commit;
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
    unsigned lanes, x, y, groups_x, fault, turns, epoch, group_epoch;
    // The lane that runs.
    unsigned lane;
    // Whether a fiber runs; whether products read their rows at the commit.
    bool inside, early;
    void* scheduler;
    char* stacks;
    char* shared;
    // Lanes that are done.
    unsigned done;
    std::vector<Stretch> stretches;
    std::vector<Delivery> deliveries;
    unsigned long long random;
    Report report;
    Fault broken;
    unsigned order[WARP_LANES], place;
    // Groups in the order in which they run.
    std::vector<unsigned> groups;
    // Warps, the first that can go on first; where that stays so for a while; where bytes come late.
    unsigned ahead[WARPS_MAX];
    bool steady, late;
    Fiber fibers[LANES_MAX];
    Copies copies[LANES_MAX];
    Products products[LANES_MAX];
    // Of every company, and what its lanes brought.
    Meeting meetings[COMPANIES][WARPS_MAX];
    void* brought[COMPANIES][LANES_MAX];
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
