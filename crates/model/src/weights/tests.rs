use std::io::Write as _;
use std::path::Path;

use finback_checkpoint::{Entry, write};

use super::*;

type Edit<'a> = &'a dyn Fn(Entry, Vec<u8>) -> Vec<(Entry, Vec<u8>)>;

/// Writes the stored full checkpoint into `dir`, each tensor through `edit`.
fn rewrite(dir: &Path, edit: Edit<'_>) -> Checkpoint {
    let ck = Checkpoint::open(&finback_testkit::checkpoint("full")).unwrap();
    let tensors: Vec<_> = ck
        .tensors()
        .flat_map(|t| {
            let (name, shape) = (t.name().to_owned(), t.shape().to_vec());
            edit(Entry { name, dtype: t.dtype(), shape }, t.bytes().to_vec())
        })
        .collect();
    let entries: Vec<_> = tensors.iter().map(|(e, _)| e.clone()).collect();
    let bytes: HashMap<_, _> = tensors.iter().map(|(e, b)| (&e.name, b)).collect();
    write(dir, &[entries], |e, out| out.write_all(bytes[&e.name])).unwrap();
    Checkpoint::open(dir).unwrap()
}

fn config() -> Config {
    Config::load(&finback_testkit::checkpoint("full")).unwrap()
}

/// What is said of the full checkpoint after one tensor went through `edit`.
fn refusal(name: &str, edit: impl Fn(Entry, Vec<u8>) -> Vec<(Entry, Vec<u8>)>) -> String {
    let dir = finback_testkit::temp_dir();
    let ck = rewrite(dir.path(), &|e, b| if e.name == name { edit(e, b) } else { vec![(e, b)] });
    let text = Weights::find(&config(), &ck).unwrap_err().to_string();
    text.replace(&format!("{}/model-00001-of-00001.safetensors: ", dir.path().display()), "")
        .replace(&dir.path().display().to_string(), "DIR")
}

#[test]
fn a_config_far_larger_than_its_checkpoint_is_refused_at_the_first_tensor() {
    let ck = Checkpoint::open(&finback_testkit::checkpoint("full")).unwrap();
    let mut large = config();
    // A table of its 12 billion weights would take hours, and more memory than there is.
    (large.num_hidden_layers, large.n_routed_experts) = (1 << 20, 4096);
    large.compress_ratios.resize(1 << 20, 0);
    let text = Weights::find(&large, &ck).unwrap_err().to_string();
    assert!(text.contains("layers.0.ffn.gate.weight"), "{text}");
}

fn retyped(mut e: Entry, dtype: Dtype, shape: &[usize]) -> Vec<(Entry, Vec<u8>)> {
    e.dtype = dtype;
    e.shape = shape.to_vec();
    let size = dtype.bytes(shape).unwrap();
    vec![(e, vec![0; size])]
}

const WQ_A: &str = "layers.0.attn.wq_a.weight";
const EXPERT: &str = "layers.0.ffn.experts.3.w2.weight";

#[test]
fn the_stored_checkpoints_are_found_whole() {
    for name in finback_testkit::CHECKPOINTS {
        let dir = finback_testkit::checkpoint(name);
        let ck = Checkpoint::open(&dir).unwrap();
        let found = Weights::find(&Config::load(&dir).unwrap(), &ck).unwrap();
        for t in ck.tensors().filter(|t| t.dtype() == Dtype::F8E8M0) {
            check_scales(t).unwrap();
        }
        let wq_a = found.linear(WQ_A).unwrap();
        assert_eq!((wq_a.format, wq_a.out, wq_a.inp), (Format::Fp8 { block: 32 }, 64, 128));
        assert_eq!(wq_a.scale.unwrap().shape(), [2, 4]);
        let w2 = found.linear(EXPERT).unwrap();
        assert_eq!((w2.format, w2.out, w2.inp), (Format::Fp4, 128, 64));
        let embed = found.linear("embed.weight").unwrap();
        assert_eq!((embed.format, embed.out, embed.inp), (Format::Bf16, 512, 128));
        assert!(embed.scale.is_none());
        let sink = found.vector("layers.0.attn.attn_sink").unwrap();
        let bytes: Vec<u8> = sink.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(bytes, ck.tensor("layers.0.attn.attn_sink").unwrap().bytes());
        let norm = found.vector("norm.weight").unwrap();
        assert!(norm.len() == 128 && norm.iter().all(|x| (0.0..2.0).contains(x)));
        let text = found.linear("layers.9.attn.wq_a.weight").unwrap_err().to_string();
        assert!(text.ends_with("found no such weight, wanted a weight of this config"), "{text}");
        assert!(found.table("norm.weight").is_err());
        assert!(found.vector(WQ_A).is_err());
        assert!(found.linear("norm.weight").is_err());
    }
}

