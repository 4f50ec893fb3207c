// One plain struct of device addresses and 32-bit words for each kernel: the same bytes here and in
// args.rs. Addresses come first; a test holds the two files together, field by field.
#pragma once

struct ElementaryArgs {
    GLOBAL const float* x;
    GLOBAL float* out;
    u32 count;
    u32 function;
};

struct RmsnormArgs {
    GLOBAL const float* x;
    GLOBAL const float* weight;
    GLOBAL float* out;
    u32 width;
    float eps;
    u32 round;
    u32 pad;
};

struct EmbedArgs {
    GLOBAL const u8* table;
    GLOBAL const u32* tokens;
    GLOBAL u8* streams;
    GLOBAL float* pre;
    u32 width;
    u32 hc;
    u32 format;
    u32 round;
};

struct HyperInArgs {
    GLOBAL const u8* streams;
    GLOBAL const float* mix;
    GLOBAL const float* base;
    GLOBAL const float* norm;
    GLOBAL float* pre;
    GLOBAL float* post;
    GLOBAL float* comb;
    GLOBAL float* x;
    u32 width;
    u32 hc;
    u32 iterations;
    u32 round;
    float eps;
    float hc_eps;
    float scale_pre;
    float scale_post;
    float scale_comb;
    u32 pad;
};

struct HyperOutArgs {
    GLOBAL u8* streams;
    GLOBAL const float* y;
    GLOBAL const float* post;
    GLOBAL const float* comb;
    u32 width;
    u32 hc;
    u32 round;
    u32 pad;
};

struct CollapseArgs {
    GLOBAL const u8* streams;
    GLOBAL const float* pre;
    GLOBAL float* out;
    u32 width;
    u32 hc;
    u32 round;
    u32 pad;
};

struct TapArgs {
    GLOBAL const u8* streams;
    GLOBAL float* out;
    u32 width;
    u32 hc;
    u32 stride;
    u32 at;
    u32 round;
    u32 pad;
};

struct QuantiseArgs {
    GLOBAL const float* x;
    GLOBAL u8* codes;
    GLOBAL u8* scales;
    u32 width;
    u32 pad;
};

struct DenseArgs {
    GLOBAL const u8* weight;
    GLOBAL const u8* scale;
    GLOBAL const u8* x;
    GLOBAL const u8* codes;
    GLOBAL const u8* scales;
    GLOBAL float* out;
    u32 rows;
    u32 inputs;
    u32 outputs;
    u32 side;
    u32 x_stride;
    u32 out_stride;
    u32 round;
    u32 x_round;
};

struct PackArgs {
    GLOBAL const float* x;
    GLOBAL const u64* places;
    GLOBAL u8* out;
    u32 dim;
    u32 pad;
};

struct UnpackArgs {
    GLOBAL const u8* rows;
    GLOBAL const u64* places;
    GLOBAL float* out;
    u32 dim;
    u32 pad;
};

struct CompressedArgs {
    GLOBAL float* x;
    GLOBAL const float* raw;
    GLOBAL const u32* members;
    GLOBAL const float* norm;
    GLOBAL const float* cos;
    GLOBAL const float* sin;
    GLOBAL u16* plain;
    GLOBAL u8* coded;
    GLOBAL const u64* places;
    GLOBAL u8* out;
    u32 dim;
    u32 pairs;
    u32 ratio;
    u32 round;
    float eps;
    u32 index;
};

struct IndexQueryArgs {
    GLOBAL float* q;
    GLOBAL const float* cos;
    GLOBAL const float* sin;
    u32 heads;
    u32 dim;
    u32 pairs;
    u32 round;
};

struct IndexScoresArgs {
    GLOBAL const float* q;
    GLOBAL const float* w;
    GLOBAL const u8* keys;
    GLOBAL const u32* rows;
    GLOBAL const u32* blocks;
    GLOBAL const u32* candidates;
    GLOBAL const u32* n_candidates;
    GLOBAL float* scores;
    u32 heads;
    u32 dim;
    u32 ratio;
    u32 rows_per_block;
    u32 blocks_stride;
    u32 candidates_stride;
    u32 candidate_size;
    u32 count;
    u32 scores_stride;
    float scale;
};

