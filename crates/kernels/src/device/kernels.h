// Every kernel, after a prelude. A device compiles prelude, then this list in order.
#pragma once

#include "consts.h"
#include "faults.h"
#include "math.h"
#include "args.h"
#include "reduce.h"
#include "elementary.h"
#include "norm.h"
#include "hyper.h"
#include "quant.h"
#include "dense.h"
#include "kv.h"
#include "select.h"
#include "attend.h"
#include "experts.h"
#include "engram.h"
#include "sample.h"