#[test]
fn any_linear_may_have_any_stored_form() {
    let forms = [
        (Dtype::Bf16, Format::Bf16, 128),
        (Dtype::F16, Format::F16, 128),
        (Dtype::F32, Format::F32, 128),
        (Dtype::I8, Format::Fp4, 64),
        (Dtype::U8, Format::Fp4, 64),
    ];
    for (dtype, format, columns) in forms {
        let dir = finback_testkit::temp_dir();
        let ck = rewrite(dir.path(), &|e, b| match &e.name[..] {
            WQ_A => retyped(e, dtype, &[64, columns]),
            "layers.0.attn.wq_a.scale" if columns == 128 => vec![],
            "layers.0.attn.wq_a.scale" => retyped(e, Dtype::F8E8M0, &[64, 4]),
            _ => vec![(e, b)],
        });
        let wq_a = Weights::find(&config(), &ck).unwrap().linear(WQ_A).unwrap();
        assert_eq!((wq_a.format, wq_a.out, wq_a.inp), (format, 64, 128));
    }
    // An expert as FP8, tiles at the edges partial.
    let dir = finback_testkit::temp_dir();
    let ck = rewrite(dir.path(), &|e, b| match &e.name[..] {
        EXPERT => retyped(e, Dtype::F8E4M3, &[128, 64]),
        "layers.0.ffn.experts.3.w2.scale" => retyped(e, Dtype::F8E8M0, &[2, 1]),
        _ => vec![(e, b)],
    });
    let block = Config { weight_block_size: 96, ..config() };
    let text = Weights::find(&block, &ck).unwrap_err().to_string();
    assert!(
        text.contains("tensor \"layers.0.attn.wq_a.scale\": found shape [2, 4], wanted [1, 2]")
    );
}

#[test]
fn a_tensor_that_is_missing_or_of_another_kind() {
    assert_eq!(
        refusal(WQ_A, |_, _| vec![]),
        format!("DIR: tensor {WQ_A:?}: found no such tensor, wanted it in one of 1 shards")
    );
    assert_eq!(
        refusal("layers.0.attn.wq_a.scale", |_, _| vec![]),
        "DIR: tensor \"layers.0.attn.wq_a.scale\": found no such tensor, wanted it in one of 1 shards"
    );
    assert_eq!(
        refusal(WQ_A, |e, _| retyped(e, Dtype::I64, &[64, 128])),
        format!("tensor {WQ_A:?}: found I64, wanted F8_E4M3 or I8 or U8 or BF16 or F16 or F32")
    );
    assert_eq!(
        refusal(WQ_A, |e, _| retyped(e, Dtype::F8E4M3, &[128, 64])),
        format!("tensor {WQ_A:?}: found shape [128, 64], wanted [64, 128]")
    );
    assert_eq!(
        refusal(EXPERT, |e, _| retyped(e, Dtype::I8, &[128, 64])),
        format!("tensor {EXPERT:?}: found shape [128, 64], wanted [128, 32]")
    );
    assert_eq!(
        refusal("layers.0.attn.wq_a.scale", |e, _| retyped(e, Dtype::F32, &[2, 4])),
        "tensor \"layers.0.attn.wq_a.scale\": found F32, wanted F8_E8M0"
    );
    assert_eq!(
        refusal(WQ_A, |e, _| retyped(e, Dtype::Bf16, &[64, 128])),
        "tensor \"layers.0.attn.wq_a.scale\": found a scale beside a weight of BF16, \
         wanted scales beside F8_E4M3, I8 and U8 weights only"
    );
    assert_eq!(
        refusal("norm.weight", |e, _| retyped(e, Dtype::F8E4M3, &[128])),
        "tensor \"norm.weight\": found F8_E4M3, wanted BF16 or F16 or F32"
    );
    assert_eq!(
        refusal("layers.1.engram.embed.weight", |e, _| retyped(e, Dtype::Bf16, &[1092, 32])),
        "tensor \"layers.1.engram.embed.weight\": found BF16, wanted F8_E4M3"
    );
    assert_eq!(
        refusal("layers.1.engram.embed.weight", |e, _| retyped(e, Dtype::F8E4M3, &[1091, 32])),
        "tensor \"layers.1.engram.embed.weight\": found shape [1091, 32], wanted [1092, 32]"
    );
}

#[test]
fn the_bias_of_image_tokens_may_be_absent() {
    let dir = finback_testkit::temp_dir();
    let ck = rewrite(dir.path(), &|e, b| match e.name.ends_with("bias_vl") {
        true => vec![],
        false => vec![(e, b)],
    });
    Weights::find(&config(), &ck).unwrap();
}

#[test]
fn a_nan_scale_is_named_with_its_block() {
    let dir = finback_testkit::temp_dir();
    let ck = rewrite(dir.path(), &|e, mut b| {
        if e.name == "layers.0.attn.wq_a.scale" {
            b[6] = 255;
        }
        vec![(e, b)]
    });
    let scale = Weights::find(&config(), &ck).unwrap().linear(WQ_A).unwrap().scale.unwrap();
    let text = check_scales(&scale).unwrap_err().to_string();
    assert!(
        text.ends_with(
            "tensor \"layers.0.attn.wq_a.scale\": found the NaN byte 255 in block [1, 2], \
             wanted E8M0 scales from 0 to 254"
        ),
        "{text}"
    );
}

#[test]
fn half_precision_vectors_are_lifted() {
    let dir = finback_testkit::temp_dir();
    let ck = rewrite(dir.path(), &|mut e, b| {
        if e.name == "norm.weight" {
            e.dtype = Dtype::F16;
            return vec![(e, [0x00, 0x3c].repeat(128))];
        }
        vec![(e, b)]
    });
    let found = Weights::find(&config(), &ck).unwrap();
    assert_eq!(found.vector("norm.weight").unwrap(), [1.0; 128]);
}
