use std::collections::BTreeMap;
use std::fs;

use finback_checkpoint::{Checkpoint, Dtype, Tensor};
use finback_numerics::{bf16, fp4, fp8};

use super::*;
use crate::weights::{Weights, check_scales};

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|p| (p.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(p).unwrap()))
        .collect()
}

/// Writes and loads; every tensor is where the table says.
fn made(options: &SynthOptions) -> (tempfile::TempDir, Config, Checkpoint) {
    let dir = finback_testkit::temp_dir();
    let config = write(dir.path(), options, &Vocabulary::bare(512)).unwrap();
    assert_eq!(Config::load(dir.path()).unwrap(), config);
    let ck = Checkpoint::open(dir.path()).unwrap();
    Weights::find(&config, &ck).unwrap();
    for scale in ck.tensors().filter(|t| t.dtype() == Dtype::F8E8M0) {
        check_scales(scale).unwrap();
    }
    (dir, config, ck)
}

#[test]
fn the_default_is_a_few_megabytes_with_every_part() {
    let (dir, config, ck) = made(&SynthOptions::default());
    assert!(config.engram.is_some() && config.drafts.is_some() && config.candidate.is_some());
    assert!((2_000_000..12_000_000).contains(&ck.mapped_bytes()), "{}", ck.mapped_bytes());
    assert_eq!(ck.shards().len(), 5);
    let names: Vec<_> = files(dir.path()).into_keys().collect();
    assert!(names.contains(&"engram_token_map.json".to_owned()), "{names:?}");
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
    let all = |seed| files(made(&SynthOptions { seed, ..Default::default() }).0.path());
    let one = all(1);
    assert!(one == all(1));
    let two = all(2);
    for (name, bytes) in one.iter().filter(|(name, _)| name.ends_with(".safetensors")) {
        assert!(*bytes != two[name], "{name}");
    }
}

#[test]
fn any_sizes_that_are_multiples_of_32_load() {
    let base = SynthOptions::default;
    let shapes = [
        SynthOptions { layers: 1, ..base() },
        SynthOptions { layers: 3, drafts: false, ..base() },
        SynthOptions { layers: 4, engram: false, ..base() },
        SynthOptions { layers: 17, experts: 5, experts_per_token: 2, ..base() },
        SynthOptions { experts: 5, experts_per_token: 5, ..base() },
        SynthOptions { hidden: 96, head_dim: 96, rope_dim: 64, q_rank: 32, ..base() },
        SynthOptions { heads: 6, o_groups: 3, o_rank: 96, intermediate: 160, ..base() },
        SynthOptions { index_heads: 3, index_dim: 32, index_topk: 7, window: 5, ..base() },
        SynthOptions { engram_vocab: 1000, engram_heads: 2, engram_dim: 64, ..base() },
    ];
    for options in shapes {
        made(&options);
    }
}

#[test]
fn fields_can_be_set_and_bad_sizes_are_named() {
    let with = |field: &str, value: Value| {
        let mut options = SynthOptions::default();
        options.set.insert(field.into(), value);
        options
    };
    let (_, config, _) = made(&with("swiglu_limit", json!(7.0)));
    assert_eq!(config.swiglu_limit, 7.0);
    let (_, config, _) = made(&with("engram_vocab_size", json!(100)));
    assert_eq!(config.engram.unwrap().vocab_size, 100);
    let dir = finback_testkit::temp_dir();
    let refusal = |options| {
        let e = write(dir.path(), &options, &Vocabulary::bare(512)).unwrap_err().to_string();
        assert!(files(dir.path()).is_empty(), "nothing is written");
        e.replace(&dir.path().display().to_string(), "DIR")
    };
    assert_eq!(
        refusal(SynthOptions { hidden: 100, ..Default::default() }),
        "DIR/config.json: text_config.hidden_size: found 100, wanted a multiple of 32"
    );
    assert_eq!(
        refusal(with("num_attention_heads", json!(5))),
        "DIR/config.json: text_config.num_attention_heads: found 5, wanted a multiple of o_groups, 2"
    );
    assert!(refusal(with("engram_n_heads", json!("x"))).contains("engram_n_heads: found \"x\""));
}

