// Shared memory of groups, and what comes to it beside the lanes' own stores.
//
// Every stretch of shared memory ends where a page begins that nothing may touch, so that a pointer past
// the end is found as an address is. A copy's bytes arrive at the wait for it and not before, those in
// bulk at any moment from the call on: what reads too early reads what was there.
#include "machine.h"

#include <sys/mman.h>

namespace finback {
namespace {

// Pages of any machine this runs on, and the room of a group: what a launch asks for lies below 256 KiB,
// as descriptors of products want it.
const unsigned PAGE = 16 * 1024, ROOM = 512 * 1024;

unsigned whole_pages(unsigned bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

unsigned rank_of(unsigned address) { return address >> RANK_AT ? (address >> RANK_AT) - 1 : machine().rank; }

// Makes the next stretch in every group, behind a page that nothing may touch. False without room.
bool stretch(unsigned bytes) {
    Machine& m = machine();
    unsigned start = PAGE;
    for (const Stretch& other : m.stretches) start = other.first + other.bytes + PAGE;
    const unsigned room = whole_pages(bytes), end = start + room;
    if (end + PAGE > ROOM) return false;
    for (unsigned rank = 0; rank < m.beside; rank++)
        if (mprotect(m.shared[rank] + start, room, PROT_READ | PROT_WRITE) != 0) return false;
    m.stretches.push_back(Stretch{end - bytes, bytes});
    for (unsigned rank = 0; rank < m.beside; rank++) memset(m.shared[rank] + end - bytes, 0xff, bytes);
    return true;
}

// A signal's word: a mark that it is one, bytes to come, arrivals to come and in all, the phase.
struct Signal {
    unsigned mark, all, left, phase;
    int bytes;
};
const unsigned MARK = 0xa2ce;

Signal read_signal(const unsigned long long* at) {
    const unsigned long long word = *at;
    Signal s;
    s.mark = word >> 47, s.bytes = static_cast<int>(word >> 23 & 0xffffffu) - 0x800000;
    s.left = word >> 12 & 0x7ffu, s.all = word >> 1 & 0x7ffu, s.phase = word & 1u;
    if (s.mark != MARK) note(&Report::unwritten);
    return s;
}

// A phase ends where nothing is to come; the next begins.
void write_signal(unsigned long long* at, Signal s) {
    if (s.left == 0 && s.bytes == 0) s.left = s.all, s.phase ^= 1u;
    *at = static_cast<unsigned long long>(MARK) << 47 |
        static_cast<unsigned long long>((s.bytes + 0x800000) & 0xffffff) << 23 | s.left << 12 | s.all << 1 | s.phase;
}

unsigned long long* signal_at(unsigned address) {
    return reinterpret_cast<unsigned long long*>(shared_at(address, 8, 8));
}

void take(char* to, const char* from, unsigned bytes) {
    if (bytes > 0) memcpy(to, from, bytes);
}

typedef double Eight __attribute__((vector_size(64)));

// Most of the time goes here: compiled for wider machines too, with the same bits, where one binary can.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define ANY_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ANY_WIDTH
#endif

double value(unsigned half) { return cast<float>(half << 16); }

// Sums of exact products: [16, 16] times [16, 8].
ANY_WIDTH void sums(const double (&a)[16][16], const Eight (&b)[16], Eight (&out)[16]) {
    for (unsigned m = 0; m < 16; m++) {
        Eight sum = {};
        for (unsigned k = 0; k < 16; k++) sum += a[m][k] * b[k];
        out[m] = sum;
    }
}

// Where half i of a lane's four words lies in a left operand.
unsigned left_row(unsigned lane, unsigned word) { return lane / 4 + word % 2 * 8; }
unsigned left_column(unsigned lane, unsigned word) { return lane % 4 * 2 + word / 2 * 8; }

void left_of(unsigned lane, const unsigned* words, double (&a)[16][16]) {
    for (unsigned i = 0; i < 4; i++) {
        double* to = &a[left_row(lane, i)][left_column(lane, i)];
        to[0] = value(words[i] & 0xffffu), to[1] = value(words[i] >> 16);
    }
}

void add_to(unsigned lane, const Eight (&sum)[16], bool add, float* d) {
    for (unsigned i = 0; i < 4; i++) {
        const double more = sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
        d[i] = static_cast<float>((add ? d[i] : 0.0) + more);
    }
}

// Column n of input k of a right operand, or row n of a left one: rows, of either, are 128 bytes in 16-byte
// pieces at piece ^ (row % 8).
double value_at(unsigned long long descriptor, unsigned n, unsigned k, bool columns) {
    const unsigned start = static_cast<unsigned>(descriptor & 0x3fff) << 4;
    const unsigned stride = static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4;
    const unsigned apart = static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4;
    const unsigned at = columns ? start + n / 64 * apart + k / 8 * stride + k % 8 * 128 + n % 64 * 2
                                : start + n / 8 * stride + n % 8 * 128 + k * 2;
    unsigned short half;
    memcpy(&half, shared_at(at ^ (at >> 3 & 0x70u), 2, 2), 2);
    return value(half);
}

// The products of 128 lanes whose commits are due, in order.
void multiply_due(void* const* brought, unsigned lanes) {
    const auto all = [&](unsigned lane) -> Products& { return *static_cast<Products*>(brought[lane]); };
    const auto of = [&](unsigned lane) -> std::vector<RowsProduct>& { return all(lane).waiting; };
    unsigned count = 0;
    while (count < of(0).size() && of(0)[count].commit < all(0).due) count++;
    for (unsigned i = 0; i < count; i++) {
        const RowsProduct& first = of(0)[i];
        double a[4][16][16];
        for (unsigned lane = 0; lane < lanes; lane++) {
            const RowsProduct* own = i < of(lane).size() ? &of(lane)[i] : nullptr;
            if (!own || own->b != first.b || own->left != first.left || own->rows != first.rows || own->add != first.add ||
                own->columns != first.columns || own->commit != first.commit)
                return note(&Report::diverged);
            if (own->a) left_of(lane % 32, own->a, a[lane / 32]);
        }
        // Only rows of 128 bytes in this order are known here.
        if (first.b >> 62 != 1 || (!first.a && first.left >> 62 != 1)) note(&Report::outside);
        for (unsigned m = 0; m < 64 && !first.a; m++)
            for (unsigned k = 0; k < 16; k++) a[m / 16][m % 16][k] = value_at(first.left, m, k, false);
        for (unsigned eight = 0; eight < first.rows / 8; eight++) {
            Eight b[16], sum[16];
            for (unsigned k = 0; k < 16; k++)
                for (unsigned n = 0; n < 8; n++) b[k][n] = value_at(first.b, eight * 8 + n, k, first.columns);
            for (unsigned warp = 0; warp < 4; warp++) {
                sums(a[warp], b, sum);
                for (unsigned lane = 0; lane < 32; lane++)
                    add_to(lane, sum, first.add, of(warp * 32 + lane)[i].d + eight * 4);
            }
        }
    }
    for (unsigned lane = 0; lane < lanes; lane++) of(lane).erase(of(lane).begin(), of(lane).begin() + count);
}

}  // namespace

bool prepare_shared(unsigned bytes) {
    Machine& m = machine();
    for (unsigned rank = 0; rank < m.beside; rank++) {
        if (m.shared[rank]) {
            if (!m.stretches.empty()) mprotect(m.shared[rank], ROOM, PROT_NONE);
            continue;
        }
        void* room = mmap(nullptr, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0);
        if (room == MAP_FAILED) return false;
        m.shared[rank] = static_cast<char*>(room);
    }
    m.stretches.clear();
    return stretch(bytes);
}

void free_shared(char* room) {
    if (room) munmap(room, ROOM);
}

void spoil_shared() {
    Machine& m = machine();
    for (unsigned rank = 0; rank < m.beside; rank++)
        for (const Stretch& stretch : m.stretches)
            memset(m.shared[rank] + stretch.first, 0xff, stretch.bytes);
}

void* launch_shared() { return machine().shared[machine().rank] + machine().stretches[0].first; }

void* group_shared(unsigned bytes) {
    Machine& m = machine();
    const unsigned place = ++m.fibers[m.current].declared;
    if (place >= m.stretches.size() && !stretch((bytes + 15) / 16 * 16)) abort();
    return m.shared[machine().rank] + m.stretches[place].first;
}

unsigned shared_address(const void* at) {
    return static_cast<unsigned>(static_cast<const char*>(at) - machine().shared[machine().rank]);
}

char* shared_at(unsigned address, unsigned bytes, unsigned alignment) {
    static thread_local char nowhere[256 * 1024];
    Machine& m = machine();
    const unsigned rank = rank_of(address);
    if (rank < m.beside && m.done[rank] == m.lanes) note(&Report::outside);
    const unsigned at = address & ((1u << RANK_AT) - 1);
    for (const Stretch& s : m.stretches)
        if (s.first <= at && at + bytes <= s.first + s.bytes && rank < m.beside && at % alignment == 0)
            return m.shared[rank] + at;
    note(&Report::outside);
    return nowhere;
}

bool in_shared(const void* at) {
    const Machine& m = machine();
    for (unsigned rank = 0; rank < m.beside; rank++)
        if (at >= m.shared[rank] && at < m.shared[rank] + ROOM) return true;
    return false;
}

void copy(unsigned to, const void* from) {
    Machine& m = machine();
    Copies& own = m.copies[m.current];
    if (reinterpret_cast<unsigned long long>(from) % 16 != 0) note(&Report::outside);
    own.waiting.push_back(Copy{shared_at(to, 16, 16), static_cast<const char*>(from), own.commits});
}

void commit_copies() { machine().copies[machine().current].commits++; }

void wait_for_copies(unsigned but) {
    Copies& own = machine().copies[machine().current];
    unsigned kept = 0;
    for (const Copy& copy : own.waiting) {
        if (copy.commit + but >= own.commits) {
            own.waiting[kept++] = copy;
            continue;
        }
        take(copy.to, copy.from, 16);
    }
    own.waiting.resize(kept);
}

void make_signal(unsigned signal, unsigned arrivals) {
    *signal_at(signal) = 0;
    write_signal(signal_at(signal), Signal{MARK, arrivals, arrivals, 0, 0});
}

void arrive(unsigned signal, unsigned bytes_to_come) {
    unsigned long long* at = signal_at(signal);
    Signal s = read_signal(at);
    if (s.left == 0) note(&Report::diverged);
    s.left -= 1;
    s.bytes += static_cast<int>(bytes_to_come);
    write_signal(at, s);
}

bool turned(const unsigned long long* signal, unsigned parity) { return read_signal(signal).phase != parity; }

void wait_for_signal(unsigned signal, unsigned parity) {
    Machine& m = machine();
    Fiber& own = m.fibers[m.current];
    own.signal = signal_at(signal);
    own.parity = parity;
    while (!turned(own.signal, parity)) pause(WAITS);
}

void copy_in_bulk(unsigned to, const void* from, unsigned bytes, unsigned signal) {
    const char* source = static_cast<const char*>(from);
    if (reinterpret_cast<unsigned long long>(from) % 16 != 0 || bytes % 16 != 0) note(&Report::outside);
    // What is not there faults here, in the lane that asks.
    for (unsigned i = 0; i < bytes; i += 256) (void)*static_cast<const volatile char*>(source + i);
    if (bytes > 0) (void)*static_cast<const volatile char*>(source + bytes - 1);
    machine().deliveries.push_back(
        Delivery{shared_at(to, bytes, 16), source, {}, bytes, rank_of(signal), signal_at(signal)});
}

void send(unsigned to, const void* words, unsigned signal) {
    Delivery delivery = {shared_at(to, 16, 16), nullptr, {}, 16, rank_of(signal), signal_at(signal)};
    memcpy(delivery.own, words, 16);
    machine().deliveries.push_back(delivery);
}

void arrive_after_copies(unsigned signal) {
    Copies& own = machine().copies[machine().current];
    // The signal waits for the bytes, which come at any moment.
    arrive(signal, 16 * static_cast<unsigned>(own.waiting.size()));
    for (const Copy& copy : own.waiting)
        machine().deliveries.push_back(Delivery{copy.to, copy.from, {}, 16, rank_of(signal), signal_at(signal)});
    own.waiting.clear();
}

bool deliver() {
    std::vector<Delivery>& all = machine().deliveries;
    if (all.empty()) return false;
    Delivery& one = all[draw(static_cast<unsigned>(all.size()))];
    // A group that has ended has no memory.
    if (machine().done[one.rank] == machine().lanes) note(&Report::outside);
    take(one.to, one.from ? one.from : one.own, one.bytes);
    Signal s = read_signal(one.signal);
    s.bytes -= static_cast<int>(one.bytes);
    write_signal(one.signal, s);
    one = all.back();
    all.pop_back();
    return true;
}

void ask_for_product(const RowsProduct& product) {
    Products& own = machine().products[machine().current];
    own.waiting.push_back(product);
    own.waiting.back().commit = own.commits;
}
// Products read their operands somewhere between commit and wait; which of the two, the launch's seed says.
void commit_products() {
    Products& own = machine().products[machine().current];
    own.due = ++own.commits;
    if (machine().early) meet(FOUR_WARPS, multiply_due, &own);
}
void wait_for_products(unsigned but) {
    Products& own = machine().products[machine().current];
    own.due = own.commits < but ? 0 : own.commits - but;
    if (!machine().early) meet(FOUR_WARPS, multiply_due, &own);
}

void multiply_warp(void* const* brought, unsigned lanes) {
    double a[16][16];
    Eight b[16], sum[16];
    for (unsigned lane = 0; lane < lanes; lane++) {
        const Product& own = *static_cast<const Product*>(brought[lane]);
        left_of(lane, own.a, a);
        for (unsigned i = 0; i < 4; i++)
            b[lane % 4 * 2 + i / 2 * 8 + i % 2][lane / 4] = value(own.b[i / 2] >> i % 2 * 16 & 0xffffu);
    }
    sums(a, b, sum);
    for (unsigned lane = 0; lane < lanes; lane++) add_to(lane, sum, true, static_cast<const Product*>(brought[lane])->d);
}

}  // namespace finback
