// The launcher: one group after another, the groups, their warps and their lanes in an order shuffled by the seed.
#include "machine.h"

#include <signal.h>
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

const unsigned long long CANARY = 0x7ff4dead7ff4deadull;
// Meetings of a warp until another one has a turn.
const unsigned TURNS[4] = {1, 8, 64, 1u << 30};

Fiber& own() { return machine().fibers[machine().lane]; }

void switch_away() {
    Machine& m = machine();
    Fiber& from = own();
    const unsigned warp = m.lane / WARP_LANES * WARP_LANES;
    for (unsigned i = 0; i < WARP_LANES; i++) {
        m.place = (m.place + 1) % WARP_LANES;
        const unsigned next = warp + m.order[m.place];
        if (m.fibers[next].state == READY && next != m.lane) {
            m.lane = next;
            return finback_fiber_switch(&from.at, m.fibers[next].at);
        }
    }
    finback_fiber_switch(&from.at, m.scheduler);
}

void enter() {
    machine().kernel(machine().args);
    machine().done++;
    pause(DONE);
    abort();  // A lane that is done is not run again.
}

void prepare(unsigned fiber) {
    Machine& m = machine();
    // The stack is aligned to 16 where a call would leave it.
    void** frame = reinterpret_cast<void**>(m.stacks + (fiber + 1) * STACK - 32) - TOP;
    memset(frame, 0, (TOP + 1) * sizeof(void*));
    frame[RETURN] = reinterpret_cast<void*>(&enter);
    m.fibers[fiber] = Fiber{frame, READY, 0, nullptr, 0, 0};
    m.copies[fiber].waiting.clear();
    m.copies[fiber].commits = 0;
    m.products[fiber].waiting.clear();
    m.products[fiber].commits = 0;
}

void shuffle_order(unsigned* order, unsigned count) {
    for (unsigned i = 0; i < count; i++) order[i] = i;
    for (unsigned i = count; i > 1; i--) {
        const unsigned j = draw(i), kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

// Draws who is ahead of whom.
void order_warps() { shuffle_order(machine().ahead, machine().lanes / WARP_LANES); }

// A lane that can go on; lanes that wait for a signal see whether it turned. Warps have turns at random,
// or the first in order goes on for as long as it can, which shows what another one should have waited for.
bool choose() {
    Machine& m = machine();
    const unsigned warps = m.lanes / WARP_LANES, start = m.steady ? 0 : draw(warps);
    if (m.steady && draw(64) == 0) order_warps();
    shuffle_order(m.order, WARP_LANES);
    for (unsigned i = 0; i < warps; i++) {
        const unsigned warp = m.ahead[(start + i) % warps] * WARP_LANES;
        for (m.place = 0; m.place < WARP_LANES; m.place++) {
            const unsigned lane = warp + m.order[m.place];
            Fiber& fiber = m.fibers[lane];
            if (fiber.state == WAITS && turned(fiber.signal, fiber.parity)) fiber.state = READY;
            if (fiber.state != READY) continue;
            m.lane = lane;
            return true;
        }
    }
    return false;
}

void run_groups() {
    Machine& m = machine();
    m.group_epoch = ++m.epoch;
    spoil_shared();
    m.deliveries.clear();
    m.done = 0;
    memset(m.meetings, 0, sizeof m.meetings);
    for (unsigned i = 0; i < m.lanes; i++) prepare(i);
    order_warps();
    m.steady = draw(2) == 0;
    m.late = draw(2) == 0;
    for (;;) {
        if (!m.late && draw(2) == 0) deliver();
        if (choose()) {
            m.turns = TURNS[draw(4)];
            m.inside = true;
            finback_fiber_switch(&m.scheduler, m.fibers[m.lane].at);
            m.inside = false;
            if (m.broken.kind != FAULT_NONE) return;
        } else if (!deliver()) {
            // Lanes wait at different places, or all are done.
            if (m.done < m.lanes) note(&Report::diverged);
            return;
        }
    }
}

// Marks where stacks end, or sees whether the marks stand.
void mark_stacks() {
    Machine& m = machine();
    for (unsigned i = 0; i < m.lanes; i++) memcpy(m.stacks + i * STACK, &CANARY, sizeof CANARY);
}
bool stacks_held() {
    Machine& m = machine();
    for (unsigned i = 0; i < m.lanes; i++)
        if (memcmp(m.stacks + i * STACK, &CANARY, sizeof CANARY) != 0) return false;
    return true;
}

struct sigaction before[4];
const int SIGNALS[4] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP};

// An access that faults ends the launch, not the process, where a lane made it.
void faulted(int number, siginfo_t* info, void* context) {
    if (own_machine && machine().inside) {
        Machine& m = machine();
        const bool memory = number == SIGSEGV || number == SIGBUS;
        const unsigned kind = !memory ? FAULT_RULE : in_shared(info->si_addr) ? FAULT_SHARED : FAULT_MEMORY;
        m.broken = Fault{reinterpret_cast<unsigned long long>(info->si_addr), kind, lane(), m.x, group_y()};
        void* left;
        finback_fiber_switch(&left, m.scheduler);
    }
    for (unsigned i = 0; i < 4; i++) {
        if (SIGNALS[i] != number) continue;
        if (before[i].sa_flags & SA_SIGINFO) return before[i].sa_sigaction(number, info, context);
        sigaction(number, &before[i], nullptr);
    }
}

void watch_faults() {
    static const bool watched = [] {
        struct sigaction action = {};
        action.sa_sigaction = faulted;
        // The handler leaves by a switch, so nothing may be blocked meanwhile.
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        for (unsigned i = 0; i < 4; i++) sigaction(SIGNALS[i], &action, &before[i]);
        return true;
    }();
    (void)watched;
}

// Which meeting of the company's, and the lanes that come to it.
struct Table {
    unsigned place, lanes;
};
Table table_of(Company company) {
    const Machine& m = machine();
    if (company == GROUP) return Table{0, m.lanes};
    const unsigned warps = company == WARP ? 1 : company == FOUR_WARPS ? 4 : company == TEN_WARPS ? 10 : 16;
    return Table{m.lane / (warps * WARP_LANES), warps * WARP_LANES};
}

struct Owner {
    ~Owner() { delete own_machine; }
};

}  // namespace

