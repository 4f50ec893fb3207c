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

// Makes the next stretch, behind a page that nothing may touch. False without room.
bool stretch(unsigned bytes) {
    Machine& m = machine();
    unsigned start = PAGE;
    for (const Stretch& other : m.stretches) start = other.first + other.bytes + PAGE;
    const unsigned room = whole_pages(bytes), end = start + room;
    if (end + PAGE > ROOM) return false;
    if (mprotect(m.shared + start, room, PROT_READ | PROT_WRITE) != 0) return false;
    m.stretches.push_back(Stretch{end - bytes, bytes});
    memset(m.shared + end - bytes, 0xff, bytes);
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
typedef long long EightBits __attribute__((vector_size(64)));
typedef int EightWords __attribute__((vector_size(32)));

// Most of the time goes here: compiled for wider machines too, with the same bits, where one binary can.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define ANY_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ANY_WIDTH
#endif

double value(unsigned half) { return cast<float>(half << 16); }

// What e4m3 codes are: their values, 0 for NaN; a power of two for each that is not 0, that of its exponent, which is -6
// and more; NaN for NaN, else 0.
struct CodeTable {
    double value[256], power[256], broken[256];
    CodeTable() {
        for (unsigned code = 0; code < 256; code++) {
            const unsigned size = code & 0x7fu, exponent = size < 8 ? 1 : size >> 3;
            const bool nan = size == 0x7fu;
            power[code] = nan || size == 0 ? 0.0 : double(cast<float>((exponent + 120u) << 23));
            value[code] = (code & 0x80u ? -0.125 : 0.125) * (size < 8 ? size : 8 + size % 8) * power[code];
            broken[code] = nan ? double(cast<float>(0x7fc00000u)) : 0.0;
        }
    }
};
const CodeTable CODE;

const unsigned DEPTH_MAX = 32;

// A left operand of 16 rows, or a right one of eight columns: values, and of codes their powers and what is NaN.
struct Left {
    double value[16][DEPTH_MAX], power[16][DEPTH_MAX], broken[16];
};
struct Right {
    Eight value[DEPTH_MAX], power[DEPTH_MAX], broken;
};

// d += a b of bf16: exact products, k ascending, added in f64 and rounded once.
ANY_WIDTH void add_halves(const Left& a, const Right& b, Eight (&d)[16]) {
    for (unsigned m = 0; m < 16; m++) {
        Eight sum = {};
        for (unsigned k = 0; k < 16; k++) sum += a.value[m][k] * b.value[k];
        for (unsigned n = 0; n < 8; n++) d[m][n] = static_cast<float>(d[m][n] + sum[n]);
    }
}

// d += a b of codes with the device's bits: every product and the sum so far is cut to 13 bits below the largest of their
// exponents, a product's being its codes', and the result to 13 bits below its own.
ANY_WIDTH void add_codes(const Left& a, const Right& b, Eight (&d)[16]) {
    for (unsigned m = 0; m < 16; m++) {
        const Eight broken = a.broken[m] + b.broken + (d[m] - d[m]), so_far = broken == broken ? d[m] : Eight{};
        Eight top = (Eight)((EightBits)so_far & 0x7ff0000000000000ll);
        for (unsigned k = 0; k < 32; k++) {
            const Eight power = a.power[m][k] * b.power[k];
            top = power > top ? power : top;
        }
        const Eight unit = top * 0x1p-13, by = top > 0.0 ? 0x1p13 / top : top;
        EightWords sum = __builtin_convertvector(so_far * by, EightWords);
        for (unsigned k = 0; k < 32; k++) sum += __builtin_convertvector(a.value[m][k] * b.value[k] * by, EightWords);
        const Eight cut = __builtin_convertvector(sum, Eight) * unit;
        d[m] = (Eight)((EightBits)cut & ~((1ll << 39) - 1)) + broken;
    }
}

// A lane's four words of a left operand: word i has outputs lane / 4, or those 8 further, in the first half of the
// inputs, or the second.
void put_code(Left& to, unsigned m, unsigned k, unsigned code) {
    to.value[m][k] = CODE.value[code], to.power[m][k] = CODE.power[code], to.broken[m] += CODE.broken[code];
}
void left_of(unsigned lane, const unsigned* words, bool codes, Left& to) {
    for (unsigned i = 0; i < 4; i++) {
        const unsigned m = lane / 4 + i % 2 * 8;
        for (unsigned j = 0; codes && j < 4; j++) put_code(to, m, lane % 4 * 4 + i / 2 * 16 + j, words[i] >> 8 * j & 0xffu);
        for (unsigned j = 0; !codes && j < 2; j++) to.value[m][lane % 4 * 2 + i / 2 * 8 + j] = value(words[i] >> 16 * j & 0xffffu);
    }
}

// Where a lane's four sums of eight columns lie.
unsigned sum_row(unsigned lane, unsigned i) { return lane / 4 + i / 2 * 8; }
unsigned sum_column(unsigned lane, unsigned i) { return lane % 4 * 2 + i % 2; }

// An instruction's 32 bytes of column n of a right operand, or of row n of a left one: rows, of either, are 128 bytes in
// 16-byte pieces at piece ^ (row % 8).
struct Bytes {
    unsigned char code[32];
    double half(unsigned k) const { return value(code[2 * k] | unsigned(code[2 * k + 1]) << 8); }
};
unsigned start_of(unsigned long long descriptor) { return static_cast<unsigned>(descriptor & 0x3fff) << 4; }
unsigned stride_of(unsigned long long descriptor) { return static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4; }
unsigned swizzled(unsigned at) { return at ^ (at >> 3 & 0x70u); }
Bytes bytes_of(unsigned long long descriptor, unsigned n) {
    const unsigned at = start_of(descriptor) + n / 8 * stride_of(descriptor) + n % 8 * 128;
    Bytes to;
    for (unsigned i = 0; i < 32; i += 16) memcpy(to.code + i, shared_at(swizzled(at + i), 16, 16), 16);
    return to;
}
void left_at(unsigned long long descriptor, bool codes, unsigned block, Left& to) {
    for (unsigned m = 0; m < 16; m++) {
        const Bytes from = bytes_of(descriptor, block * 16 + m);
        for (unsigned k = 0; codes && k < 32; k++) put_code(to, m, k, from.code[k]);
        for (unsigned k = 0; !codes && k < 16; k++) to.value[m][k] = from.half(k);
    }
}
void right_at(unsigned long long descriptor, Kind kind, unsigned eight, Right& to) {
    if (kind == COLUMNS) {
        // Eight columns of an input lie side by side in a piece, 64 in a row.
        const unsigned apart = static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4, start = start_of(descriptor) + eight / 8 * apart;
        for (unsigned k = 0; k < 16; k++) {
            const unsigned at = start + k / 8 * stride_of(descriptor) + k % 8 * 128 + eight % 8 * 16;
            unsigned short halves[8];
            memcpy(halves, shared_at(swizzled(at), 16, 16), 16);
            for (unsigned n = 0; n < 8; n++) to.value[k][n] = value(halves[n]);
        }
        return;
    }
    for (unsigned n = 0; n < 8; n++) {
        const Bytes from = bytes_of(descriptor, eight * 8 + n);
        for (unsigned k = 0; kind == CODES && k < 32; k++) {
            const unsigned code = from.code[k];
            to.value[k][n] = CODE.value[code], to.power[k][n] = CODE.power[code], to.broken[n] += CODE.broken[code];
        }
        for (unsigned k = 0; kind == BF16 && k < 16; k++) to.value[k][n] = from.half(k);
    }
}

// The products of 128 lanes whose commits are due, in order.
void multiply_due(void* const* brought, unsigned lanes) {
    const auto all = [&](unsigned lane) -> Products& { return *static_cast<Products*>(brought[lane]); };
    const auto of = [&](unsigned lane) -> std::vector<RowsProduct>& { return all(lane).waiting; };
    unsigned count = 0;
    while (count < of(0).size() && of(0)[count].commit < all(0).due) count++;
    for (unsigned i = 0; i < count; i++) {
        const RowsProduct& first = of(0)[i];
        const bool codes = first.kind == CODES;
        Left a[4] = {};
        for (unsigned lane = 0; lane < lanes; lane++) {
            const RowsProduct* own = i < of(lane).size() ? &of(lane)[i] : nullptr;
            if (!own || own->b != first.b || own->left != first.left || own->rows != first.rows || own->add != first.add ||
                own->kind != first.kind || own->commit != first.commit)
                return note(&Report::diverged);
            if (own->a) left_of(lane % 32, own->a, codes, a[lane / 32]);
        }
        // Only rows of 128 bytes in this order are known here.
        if (first.b >> 62 != 1 || (!first.a && first.left >> 62 != 1)) note(&Report::outside);
        for (unsigned block = 0; block < 4 && !first.a; block++) left_at(first.left, codes, block, a[block]);
        for (unsigned eight = 0; eight < first.rows / 8; eight++) {
            Right b = {};
            right_at(first.b, first.kind, eight, b);
            for (unsigned warp = 0; warp < 4; warp++) {
                Eight sums[16];
                const auto sum = [&](unsigned lane, unsigned j) -> float& { return of(warp * 32 + lane)[i].d[eight * 4 + j]; };
                for (unsigned lane = 0; lane < 32; lane++)
                    for (unsigned j = 0; j < 4; j++)
                        sums[sum_row(lane, j)][sum_column(lane, j)] = first.add ? double(sum(lane, j)) : 0.0;
                if (codes) add_codes(a[warp], b, sums);
                else add_halves(a[warp], b, sums);
                for (unsigned lane = 0; lane < 32; lane++)
                    for (unsigned j = 0; j < 4; j++)
                        sum(lane, j) = static_cast<float>(sums[sum_row(lane, j)][sum_column(lane, j)]);
            }
        }
    }
    for (unsigned lane = 0; lane < lanes; lane++) of(lane).erase(of(lane).begin(), of(lane).begin() + count);
}

}  // namespace

