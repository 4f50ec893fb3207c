//! What was measured, as a table and as JSON.

use std::fmt::Write as _;

use finback_gpu::ExpertsOn;
use finback_model::plan::human;
use finback_ops::ModelSpec;
use serde_json::{Value, json};

use super::release::{LAYERS, Whole};
use super::work::{self, Class};

/// Seconds by class: the class, its launches, and how long they take alone.
type Classes = Vec<(Class, usize, f64)>;
/// Seconds by kernel, likewise.
type Kernels = Vec<(&'static str, usize, f64)>;

/// One kind of round.
#[derive(Debug)]
pub struct Round {
    /// Slots with a window.
    pub slots: usize,
    /// Rows of each.
    pub rows: usize,
    /// Whether all rows use the same experts.
    pub same: bool,
    /// Seconds of a round as the engine sees it, the median.
    pub wall: f64,
    /// Seconds of its launches, replayed.
    pub device: f64,
    /// How many they are.
    pub launches: usize,
    /// By class.
    pub classes: Classes,
    /// By kernel, where that was measured.
    pub kernels: Kernels,
    /// Bytes of weights that it reads.
    pub bytes: f64,
    /// The same of the release's layers, where all their kinds were measured.
    pub whole: Option<Whole>,
}

/// One piece of a prompt.
#[derive(Debug)]
pub struct Piece {
    /// Tokens before it.
    pub depth: usize,
    /// Its rows.
    pub rows: usize,
    /// Seconds, from the call to the last launch's end.
    pub wall: f64,
    /// Launches.
    pub launches: usize,
    /// By class.
    pub classes: Classes,
    /// By kernel.
    pub kernels: Kernels,
    /// Operations of its products with weights.
    pub operations: f64,
    /// The same of the release's layers, where all their kinds were measured.
    pub whole: Option<Whole>,
}

/// All of a run.
#[derive(Debug)]
pub struct Report {
    device: String,
    /// Bytes a second that were read, measured in this run.
    read: f64,
    /// Operations a second of NVIDIA's BF16 product, likewise.
    matmul: Option<f64>,
    layers: usize,
    experts: usize,
    /// Whether the routed ones are read over the bus.
    on_host: bool,
    layer_bytes: f64,
    /// Rounds, in order.
    pub rounds: Vec<Round>,
    /// Pieces, in order.
    pub pieces: Vec<Piece>,
}

impl Report {
    /// Nothing measured but the device's rates.
    pub fn new(device: String, read: f64, matmul: Option<f64>) -> Self {
        let (rounds, pieces) = (Vec::new(), Vec::new());
        let (layers, experts, on_host, layer_bytes) = (0, 0, false, 0.0);
        Self { device, read, matmul, layers, experts, on_host, layer_bytes, rounds, pieces }
    }

    /// Says what is measured.
    pub fn about(&mut self, spec: &ModelSpec, experts: ExpertsOn) {
        self.on_host = experts != ExpertsOn::Device;
        self.layers = spec.layers.len();
        self.experts = spec.layers.first().map_or(0, |layer| layer.ffn.experts.len());
        let one = spec.layers.iter().map(|layer| work::layer_bytes(layer, 1, true));
        self.layer_bytes = one.sum::<f64>() / self.layers.max(1) as f64;
    }

    /// As lines.
    pub fn text(&self) -> String {
        let mut text = format!(
            "device {}: reads {}/s{}\n{} layers of {} experts{}; a row reads {} a layer, on average\n",
            self.device,
            human(self.read as u64),
            match self.matmul {
                Some(rate) => format!(", multiplies BF16 at {:.0} TFLOP/s", rate / 1e12),
                None => String::new(),
            },
            self.layers,
            self.experts,
            if self.on_host { " on the host" } else { "" },
            human(self.layer_bytes as u64),
        );
        // Writing to a string cannot fail.
        if !self.rounds.is_empty() {
            let _ = write!(
                text,
                "\n{:>5} {:>4} {:>9} {:>9} {:>9} {:>8} {:>8} {:>6}",
                "slots", "rows", "experts", "round ms", "device ms", "host us", "GB", "share"
            );
            text.push_str(&heads());
        }
        for round in &self.rounds {
            let Round { slots, rows, same, wall, device, bytes, classes, .. } = round;
            let _ = write!(
                text,
                "{slots:>5} {rows:>4} {:>9} {:>9.3} {:>9.3} {:>8.0} {:>8.2} {:>5.1}%",
                if *same { "same" } else { "different" },
                wall * 1e3,
                device * 1e3,
                (wall - device) * 1e6,
                bytes / 1e9,
                100.0 * self.share(round)
            );
            text.push_str(&times(classes));
        }
        if !self.pieces.is_empty() {
            let _ = write!(
                text,
                "\n{:>8} {:>5} {:>9} {:>9} {:>8} {:>6}",
                "depth", "rows", "piece ms", "tokens/s", "TFLOP/s", "share"
            );
            text.push_str(&heads());
        }
        for Piece { depth, rows, wall, operations, classes, .. } in &self.pieces {
            let rate = operations / wall;
            let share = self.matmul.map_or("-".into(), |all| format!("{:.1}%", 100.0 * rate / all));
            let _ = write!(
                text,
                "{depth:>8} {rows:>5} {:>9.2} {:>9.0} {:>8.0} {share:>6}",
                wall * 1e3,
                *rows as f64 / wall,
                rate / 1e12
            );
            text.push_str(&times(classes));
        }
        text.push_str(&self.whole_text());
        let rounds = self
            .rounds
            .iter()
            .map(|round| (format!("{} slots x {} rows", round.slots, round.rows), &round.kernels));
        let pieces =
            self.pieces.iter().map(|piece| (format!("depth {}", piece.depth), &piece.kernels));
        for (name, kernels) in rounds.chain(pieces).filter(|(_, kernels)| !kernels.is_empty()) {
            let _ = writeln!(text, "\n{name}, by kernel: launches and ms, each kernel alone");
            for (kernel, launches, seconds) in kernels.iter().take(24) {
                let _ = writeln!(text, "  {kernel:<22} {launches:>5} {:>9.3}", seconds * 1e3);
            }
        }
        text
    }

    /// The release's passes, as lines.
    fn whole_text(&self) -> String {
        let rounds = self.rounds.iter().filter_map(|round| {
            let (whole, kind) = (round.whole?, if round.same { "same" } else { "different" });
            let (ms, gb) = (whole.wall * 1e3, whole.work / 1e9);
            let share = 100.0 * whole.work / whole.wall / self.read;
            let (slots, rows) = (round.slots, round.rows);
            Some(format!("{slots:>5} {rows:>4} {kind:>9} {ms:>9.3} {gb:>8.2} {share:>5.1}%\n"))
        });
        let pieces = self.pieces.iter().filter_map(|piece| {
            let whole = piece.whole?;
            let (ms, rate) = (whole.wall * 1e3, whole.work / whole.wall);
            let share = self.matmul.map_or("-".into(), |all| format!("{:.1}%", 100.0 * rate / all));
            let (depth, rows) = (piece.depth, piece.rows);
            Some(format!("{depth:>8} {rows:>5} {ms:>9.2} {:>8.0} {share:>6}\n", rate / 1e12))
        });
        let (rounds, pieces): (String, String) = (rounds.collect(), pieces.collect());
        let mut text = String::new();
        let title =
            format!("\nthe release's {LAYERS} layers, each as one of its kind was measured\n");
        if !rounds.is_empty() {
            let heads = ["slots", "rows", "experts", "round ms", "GB", "share"];
            let [a, b, c, d, e, f] = heads;
            text += &format!("{title}{a:>5} {b:>4} {c:>9} {d:>9} {e:>8} {f:>6}\n{rounds}");
        }
        if !pieces.is_empty() {
            let heads = ["depth", "rows", "piece ms", "TFLOP/s", "share"];
            let [a, b, c, d, e] = heads;
            text += &format!("{title}{a:>8} {b:>5} {c:>9} {d:>8} {e:>6}\n{pieces}");
        }
        text
    }

    /// The part of the read rate at which a round reads its weights, the host's time included.
    fn share(&self, round: &Round) -> f64 {
        round.bytes / round.wall / self.read
    }

    /// As a document.
    pub fn to_json(&self) -> Value {
        let classes = |classes: &Classes| -> Value {
            let parts = classes.iter().map(|(class, launches, seconds)| {
                (class.name().to_owned(), json!({ "launches": launches, "seconds": seconds }))
            });
            Value::Object(parts.collect())
        };
        let kernels = |kernels: &Kernels| -> Value {
            let parts = kernels.iter().map(|(name, launches, seconds)| {
                ((*name).to_owned(), json!({ "launches": launches, "seconds": seconds }))
            });
            Value::Object(parts.collect())
        };
        let release = |whole: &Option<Whole>| match whole {
            Some(whole) => json!({ "seconds": whole.wall, "work": whole.work }),
            None => Value::Null,
        };
        let rounds: Vec<Value> = self
            .rounds
            .iter()
            .map(|round| {
                json!({
                    "release": release(&round.whole),
                    "slots": round.slots, "rows": round.rows, "same_experts": round.same,
                    "seconds": round.wall, "device_seconds": round.device,
                    "launches": round.launches, "weight_bytes": round.bytes,
                    "read_share": self.share(round), "classes": classes(&round.classes),
                    "kernels": kernels(&round.kernels),
                })
            })
            .collect();
        let pieces: Vec<Value> = self
            .pieces
            .iter()
            .map(|piece| {
                json!({
                    "release": release(&piece.whole),
                    "depth": piece.depth, "rows": piece.rows, "seconds": piece.wall,
                    "launches": piece.launches, "operations": piece.operations,
                    "matmul_share": self.matmul.map(|all| piece.operations / piece.wall / all),
                    "classes": classes(&piece.classes), "kernels": kernels(&piece.kernels),
                })
            })
            .collect();
        json!({
            "device": self.device, "read_bytes_per_second": self.read,
            "matmul_operations_per_second": self.matmul, "layers": self.layers,
            "experts": self.experts, "experts_on_host": self.on_host, "rounds": rounds, "pieces": pieces,
        })
    }
}

fn heads() -> String {
    let names = Class::ALL.map(|class| format!("  {:>9}", class.name()));
    names.concat() + "  launches\n"
}

/// Milliseconds of each class, then the launches of all.
fn times(classes: &Classes) -> String {
    let parts = classes.iter().map(|(_, _, seconds)| format!("  {:>9.3}", seconds * 1e3));
    let launches: usize = classes.iter().map(|(_, launches, _)| launches).sum();
    parts.collect::<String>() + &format!("  {launches:>8}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_rates_measured_beside() {
        let mut report = Report::new("cuda".into(), 4e12, Some(8e14));
        let classes = vec![(Class::Dense, 3, 0.001), (Class::Glue, 2, 0.0005)];
        report.rounds.push(Round {
            slots: 1,
            rows: 6,
            same: false,
            wall: 0.002,
            device: 0.0019,
            launches: 5,
            classes: classes.clone(),
            kernels: vec![("rmsnorm", 2, 0.0005)],
            bytes: 6e9,
            whole: Some(Whole { wall: 0.008, work: 8e9 }),
        });
        report.pieces.push(Piece {
            depth: 32768,
            rows: 4096,
            wall: 0.1,
            launches: 5,
            classes,
            kernels: Vec::new(),
            operations: 4e13,
            whole: Some(Whole { wall: 0.5, work: 1e14 }),
        });
        let json = report.to_json();
        assert_eq!(json["rounds"][0]["read_share"], 0.75);
        assert_eq!(json["pieces"][0]["matmul_share"], 0.5);
        let text = report.text();
        for part in [
            "75.0%",
            "50.0%",
            "40960",
            "     100 ",
            "1 slots x 6 rows, by kernel",
            "    8.00  25.0%",
            "   500.00      200  25.0%",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        report.matmul = None;
        assert!(report.to_json()["pieces"][0]["matmul_share"].is_null());
        assert!(!report.text().contains("50.0%"));
    }
}