#[test]
fn a_tokenizer_is_written_as_given() {
    let dir = finback_testkit::temp_dir();
    let vocabulary =
        Vocabulary { tokenizer: Some(b"{}"), size: 300, compressed_size: 290, noise: 299 };
    let config = write(dir.path(), &SynthOptions::default(), &vocabulary).unwrap();
    assert_eq!(config.vocab_size, 300);
    assert_eq!(config.drafts.unwrap().noise_token_id, 299);
    let files = files(dir.path());
    assert_eq!(files["tokenizer.json"], b"{}");
    assert!(!files.contains_key("engram_token_map.json"));
}

#[test]
fn the_bare_token_map_is_onto_in_order_of_first_appearance() {
    for size in [1, 2, 5, 512] {
        let v = Vocabulary::bare(size);
        let map = bare_token_map(&v);
        let mut seen = 0;
        for id in &map {
            assert!(*id <= seen, "{map:?}");
            seen = seen.max(id + 1);
        }
        assert_eq!((map.len(), seen), (size, v.compressed_size));
    }
    assert_ne!(bare_token_map(&Vocabulary::bare(512))[2], 2);
}

/// Values of a weight as the model lifts them.
fn values(ck: &Checkpoint, name: &str) -> Vec<f32> {
    let t = ck.tensor(name).unwrap();
    let scale = ck.get(&name.replace(".weight", ".scale"));
    let scales = |at: usize, t: &Tensor, columns: usize, rows: usize| {
        let s = scale.unwrap();
        let width = t.shape()[1] * if t.dtype() == Dtype::I8 { 2 } else { 1 };
        fp8::e8m0(s.bytes()[at / width / rows * s.shape()[1] + at % width / columns])
    };
    let bytes = t.bytes();
    match t.dtype() {
        Dtype::F8E4M3 => {
            let rows = if name.contains("engram.embed") { 1 } else { 32 };
            (0..bytes.len()).map(|i| fp8::decode(bytes[i]) * scales(i, &t, 32, rows)).collect()
        }
        Dtype::I8 => (0..2 * bytes.len())
            .map(|i| fp4::decode(bytes[i / 2] >> (4 * (i % 2)) & 15) * scales(i, &t, 32, 1))
            .collect(),
        Dtype::Bf16 => {
            bytes.as_chunks().0.iter().map(|b| bf16::lift(u16::from_le_bytes(*b))).collect()
        }
        _ => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
    }
}

#[test]
fn weights_have_the_deviations_of_their_laws() {
    let (_dir, _, ck) =
        made(&SynthOptions { hidden: 256, intermediate: 128, ..Default::default() });
    let cases = [
        ("layers.0.attn.wq_a.weight", 0.0, 256f32.powf(-0.5)),
        ("layers.0.attn.wq_b.weight", 0.0, 1.5 * 64f32.powf(-0.5)),
        ("layers.2.ffn.experts.0.w1.weight", 0.0, 4.0 * 256f32.powf(-0.5)),
        ("layers.2.ffn.experts.1.w1.weight", 0.0, 256f32.powf(-0.5)),
        ("layers.2.ffn.experts.0.w2.weight", 0.0, 0.2 / 16.0 * 128f32.powf(-0.5)),
        ("mtp.1.ffn.shared_experts.w2.weight", 0.0, 0.03 * 128f32.powf(-0.5)),
        ("layers.1.engram.embed.weight", 0.0, 1.0),
        ("layers.3.engram.k_weight", 1.0, 0.5),
        ("layers.5.attn.compressor.wkv.weight", 0.0, 256f32.powf(-0.5)),
        ("head.weight", 0.0, 3.0 * 256f32.powf(-0.5)),
        ("norm.weight", 1.0, 0.1),
    ];
    for (name, mean, std) in cases {
        let v = values(&ck, name);
        let n = v.len() as f32;
        let m = v.iter().sum::<f32>() / n;
        let s = (v.iter().map(|x| (x - m) * (x - m)).sum::<f32>() / n).sqrt();
        assert!((m - mean).abs() < 5.0 * std / n.sqrt(), "{name}: mean {m}");
        // Packed weights round coarsely, and their blocks' scales vary.
        assert!((s / std - 1.0).abs() < 0.15, "{name}: deviation {s} for {std}");
        assert!(v.iter().all(|x| x.is_finite()));
    }
    let embed = values(&ck, "embed.weight");
    let loud = |row: usize| embed[row * 256..][..256].iter().any(|x| x.abs() > 0.1);
    assert!(loud(6) && !loud(7) && loud(8) && !loud(71));
    let base = values(&ck, "layers.0.hc_attn_base");
    assert!(base[..8].iter().all(|x| x.abs() < 2.0) && base[8..].iter().any(|x| x.abs() > 2.0));
}

