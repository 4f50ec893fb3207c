//! How far apart two runs of a model are that differ by rounding alone: what a backend with other orders
//! of sums is held to. Where numerics round values to codes, a last bit can be another code, and rows that
//! attend to it differ by far more than a sum's error.

use std::fmt;
use std::path::Path;

use tempfile::TempDir;

/// A checkpoint's copy in which every second weight of the hyper-connections, on an average, has another
/// last bit: about what another order of sums makes of their products.
pub fn with_other_last_bits(checkpoint: &Path) -> TempDir {
    let dir = finback_testkit::temp_dir();
    let mut draws = 0x9e37_79b9_7f4a_7c15u64;
    for entry in std::fs::read_dir(checkpoint).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        if path.extension().is_some_and(|end| end == "safetensors") {
            let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let names: serde_json::Value = serde_json::from_slice(&bytes[8..header]).unwrap();
            for (name, about) in names.as_object().unwrap() {
                if about["dtype"] != "F32" || !name.ends_with("_fn") {
                    continue;
                }
                let [from, to] =
                    [0, 1].map(|i| header + about["data_offsets"][i].as_u64().unwrap() as usize);
                for word in bytes[from..to].chunks_mut(4) {
                    draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    word[0] ^= (draws >> 63) as u8;
                }
            }
        }
        std::fs::write(dir.path().join(path.file_name().unwrap()), bytes).unwrap();
    }
    dir
}

/// What two runs say to the same rows.
#[derive(Default)]
pub struct Apart {
    same: usize,
    /// The largest difference of a logit, by row; ascending once they are read.
    far: Vec<f32>,
}

impl Apart {
    pub fn add(&mut self, a: &[f32], b: &[f32]) {
        let best = |row: &[f32]| (0..row.len()).max_by(|&i, &j| row[i].total_cmp(&row[j]));
        self.same += usize::from(best(a) == best(b));
        self.far.push(a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max));
        self.far.sort_by(f32::total_cmp);
    }

    fn of(&self, share: f64) -> f32 {
        self.far[((self.far.len() - 1) as f64 * share) as usize]
    }

    fn differ(&self) -> usize {
        self.far.len() - self.same
    }

    /// Whether every row chooses the same token.
    pub fn choose_the_same(&self) -> bool {
        self.differ() == 0
    }

    /// Whether at most one row of a hundred chooses another token: where two are as likely, a last bit decides.
    pub fn choose_nearly_the_same(&self) -> bool {
        100 * self.differ() <= self.far.len()
    }

    /// Whether these rows are no farther apart than rounding makes others. The farthest rows are few and
    /// chance: one code more or less.
    pub fn is_rounding(&self, noise: &Apart) -> bool {
        self.of(0.5) < 2.0 * noise.of(0.5) && self.of(0.99) < 4.0 * noise.of(0.99)
    }
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most, all] = [0.5, 0.99, 1.0].map(|share| self.of(share));
        write!(
            f,
            "{} of {} tokens, a row's logits within {half} by half, ",
            self.same,
            self.far.len()
        )?;
        write!(f, "{most} by 99%, {all}")
    }
}
