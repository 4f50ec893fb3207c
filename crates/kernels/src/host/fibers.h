// Lanes as fibers, and the shadow of shared memory that finds missing barriers.
#pragma once
#include <string.h>

namespace finback {

// What a launch noticed. Counts; `line` and `lane` are of the first finding.
struct Report {
    unsigned races;
    unsigned unwritten;
    unsigned outside;
    unsigned diverged;
    unsigned line;
    unsigned lane;
};

unsigned lane();
unsigned group_x();
unsigned group_y();
unsigned groups_x();
unsigned planted();
// Whether kernels end where they would first wait for the launches before.
bool stops();

// Lanes that meet: the own 32, the own four, ten or sixteen times 32, or the own group's.
enum Company { WARP, FOUR_WARPS, TEN_WARPS, SIXTEEN_WARPS, GROUP, COMPANIES };
// What lanes do once all of them are there: it has what each brought, in order of lanes.
typedef void (*Together)(void* const* brought, unsigned lanes);
// Waits for the company; the last of it does the work of all.
void meet(Company company, Together together, void* brought);
// Every lane of the group waits here.
void barrier(int line);

// Barriers passed since the thread began, groups counted as well.
unsigned epoch();
unsigned group_epoch();
Report& report();
void note(unsigned Report::* count);

template <class To, class From> inline To cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps the size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

template <class T> inline T load(const void* from) {
    if (reinterpret_cast<unsigned long long>(from) % sizeof(T) != 0) note(&Report::outside);
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

template <class T> struct Exchange {
    T own, other;
    unsigned from;
};

// The value of the lane `from` of the 32.
template <class T> inline T shuffle(T value, unsigned from) {
    Exchange<T> exchange = {value, value, from};
    meet(WARP, [](void* const* brought, unsigned) {
        for (unsigned i = 0; i < 32; i++) {
            Exchange<T>& to = *static_cast<Exchange<T>*>(brought[i]);
            to.other = static_cast<Exchange<T>*>(brought[to.from % 32])->own;
        }
    }, &exchange);
    return exchange.other;
}

template <class T> inline T shuffle_xor(T value, unsigned mask) { return shuffle(value, lane() ^ mask); }

// The largest word of the 32 lanes.
inline unsigned warp_max(unsigned value) {
    meet(WARP, [](void* const* brought, unsigned lanes) {
        unsigned most = 0;
        for (unsigned i = 0; i < lanes; i++) {
            const unsigned other = *static_cast<unsigned*>(brought[i]);
            most = other > most ? other : most;
        }
        for (unsigned i = 0; i < lanes; i++) *static_cast<unsigned*>(brought[i]) = most;
    }, &value);
    return value;
}

// A word of shared memory and who touched it last. Several readers since a barrier are MANY.
template <class T> struct Cell {
    T value;
    unsigned wrote_at, writer, read_at, reader;
};

const unsigned MANY = 0xffffffffu;

// One access of shared memory.
template <class T> struct Word {
    Cell<T>& cell;

    operator T() const {
        const unsigned now = epoch(), me = lane();
        if (cell.wrote_at < group_epoch()) note(&Report::unwritten);
        if (cell.wrote_at == now && cell.writer != me) note(&Report::races);
        cell.reader = cell.read_at == now && cell.reader != me ? MANY : me;
        cell.read_at = now;
        return cell.value;
    }
    Word& operator=(T value) {
        const unsigned now = epoch(), me = lane();
        if (cell.wrote_at == now && cell.writer != me) note(&Report::races);
        if (cell.read_at == now && cell.reader != me) note(&Report::races);
        cell.value = value;
        cell.wrote_at = now;
        cell.writer = me;
        return *this;
    }
    Word& operator=(const Word& other) { return *this = static_cast<T>(other); }
};

template <class T> struct Shared {
    Cell<T>* cells;
    unsigned count;

    Word<T> operator[](unsigned index) const {
        if (index >= count) {
            note(&Report::outside);
            index = 0;
        }
        return Word<T>{cells[index]};
    }
};

}  // namespace finback
