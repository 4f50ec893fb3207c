// The launcher: one group after another, its lanes in an order shuffled by the seed.
#include "fibers.h"

#include <stdlib.h>

// Saves the caller's registers and stack in `*from` and goes on where `to` was saved.
extern "C" void finback_fiber_switch(void** from, void* to) __asm__("finback_fiber_switch");

#if defined(__x86_64__)
__asm__(
    ".text\n.globl finback_fiber_switch\nfinback_fiber_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
// Words below the return address: six registers.
static const unsigned RETURN = 6, TOP = 8;
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl finback_fiber_switch\nfinback_fiber_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
    "stp d14, d15, [sp, #144]\n"
    "mov x2, sp\nstr x2, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
    "ldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n");
// The frame's twenty words; x30, the return address, is the twelfth.
static const unsigned RETURN = 11, TOP = 20;
#else
#error "fibers are written for x86-64 and AArch64"
#endif

namespace finback {
namespace {

const unsigned LANES_MAX = 1024, WARP = 32;
const unsigned long STACK = 64 * 1024;

enum State { READY, AT_GROUP, AT_WARP, DONE };

struct Fiber {
    void* at;
    State state;
    int line;
};

struct Machine {
    void (*kernel)(const void*);
    const void* args;
    unsigned lanes, x, y, fault, current, epoch, group_epoch;
    unsigned long long words[2][LANES_MAX];
    unsigned turn[LANES_MAX];
    Fiber fibers[LANES_MAX];
    void* scheduler;
    char* stacks;
    unsigned long long random;
    Report report;
};

thread_local Machine machine;

void pause(State state, int line) {
    Fiber& own = machine.fibers[machine.current];
    own.state = state;
    own.line = line;
    finback_fiber_switch(&own.at, machine.scheduler);
}

void enter() {
    machine.kernel(machine.args);
    pause(DONE, 0);
    abort();  // A lane that is done is not run again.
}

void prepare(unsigned lane) {
    char* top = machine.stacks + (lane + 1) * STACK;
    // The stack is aligned to 16 where a call would leave it.
    void** frame = reinterpret_cast<void**>(top - 32) - TOP;
    memset(frame, 0, (TOP + 1) * sizeof(void*));
    frame[RETURN] = reinterpret_cast<void*>(&enter);
    machine.fibers[lane].at = frame;
    machine.fibers[lane].state = READY;
    machine.turn[lane] = 0;
}

unsigned draw(unsigned below) {
    machine.random = machine.random * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<unsigned>((machine.random >> 33) % below);
}

void shuffle(unsigned* order, unsigned count) {
    for (unsigned i = count; i > 1; i--) {
        const unsigned j = draw(i), kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

bool all(unsigned first, unsigned count, State state) {
    for (unsigned i = 0; i < count; i++)
        if (machine.fibers[first + i].state != state) return false;
    return true;
}

void wake(unsigned first, unsigned count) {
    for (unsigned i = 0; i < count; i++) machine.fibers[first + i].state = READY;
}

// Wakes whoever met. False where nobody can go on: lanes wait at different places.
bool meet() {
    bool progress = false;
    for (unsigned warp = 0; warp < machine.lanes; warp += WARP) {
        if (all(warp, WARP, AT_WARP)) {
            wake(warp, WARP);
            progress = true;
        }
    }
    if (!progress && all(0, machine.lanes, AT_GROUP)) {
        for (unsigned i = 1; i < machine.lanes; i++)
            if (machine.fibers[i].line != machine.fibers[0].line) note(&Report::diverged);
        machine.epoch++;
        wake(0, machine.lanes);
        progress = true;
    }
    return progress;
}

void run_group(unsigned* order) {
    machine.group_epoch = ++machine.epoch;
    for (unsigned lane = 0; lane < machine.lanes; lane++) prepare(lane);
    while (!all(0, machine.lanes, DONE)) {
        shuffle(order, machine.lanes);
        for (unsigned i = 0; i < machine.lanes; i++) {
            machine.current = order[i];
            Fiber& fiber = machine.fibers[order[i]];
            if (fiber.state == READY) finback_fiber_switch(&machine.scheduler, fiber.at);
        }
        if (!meet() && !all(0, machine.lanes, DONE)) {
            note(&Report::diverged);
            return;
        }
    }
}

}  // namespace

unsigned lane() { return machine.current; }
unsigned group_x() { return machine.x; }
unsigned group_y() { return machine.y; }
unsigned planted() { return machine.fault; }
unsigned epoch() { return machine.epoch; }
unsigned group_epoch() { return machine.group_epoch; }
Report& report() { return machine.report; }

void note(unsigned Report::* count) {
    Report& to = machine.report;
    if (to.races + to.unwritten + to.outside + to.diverged == 0) {
        to.lane = machine.current;
        to.line = static_cast<unsigned>(machine.fibers[machine.current].line);
    }
    to.*count += 1;
}

void barrier(int line) { pause(AT_GROUP, line); }

unsigned long long shuffle_word(unsigned long long word, unsigned mask) {
    const unsigned me = machine.current;
    // Two sets of words by turns: a lane may be one shuffle ahead of its partner.
    unsigned long long* words = machine.words[machine.turn[me]++ % 2];
    words[me] = word;
    pause(AT_WARP, machine.fibers[me].line);
    return words[me ^ mask];
}

}  // namespace finback

// Runs a grid. 0 on success, 1 for lanes that are not whole warps, 2 without memory for stacks.
extern "C" int finback_emu_launch(void (*kernel)(const void*), const void* args, unsigned groups_x,
    unsigned groups_y, unsigned lanes, unsigned long long seed, unsigned fault,
    finback::Report* report) {
    using namespace finback;
    if (lanes == 0 || lanes % WARP != 0 || lanes > LANES_MAX) return 1;
    char* stacks = static_cast<char*>(aligned_alloc(4096, lanes * STACK));
    if (!stacks) return 2;
    machine.kernel = kernel;
    machine.args = args;
    machine.lanes = lanes;
    machine.stacks = stacks;
    machine.fault = fault;
    machine.random = seed;
    memset(&machine.report, 0, sizeof machine.report);
    unsigned order[LANES_MAX];
    for (unsigned i = 0; i < lanes; i++) order[i] = i;
    for (machine.y = 0; machine.y < groups_y; machine.y++)
        for (machine.x = 0; machine.x < groups_x; machine.x++) run_group(order);
    *report = machine.report;
    free(stacks);
    return 0;
}