struct BlockBestArgs {
    GLOBAL const float* scores;
    GLOBAL const u32* rows;
    GLOBAL float* out;
    u32 ratio;
    u32 size;
    u32 scores_stride;
    u32 count;
    u32 out_stride;
    u32 pad;
};

struct TopkArgs {
    GLOBAL const float* scores;
    GLOBAL const u32* candidates;
    GLOBAL u32* picks;
    GLOBAL u32* n_picks;
    u32 count;
    u32 scores_stride;
    u32 k;
    u32 picks_stride;
    u32 candidates_stride;
    u32 candidate_size;
};

struct AttendArgs {
    GLOBAL float* q;
    GLOBAL const float* cos;
    GLOBAL const float* sin;
    GLOBAL const float* sinks;
    GLOBAL const u8* ring;
    GLOBAL const u8* fresh;
    GLOBAL const u8* pool;
    GLOBAL const u32* rows;
    GLOBAL const u32* blocks;
    GLOBAL const u32* picks;
    GLOBAL const u32* n_picks;
    GLOBAL u16* plain;
    u32 heads;
    u32 dim;
    u32 pairs;
    u32 window;
    u32 ring_rows;
    u32 blocks_stride;
    u32 rows_per_block;
    u32 picks_stride;
    u32 draft;
    u32 round;
    float scale;
    u32 pad;
};

struct RouteArgs {
    GLOBAL const float* logits;
    GLOBAL const float* bias;
    GLOBAL u32* experts;
    GLOBAL float* weights;
    u32 count;
    u32 topk;
    u32 scoring;
    u32 normalise;
    float temperature;
    float scale;
};

struct GroupArgs {
    GLOBAL const u32* experts;
    GLOBAL const float* weights;
    GLOBAL u32* places;
    GLOBAL u32* rows;
    GLOBAL float* sorted;
    GLOBAL u32* groups;
    u32 routes;
    u32 topk;
    u32 groups_max;
    u32 pad;
};

struct RouteFewArgs {
    GLOBAL const float* logits;
    GLOBAL const float* bias;
    GLOBAL u32* experts;
    GLOBAL float* weights;
    GLOBAL u32* places;
    GLOBAL u32* rows;
    GLOBAL float* sorted;
    GLOBAL u32* groups;
    u32 count;
    u32 topk;
    u32 scoring;
    u32 normalise;
    float temperature;
    float scale;
    u32 row_count;
    u32 groups_max;
};

struct ExpertArgs {
    GLOBAL const u8* weight;
    GLOBAL const u8* scale;
    GLOBAL const float* x;
    GLOBAL const u8* codes;
    GLOBAL const u8* scales;
    GLOBAL const u32* groups;
    GLOBAL const u32* rows;
    GLOBAL float* out;
    u64 weight_bytes;
    u64 scale_bytes;
    u32 inputs;
    u32 outputs;
    u32 side;
    u32 x_stride;
    u32 out_stride;
    u32 round;
};

struct SwigluArgs {
    GLOBAL const float* gate;
    GLOBAL const float* up;
    GLOBAL const float* weights;
    GLOBAL float* out;
    GLOBAL u8* coded;
    u32 width;
    u32 weighted;
    float limit;
    u32 round;
    u32 slices;
    u32 pad;
};

struct SumExpertsArgs {
    GLOBAL const float* routed;
    GLOBAL const float* shared;
    GLOBAL const u32* places;
    GLOBAL float* out;
    u32 width;
    u32 topk;
    u32 round;
    u32 pad;
};

struct EngramGatherArgs {
    GLOBAL const u8* table;
    GLOBAL const u8* scales;
    GLOBAL const u64* ids;
    GLOBAL float* out;
    u32 columns;
    u32 dim;
};

struct EngramGateArgs {
    GLOBAL u8* streams;
    GLOBAL const float* kv;
    GLOBAL const float* qk;
    u32 width;
    u32 hc;
    float eps;
    u32 round;
};

