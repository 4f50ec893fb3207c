// Memory of the host as a device: each allocation between pages that nothing may touch.
#include <sys/mman.h>
#include <unistd.h>

namespace finback {
namespace {

unsigned long page() { return static_cast<unsigned long>(sysconf(_SC_PAGESIZE)); }

// Pages of so many bytes with one more on either side.
unsigned long whole(unsigned long bytes) { return (bytes + page() - 1) / page() * page() + 2 * page(); }

}  // namespace
}  // namespace finback

// Zeros that end where their last page does, null without memory.
extern "C" void* finback_emu_map(unsigned long bytes) {
    const unsigned long all = finback::whole(bytes), page = finback::page();
    char* first = static_cast<char*>(mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0));
    if (first == MAP_FAILED) return nullptr;
    if (mprotect(first + page, all - 2 * page, PROT_READ | PROT_WRITE) != 0) {
        munmap(first, all);
        return nullptr;
    }
    return first + all - page - bytes;
}

extern "C" void finback_emu_unmap(void* at, unsigned long bytes) {
    const unsigned long all = finback::whole(bytes);
    munmap(static_cast<char*>(at) + bytes + finback::page() - all, all);
}
