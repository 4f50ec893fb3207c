//! Every kernel with its arguments: the only list.

use crate::args::{self, Args};
use crate::tiles::{FEW_SHARED, SHARED, SOME_SHARED};

/// Lanes of a group of the dialect.
pub const LANES: u32 = 128;
/// Channels of a slice, which a group takes of a row where no sum crosses channels.
pub const SLICE: usize = 512;
/// Outputs of a dense or expert product that a group computes: one a warp.
pub const OUTPUTS: u32 = 4;
/// Most rows of one dense product.
pub const DENSE_ROWS: usize = 16;
/// Most keys of a row in `attend`, window and picks together.
pub const ATTEND_KEYS: usize = 1024;
/// Most parallel streams.
pub const HC_MAX: usize = 8;
/// Most routed experts of a layer, and of a row.
pub const ROUTE_EXPERTS: usize = 1024;
/// Most routed experts of a row.
pub const ROUTE_TOPK: usize = 16;
/// Most rows, routes and scores of `route_few`.
pub const ROUTE_FEW: (usize, usize, usize) = (8, 128, 3072);

/// A kernel.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Its name on every device.
    pub name: &'static str,
    /// The name of its struct of arguments.
    pub args: &'static str,
    /// Bytes of that struct.
    pub args_bytes: usize,
    /// Fields of that struct, name and type.
    pub fields: &'static [(&'static str, &'static str)],
    /// Threads of a group.
    pub lanes: u32,
    /// Bytes of shared memory that a launch asks for beside what the kernel declares.
    pub shared: u32,
    /// Whether it is written in CUDA alone, and not in the dialect.
    pub cuda_only: bool,
    #[cfg(host_build)]
    pub(crate) host: Option<crate::host::Entry>,
}

macro_rules! kernels {
    (
        dialect { $($name:ident: $args:ident,)* }
        cuda { $($own:ident: $own_args:ident, $lanes:expr, $shared:expr;)* }
    ) => {
        /// Every kernel.
        pub static KERNELS: &[Kernel] = &[
            $(Kernel {
                name: stringify!($name),
                args: args::$args::NAME,
                args_bytes: size_of::<args::$args>(),
                fields: args::$args::FIELDS,
                lanes: LANES,
                shared: 0,
                cuda_only: false,
                #[cfg(host_build)]
                host: Some(crate::host::entry!($name)),
            },)*
            $(Kernel {
                name: stringify!($own),
                args: args::$own_args::NAME,
                args_bytes: size_of::<args::$own_args>(),
                fields: args::$own_args::FIELDS,
                lanes: $lanes,
                shared: $shared,
                cuda_only: true,
                #[cfg(host_build)]
                host: Some(crate::host::entry!($own)),
            },)*
        ];
    };
}

kernels! {
    dialect {
        elementary: ElementaryArgs,
        rmsnorm: RmsnormArgs,
        embed: EmbedArgs,
        collapse: CollapseArgs,
        tap: TapArgs,
        hyper_in: HyperInArgs,
        hyper_out: HyperOutArgs,
        quantise: QuantiseArgs,
        operand: OperandArgs,
        fetch: FetchArgs,
        arrange_fp8: ArrangeArgs,
        arrange_fp4: ArrangeArgs,
        arrange_bf16: ArrangeArgs,
        arrange_lifted: ArrangeArgs,
        index_query: IndexQueryArgs,
        index_operand: IndexOperandArgs,
        hyper_mix: HyperMixArgs,
        hyper_norm: HyperNormArgs,
        dense_fp8: DenseArgs,
        dense_fp8_codes: DenseArgs,
        dense_fp4: DenseArgs,
        dense_fp4_codes: DenseArgs,
        dense_bf16: DenseArgs,
        dense_f16: DenseArgs,
        dense_f32: DenseArgs,
        expert_fp4: ExpertArgs,
        expert_fp4_codes: ExpertArgs,
        expert_fp8: ExpertArgs,
        expert_fp8_codes: ExpertArgs,
        expert_bf16: ExpertArgs,
        pack_window: PackArgs,
        pack_compressed: PackArgs,
        pack_index: PackArgs,
        unpack_window: UnpackArgs,
        unpack_compressed: UnpackArgs,
        unpack_index: UnpackArgs,
        finish_compressed: CompressedArgs,
        copy_rows: CopyArgs,
        index_scores: IndexScoresArgs,
        block_best: BlockBestArgs,
        topk: TopkArgs,
        attend: AttendArgs,
        route: RouteArgs,
        group_routes: GroupArgs,
        route_few: RouteFewArgs,
        finish_latents: LatentsArgs,
        swiglu: SwigluArgs,
        sum_experts: SumExpertsArgs,
        engram_gather: EngramGatherArgs,
        engram_gate: EngramGateArgs,
        choose: ChooseArgs,
        choose_top: ChooseSliceArgs,
        choose_draw: ChooseSliceArgs,
        choose_pick: ChooseSliceArgs,
        adjust: AdjustArgs,
        add_rows: AddArgs,
        markov: MarkovArgs,
        fill: FillArgs,
        read_all: ReadAllArgs,
        join_parts: JoinArgs,
    }
    // name: arguments, threads of a group, bytes of shared memory that a launch asks for.
    cuda {
        tile_fp8_few: TileArgs, 384, FEW_SHARED;
        tile_fp8_eight: TileArgs, 384, SOME_SHARED;
        tile_fp8_some: TileArgs, 640, SOME_SHARED;
        tile_fp8_many: TileArgs, 384, SHARED;
        tile_fp4_few: TileArgs, 640, SOME_SHARED;
        tile_fp4_some: TileArgs, 640, SOME_SHARED;
        tile_fp4_gated: GatedArgs, 640, SOME_SHARED;
        tile_fp4_many: TileArgs, 384, SHARED;
        tile_bf16_few: TileArgs, 384, FEW_SHARED;
        tile_bf16_eight: TileArgs, 384, SOME_SHARED;
        tile_bf16_some: TileArgs, 640, SOME_SHARED;
        tile_bf16_many: TileArgs, 384, SHARED;
        tile_lifted_few: TileArgs, 384, FEW_SHARED;
        tile_lifted_some: TileArgs, 640, SOME_SHARED;
        tile_lifted_many: TileArgs, 384, SHARED;
        tile_attend_scores: TileAttendArgs, 256, 0;
        tile_attend_mix: TileAttendArgs, 512, 110_400;
        tile_attend_many: TileAttendArgs, 512, 231_424;
        tile_index_scores: TileIndexArgs, 512, 0;
        tile_index_many: TileIndexArgs, 384, 136_192;
        tile_topk: TileTopkArgs, 1024, 98_304;
        tile_group_routes: GroupArgs, 1024, 131_072;
        tile_choose: ChooseArgs, 1024, 131_072;
        tile_hyper_mix: HyperMixArgs, 512, 163_840;
    }
}

