// Values that the host passes in arguments; args.rs has the same.
#pragma once

#define FORMAT_FP8 0u
#define FORMAT_FP4 1u
#define FORMAT_BF16 2u
#define FORMAT_F16 3u
#define FORMAT_F32 4u
#define FORMAT_LIFTED 5u

#define SCORING_SQRT_SOFTPLUS 0u
#define SCORING_SIGMOID 1u
#define SCORING_SOFTMAX 2u