#[test]
fn scales_vary_from_block_to_block() {
    let (_dir, _, ck) = made(&SynthOptions::default());
    for name in ["layers.0.attn.wq_b.scale", "layers.0.ffn.experts.1.w1.scale"] {
        let mut bytes = ck.tensor(name).unwrap().bytes().to_vec();
        bytes.sort_unstable();
        bytes.dedup();
        assert_eq!(bytes.len(), 3, "{name}: {bytes:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn tables_of_the_releases_size_are_holes_on_request() {
    use std::os::unix::fs::MetadataExt;

    let options = SynthOptions {
        engram_vocab: 16_000_000,
        engram_heads: 8,
        engram_dim: 256,
        engram_holes: true,
        ..Default::default()
    };
    let dir = finback_testkit::temp_dir();
    let config = write(dir.path(), &options, &Vocabulary::bare(512)).unwrap();
    assert_eq!(config.engram.unwrap().num_embeddings, [384_006_168, 384_016_682]);
    let ck = Checkpoint::open(dir.path()).unwrap();
    let table = ck.tensor("layers.1.engram.embed.weight").unwrap();
    assert_eq!(table.bytes().len(), 384_006_168 * 256);
    let blocks: u64 = ck.shards().map(|(path, _)| fs::metadata(path).unwrap().blocks() * 512).sum();
    assert!(blocks < 50_000_000, "{blocks} bytes on disk");
}

#[test]
fn the_release_has_its_own_sizes() {
    let (options, vocabulary) = (SynthOptions::release(), Vocabulary::bare(129_280));
    let json = sizes::config_json(&options, &vocabulary);
    let config = Config::parse(Path::new(CONFIG_FILE), json.to_string().as_bytes()).unwrap();
    let text = &json["text_config"];
    let ratios: Vec<u64> =
        text["compress_ratios"].as_array().unwrap().iter().map(|r| r.as_u64().unwrap()).collect();
    let wanted = [vec![0; 2], vec![2; 18], vec![1; 20], vec![0; 3]].concat();
    assert_eq!(ratios, wanted);
    assert_eq!(text["candidate_source_layer_id"], 20);
    let rows = text["engram_num_embeddings"].as_array().unwrap();
    assert_eq!(*rows, [json!(384_006_168), json!(384_016_682)]);
    // The largest matrices, in bytes.
    let table = weights(&config);
    let bytes = |name: &str| {
        let weight = table.iter().find(|w| w.name == name).unwrap();
        weight.entries(config.weight_block_size)[0].shape.iter().product::<usize>()
    };
    assert_eq!(bytes("layers.5.attn.wq_b.weight"), 32768 * 1280);
    assert_eq!(bytes("layers.5.ffn.experts.383.w1.weight"), 2304 * 5120 / 2);
}