struct ChooseArgs {
    GLOBAL const float* logits;
    GLOBAL const u64* seeds;
    GLOBAL const u64* positions;
    GLOBAL const u32* params;
    GLOBAL u32* choices;
    u32 vocab;
    u32 stride;
    u32 choices_stride;
    u32 none;
};

struct ChooseSliceArgs {
    GLOBAL const float* logits;
    GLOBAL const u64* seeds;
    GLOBAL const u64* positions;
    GLOBAL const u32* params;
    GLOBAL u64* tops;
    GLOBAL u64* winners;
    GLOBAL u32* choices;
    u32 vocab;
    u32 stride;
    u32 slices;
    u32 choices_stride;
    u32 none;
    u32 pad;
};

struct AddArgs {
    GLOBAL float* x;
    GLOBAL const float* term;
    u32 width;
    u32 x_stride;
};

struct AdjustArgs {
    GLOBAL float* logits;
    GLOBAL const u32* starts;
    GLOBAL const u32* ids;
    GLOBAL const float* adds;
    GLOBAL const u32* chain;
    GLOBAL const float* penalties;
    GLOBAL float* saved;
    GLOBAL float* saved_chain;
    u32 stride;
    u32 chain_stride;
    u32 chain_count;
    u32 restore;
};

struct ArrangeArgs {
    GLOBAL const u8* weight;
    GLOBAL const u8* scale;
    GLOBAL u8* out;
    GLOBAL const u32* groups;
    u64 weight_bytes;
    u64 scale_bytes;
    u64 out_bytes;
    u32 inputs;
    u32 outputs;
    u32 side;
    u32 first;
    u32 apart;
    u32 tiles;
};

struct FetchArgs {
    GLOBAL const u8* map;
    GLOBAL const u64* table;
    GLOBAL const u32* groups;
    GLOBAL u32* named;
    GLOBAL u8* out;
    u32 count;
    u32 pad;
};

struct OperandArgs {
    GLOBAL const float* x;
    GLOBAL u8* out;
    u32 width;
    u32 x_stride;
    u32 out_stride;
    u32 coded;
};

struct TileArgs {
    GLOBAL const u8* weight;
    GLOBAL const u8* x;
    GLOBAL const u32* groups;
    GLOBAL const u32* list;
    GLOBAL float* out;
    GLOBAL float* second;
    u64 expert_bytes;
    u32 rows;
    u32 inputs;
    u32 outputs;
    u32 groups_max;
    u32 x_stride;
    u32 x_step;
    u32 out_stride;
    u32 out_step;
    u32 split;
    u32 second_stride;
    u32 round;
    u32 most_rows;
    u32 chunk;
    u32 stages;
    u32 known;
    u32 beside;
    u32 quads;
    u32 early;
};

struct GatedArgs {
    GLOBAL const u8* weight;
    GLOBAL const u8* x;
    GLOBAL const u32* groups;
    GLOBAL const float* shares;
    GLOBAL u8* coded;
    u64 expert_bytes;
    u32 inputs;
    u32 width;
    u32 stages;
    u32 round;
    float limit;
    u32 pad;
};

struct CopyArgs {
    GLOBAL const u8* from;
    GLOBAL const u64* sources;
    GLOBAL u8* to;
    GLOBAL const u64* places;
    u32 bytes;
    u32 pad;
};

struct MarkovArgs {
    GLOBAL const u8* table;
    GLOBAL const u32* tokens;
    GLOBAL const float* h;
    GLOBAL const float* projection;
    GLOBAL float* embed;
    GLOBAL float* confidence;
    u32 width;
    u32 rank;
    u32 format;
    u32 tokens_stride;
    u32 h_stride;
    u32 confidence_stride;
};

struct IndexOperandArgs {
    GLOBAL const float* q;
    GLOBAL const float* cos;
    GLOBAL const float* sin;
    GLOBAL u16* out;
    u32 heads;
    u32 dim;
    u32 pairs;
    u32 pad;
};