bool prepare_shared(unsigned bytes) {
    Machine& m = machine();
    if (!m.shared) {
        void* room = mmap(nullptr, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0);
        if (room == MAP_FAILED) return false;
        m.shared = static_cast<char*>(room);
    } else if (!m.stretches.empty()) {
        mprotect(m.shared, ROOM, PROT_NONE);
    }
    m.stretches.clear();
    return stretch(bytes);
}

void free_shared(char* room) {
    if (room) munmap(room, ROOM);
}

void spoil_shared() {
    Machine& m = machine();
    for (const Stretch& stretch : m.stretches) memset(m.shared + stretch.first, 0xff, stretch.bytes);
}

void* launch_shared() { return machine().shared + machine().stretches[0].first; }

void* group_shared(unsigned bytes) {
    Machine& m = machine();
    const unsigned place = ++m.fibers[m.lane].declared;
    if (place >= m.stretches.size() && !stretch((bytes + 15) / 16 * 16)) abort();
    return m.shared + m.stretches[place].first;
}

unsigned shared_address(const void* at) {
    return static_cast<unsigned>(static_cast<const char*>(at) - machine().shared);
}

char* shared_at(unsigned address, unsigned bytes, unsigned alignment) {
    static thread_local char nowhere[256 * 1024];
    Machine& m = machine();
    for (const Stretch& s : m.stretches)
        if (s.first <= address && address + bytes <= s.first + s.bytes && address % alignment == 0) return m.shared + address;
    note(&Report::outside);
    return nowhere;
}

