// The kernels of CUDA alone on the host. The dialect's own are build.cpp's: here they only lend functions.
#include "../device/prelude_host.h"
#undef KERNEL
#define KERNEL(name, Args) template <class> static void name##_lanes(const Args& args)

#include "../device/kernels.h"
#include "primitives.h"

#include "../cuda/keys.cuh"
#include "../cuda/matmul.cuh"
#include "../cuda/matmul_few.cuh"
#include "../cuda/matmul_wide.cuh"
#include "../cuda/matmul_gated.cuh"
#include "../cuda/matmul_many.cuh"
#include "../cuda/attend.cuh"
#include "../cuda/attend_many.cuh"
#include "../cuda/select.cuh"
#include "../cuda/routes.cuh"
#include "../cuda/choose.cuh"
#include "../cuda/mix.cuh"
#include "check_tiles.h"