struct TileAttendArgs {
    GLOBAL const float* q;
    GLOBAL const float* cos;
    GLOBAL const float* sin;
    GLOBAL const float* sinks;
    GLOBAL const u8* ring;
    GLOBAL const u8* fresh;
    GLOBAL const u8* pool;
    GLOBAL const u32* rows;
    GLOBAL const u32* blocks;
    GLOBAL const u32* picks;
    GLOBAL const u32* n_picks;
    GLOBAL float* scores;
    GLOBAL u16* out;
    u32 heads;
    u32 window;
    u32 ring_rows;
    u32 blocks_stride;
    u32 rows_per_block;
    u32 picks_stride;
    u32 draft;
    u32 known;
    float scale;
    u32 row_count;
};

struct TileIndexArgs {
    GLOBAL const u8* q;
    GLOBAL const float* w;
    GLOBAL const u8* keys;
    GLOBAL const u32* rows;
    GLOBAL const u32* blocks;
    GLOBAL const u32* candidates;
    GLOBAL const u32* n_candidates;
    GLOBAL float* scores;
    GLOBAL float* tops;
    u32 ratio;
    u32 rows_per_block;
    u32 blocks_stride;
    u32 candidates_stride;
    u32 candidate_size;
    u32 count;
    u32 scores_stride;
    u32 row_count;
    u32 rows_each;
    float scale;
};

struct TileTopkArgs {
    GLOBAL const float* scores;
    GLOBAL const u32* from;
    GLOBAL const u32* rows;
    GLOBAL const u32* candidates;
    GLOBAL const u32* n_candidates;
    GLOBAL u32* ids;
    GLOBAL float* best;
    GLOBAL u32* n_picks;
    u32 count;
    u32 scores_stride;
    u32 k;
    u32 tiles;
    u32 ratio;
    u32 unit;
    u32 candidates_stride;
    u32 candidate_size;
    u32 spread;
    u32 pad;
};

struct HyperMixArgs {
    GLOBAL u8* streams;
    GLOBAL const float* y;
    GLOBAL const float* routed;
    GLOBAL const float* shared;
    GLOBAL const u32* places;
    GLOBAL const float* post;
    GLOBAL const float* comb;
    GLOBAL const float* pre;
    GLOBAL const float* weight;
    GLOBAL float* collapsed;
    GLOBAL float* parts;
    u32 width;
    u32 hc;
    u32 columns;
    u32 rows;
    u32 rows_each;
    u32 topk;
    u32 expand;
    u32 round;
};

struct HyperNormArgs {
    GLOBAL const u8* collapsed;
    GLOBAL const float* parts;
    GLOBAL const float* base;
    GLOBAL const float* norm;
    GLOBAL float* pre;
    GLOBAL float* post;
    GLOBAL float* comb;
    GLOBAL float* x;
    GLOBAL u16* plain;
    GLOBAL u8* rounded;
    u32 width;
    u32 hc;
    u32 slices;
    u32 iterations;
    u32 round;
    float eps;
    float hc_eps;
    float scale_pre;
    float scale_post;
    float scale_comb;
    u32 kept;
    u32 first;
    u32 known;
    u32 pad;
};

struct FillArgs {
    GLOBAL u32* out;
    GLOBAL const u32* keys;
    u64 count;
    u32 width;
    u32 seed;
    u32 keep;
    u32 set;
    u32 keyed;
    u32 pad;
};

struct ReadAllArgs {
    GLOBAL const u32* from;
    GLOBAL u32* out;
    u32 width;
    u32 pad;
};

struct LatentsArgs {
    GLOBAL const float* qr;
    GLOBAL float* normed;
    GLOBAL const float* q_norm;
    GLOBAL u16* plain;
    GLOBAL u8* coded;
    GLOBAL const float* kv;
    GLOBAL const float* kv_norm;
    GLOBAL const float* cos;
    GLOBAL const float* sin;
    GLOBAL u8* out;
    u32 rank;
    u32 dim;
    u32 pairs;
    u32 round;
    float eps;
    u32 pad;
};

struct JoinArgs {
    GLOBAL const u32* parts;
    GLOBAL u32* out;
    u32 rows;
    u32 count;
    u32 width;
    u32 stride;
};
