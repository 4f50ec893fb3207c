// The host build: the launcher, and every kernel through the host's prelude.
#include "fibers.cpp"
#include "shared.cpp"
#include "memory.cpp"

#include "../device/prelude_host.h"
#include "../device/kernels.h"
#include "check.h"