bool in_shared(const void* at) {
    const Machine& m = machine();
    return at >= m.shared && at < m.shared + ROOM;
}

void copy(unsigned to, const void* from, unsigned bytes) {
    Machine& m = machine();
    Copies& own = m.copies[m.lane];
    if (reinterpret_cast<unsigned long long>(from) % bytes != 0) note(&Report::outside);
    // What is not there faults here, in the lane that asks.
    (void)*static_cast<const volatile char*>(from);
    own.waiting.push_back(Copy{shared_at(to, bytes, bytes), static_cast<const char*>(from), bytes, own.commits});
}

void commit_copies() { machine().copies[machine().lane].commits++; }

void wait_for_copies(unsigned but) {
    Copies& own = machine().copies[machine().lane];
    unsigned kept = 0;
    for (const Copy& copy : own.waiting) {
        if (copy.commit + but >= own.commits) {
            own.waiting[kept++] = copy;
            continue;
        }
        take(copy.to, copy.from, copy.bytes);
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
    Fiber& own = m.fibers[m.lane];
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
    machine().deliveries.push_back(Delivery{shared_at(to, bytes, 16), source, bytes, signal_at(signal)});
}

void arrive_after_copies(unsigned signal) {
    Copies& own = machine().copies[machine().lane];
    // The signal waits for the bytes, which come at any moment.
    unsigned bytes = 0;
    for (const Copy& copy : own.waiting) bytes += copy.bytes;
    arrive(signal, bytes);
    for (const Copy& copy : own.waiting)
        machine().deliveries.push_back(Delivery{copy.to, copy.from, copy.bytes, signal_at(signal)});
    own.waiting.clear();
}

bool deliver() {
    std::vector<Delivery>& all = machine().deliveries;
    if (all.empty()) return false;
    Delivery& one = all[draw(static_cast<unsigned>(all.size()))];
    // A group that has ended has no memory.
    if (machine().done == machine().lanes) note(&Report::outside);
    take(one.to, one.from, one.bytes);
    Signal s = read_signal(one.signal);
    s.bytes -= static_cast<int>(one.bytes);
    write_signal(one.signal, s);
    one = all.back();
    all.pop_back();
    return true;
}

void ask_for_product(const RowsProduct& product) {
    Products& own = machine().products[machine().lane];
    own.waiting.push_back(product);
    own.waiting.back().commit = own.commits;
}
// Products read their operands somewhere between commit and wait; which of the two, the launch's seed says.
void commit_products() {
    Products& own = machine().products[machine().lane];
    own.due = ++own.commits;
    if (machine().early) meet(FOUR_WARPS, multiply_due, &own);
}
void wait_for_products(unsigned but) {
    Products& own = machine().products[machine().lane];
    own.due = own.commits < but ? 0 : own.commits - but;
    if (!machine().early) meet(FOUR_WARPS, multiply_due, &own);
}

void multiply_warp(void* const* brought, unsigned lanes) {
    Left a = {};
    Right b = {};
    Eight sums[16];
    const auto sum = [&](unsigned lane, unsigned i) -> float& { return static_cast<const Product*>(brought[lane])->d[i]; };
    for (unsigned lane = 0; lane < lanes; lane++) {
        const Product& own = *static_cast<const Product*>(brought[lane]);
        left_of(lane, own.a, false, a);
        for (unsigned i = 0; i < 4; i++) {
            b.value[lane % 4 * 2 + i / 2 * 8 + i % 2][lane / 4] = value(own.b[i / 2] >> i % 2 * 16 & 0xffffu);
            sums[sum_row(lane, i)][sum_column(lane, i)] = sum(lane, i);
        }
    }
    add_halves(a, b, sums);
    for (unsigned lane = 0; lane < lanes; lane++)
        for (unsigned i = 0; i < 4; i++) sum(lane, i) = static_cast<float>(sums[sum_row(lane, i)][sum_column(lane, i)]);
}

}  // namespace finback