thread_local Machine* own_machine = nullptr;

Machine::~Machine() {
    free(stacks);
    free_shared(shared);
}

unsigned lane() { return machine().lane; }
unsigned group_x() { return machine().x; }
unsigned group_y() { return machine().y; }
unsigned groups_x() { return machine().groups_x; }
unsigned planted() { return machine().fault & 0x7fffffffu; }
bool stops() { return machine().fault >> 31 != 0; }
unsigned epoch() { return machine().epoch; }
unsigned group_epoch() { return machine().group_epoch; }

unsigned draw(unsigned below) {
    Machine& m = machine();
    m.random = m.random * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<unsigned>((m.random >> 33) % below);
}

void note(unsigned Report::* count) {
    Report& to = machine().report;
    if (to.races + to.unwritten + to.outside + to.diverged == 0) {
        to.lane = lane();
        to.line = static_cast<unsigned>(own().line);
    }
    to.*count += 1;
}

void pause(State state) {
    own().state = state;
    switch_away();
}

void meet(Company company, Together together, void* brought) {
    Machine& m = machine();
    const unsigned me = m.lane;
    const Table table = table_of(company);
    const unsigned count = table.lanes, first = table.place * count;
    Meeting& meeting = m.meetings[company][table.place];
    if (meeting.here == 0) meeting.together = together;
    if (meeting.together != together) note(&Report::diverged);
    m.brought[company][me] = brought;
    if (++meeting.here < count) return pause(MEETS);
    meeting.here = 0;
    if (together) together(m.brought[company] + first, count);
    for (unsigned i = first; i < first + count; i++) m.fibers[i].state = READY;
    if (m.turns == 0) finback_fiber_switch(&m.fibers[me].at, m.scheduler);
    else m.turns--;
}

void barrier(int line) {
    own().line = line;
    meet(GROUP, [](void* const* brought, unsigned lanes) {
        const int first = static_cast<Fiber*>(brought[0])->line;
        for (unsigned i = 1; i < lanes; i++)
            if (static_cast<Fiber*>(brought[i])->line != first) note(&Report::diverged);
        machine().epoch++;
    }, &own());
}

}  // namespace finback

// Runs a grid. 0 on success, 1 for lanes that are not whole warps, 2 without memory, 3 where `broken` says why it ended early.
extern "C" int finback_emu_launch(void (*kernel)(const void*), const void* args, const unsigned* groups,
    unsigned lanes, unsigned shared, unsigned long long seed, unsigned fault,
    finback::Report* report, finback::Fault* broken) {
    using namespace finback;
    static thread_local Owner owner;
    if (!own_machine) own_machine = new Machine();
    (void)owner;
    Machine& m = machine();
    if (lanes == 0 || lanes % WARP_LANES != 0 || lanes > LANES_MAX) return 1;
    if (!m.stacks)
        m.stacks = static_cast<char*>(aligned_alloc(4096, LANES_MAX * STACK));
    m.lanes = lanes;
    if (!m.stacks || !prepare_shared(shared)) return 2;
    watch_faults();
    m.kernel = kernel;
    m.args = args;
    m.groups_x = groups[0];
    m.fault = fault;
    m.random = seed;
    m.early = draw(2) == 0;
    m.report = Report{};
    m.broken = Fault{};
    mark_stacks();
    m.groups.resize(groups[0] * groups[1]);
    shuffle_order(m.groups.data(), static_cast<unsigned>(m.groups.size()));
    for (const unsigned group : m.groups) {
        m.x = group % groups[0];
        m.y = group / groups[0];
        run_groups();
        if (m.broken.kind != FAULT_NONE) break;
    }
    if (!stacks_held()) m.broken = Fault{0, FAULT_STACK, 0, 0, 0};
    *report = m.report;
    *broken = m.broken;
    return m.broken.kind == FAULT_NONE ? 0 : 3;
}