/// The kernel of this name.
pub fn kernel(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::KERNEL_WORDS;
    use crate::source;

    /// The fields of a struct in `args.h`, in this crate's words.
    fn declared(name: &str) -> Vec<(String, String)> {
        let text = source::text("args.h").unwrap();
        let body =
            text.split_once(&format!("struct {name} {{")).unwrap().1.split_once('}').unwrap().0;
        body.lines()
            .filter_map(|line| line.trim().strip_suffix(';'))
            .map(|field| {
                let (kind, name) = field.rsplit_once(' ').unwrap();
                let kind = if kind.starts_with("GLOBAL") { "addr" } else { kind };
                (name.to_string(), kind.replace("float", "f32"))
            })
            .collect()
    }

    #[test]
    fn arguments_have_the_same_fields_on_both_sides() {
        for kernel in KERNELS {
            let ours: Vec<(String, String)> =
                kernel.fields.iter().map(|&(name, kind)| (name.into(), kind.into())).collect();
            assert_eq!(declared(kernel.args), ours, "{}", kernel.args);
            let wide = |kind: &str| if kind == "addr" || kind == "u64" { 8 } else { 4 };
            let bytes: usize = kernel.fields.iter().map(|(_, kind)| wide(kind)).sum();
            assert_eq!(bytes, kernel.args_bytes, "{}: padding between fields", kernel.args);
        }
    }

    #[test]
    fn every_kernel_of_the_text_is_listed() {
        let mut names = Vec::new();
        for (file, text) in source::FILES.iter().chain(source::CUDA_FILES) {
            for line in
                text.lines().filter(|line| !file.starts_with("prelude") && !line.ends_with('\\'))
            {
                for word in KERNEL_WORDS {
                    let name = line.strip_prefix(word).and_then(|rest| rest.split(',').next());
                    names.extend(name.map(str::to_string));
                }
            }
        }
        names.sort();
        let mut listed: Vec<String> = KERNELS.iter().map(|k| k.name.to_string()).collect();
        listed.sort();
        assert_eq!(names, listed);
    }

    #[test]
    fn limits_are_those_of_the_text() {
        let define = |name: &str| {
            let mut lines = source::FILES.iter().flat_map(|(_, text)| text.lines());
            let found = lines.find_map(|line| line.strip_prefix(&format!("#define {name} ")));
            found.and_then(|value| value.trim_end_matches('u').parse::<usize>().ok())
        };
        assert_eq!(define("GROUP_LANES"), Some(LANES as usize));
        assert_eq!(define("SLICE_CHANNELS"), Some(SLICE));
        assert_eq!(define("GROUP_WARPS"), Some(OUTPUTS as usize));
        assert_eq!(define("DENSE_ROWS"), Some(DENSE_ROWS));
        assert_eq!(define("ATTEND_KEYS"), Some(ATTEND_KEYS));
        assert_eq!(define("HC_MAX"), Some(HC_MAX));
        assert_eq!(define("ROUTE_EXPERTS"), Some(ROUTE_EXPERTS));
        assert_eq!(define("ROUTE_TOPK"), Some(ROUTE_TOPK));
        let few = ["ROUTE_ROWS", "ROUTE_ROUTES", "ROUTE_SCORES"].map(|name| define(name).unwrap());
        assert_eq!((few[0], few[1], few[2]), ROUTE_FEW);
        use args::{format, scoring};
        let formats = [
            ("FORMAT_FP8", format::FP8),
            ("FORMAT_FP4", format::FP4),
            ("FORMAT_BF16", format::BF16),
            ("FORMAT_F16", format::F16),
            ("FORMAT_F32", format::F32),
            ("FORMAT_LIFTED", format::LIFTED),
            ("SCORING_SQRT_SOFTPLUS", scoring::SQRT_SOFTPLUS),
            ("SCORING_SIGMOID", scoring::SIGMOID),
            ("SCORING_SOFTMAX", scoring::SOFTMAX),
        ];
        for (name, value) in formats {
            assert_eq!(define(name), Some(value as usize), "{name}");
        }
    }
}
