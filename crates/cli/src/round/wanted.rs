//! What `finback bench round` is asked for, checked before anything starts.

use finback_model::WINDOW_ROWS;
use finback_model::synth::layer_kinds;

use crate::settings::bench::{
    DEPTH, DEPTHS, PROMPT_PIECES, ROUND_LAUNCHES, ROUND_LAYERS, ROUND_WIDTHS, ROUNDS,
};
use crate::settings::contract::DEVICE;
use crate::settings::{Setting, UsageError, Values};

/// Rows of a prompt's piece.
const PIECE: usize = 4096;
const SMALL_PIECE: usize = 64;
/// `--depth` and `--depths` of small widths, where nobody said: the host runs them, lane by lane.
const SMALL_DEPTH: usize = 128;
const SMALL_DEPTHS: [usize; 2] = [0, 128];

/// The settings of one run.
#[derive(Debug)]
pub struct Wanted {
    /// Whether widths are small.
    pub small: bool,
    /// Layers.
    pub layers: usize,
    /// Tokens in each slot before the rounds.
    pub depth: usize,
    /// Tokens before each piece; `None` where rounds are timed.
    pub depths: Option<Vec<usize>>,
    /// Rows of a piece.
    pub piece: usize,
    /// Timed rounds of each kind.
    pub rounds: usize,
}

impl Wanted {
    /// What the settings ask for.
    ///
    /// # Errors
    /// A setting that the others leave nothing to do, or a device that cannot run it.
    pub fn of(values: &Values) -> Result<Self, UsageError> {
        let small = values.get(&ROUND_WIDTHS) == "small";
        let (pieces, launches) = (values.get(&PROMPT_PIECES), values.get(&ROUND_LAUNCHES));
        if launches {
            alone(values, &PROMPT_PIECES, "--launches")?;
            alone(values, &ROUNDS, "--launches")?;
            let device = values.get(&DEVICE);
            if device != "cuda" && !values.is_default(&DEVICE) {
                return Err(UsageError(format!(
                    "--device: found \"{device}\" beside --launches, which lists those of an NVIDIA \
                     GPU; accepted: cuda"
                )));
            }
        } else if !small && values.get(&DEVICE) == "emu" {
            let text = "--device: found \"emu\", which checks kernels at small sizes; accepted with \
                        --widths release: cuda";
            return Err(UsageError(text.to_owned()));
        }
        let layers = values.get(&ROUND_LAYERS);
        if pieces {
            alone(values, &DEPTH, "--prompt")?;
            alone(values, &ROUNDS, "--prompt")?;
            // Nothing reads a row in the middle of a prompt above the last layer that makes rows for others.
            let runs = |layers| layer_kinds(layers).iter().any(|kind| kind.makes_rows);
            if !runs(layers) {
                let least = (layers..).find(|&layers| runs(layers)).unwrap_or(layers);
                return Err(UsageError(format!(
                    "--layers: found \"{layers}\" beside --prompt, whose pieces run none of so few; \
                     accepted: {least} or more"
                )));
            }
        } else if !values.is_default(&DEPTHS) {
            let text = "--depths: found without --prompt; accepted: beside it, or --depth";
            return Err(UsageError(text.to_owned()));
        }
        let depths = match small && values.is_default(&DEPTHS) {
            true => SMALL_DEPTHS.to_vec(),
            false => values.get(&DEPTHS).into_iter().map(|depth| depth as usize).collect(),
        };
        Ok(Self {
            small,
            layers,
            depth: if small && values.is_default(&DEPTH) {
                SMALL_DEPTH
            } else {
                values.get(&DEPTH)
            },
            depths: pieces.then_some(depths),
            piece: if small { SMALL_PIECE } else { PIECE },
            rounds: if launches { 1 } else { values.get(&ROUNDS) },
        })
    }

    /// Positions that a slot needs.
    pub fn positions(&self) -> usize {
        match &self.depths {
            Some(depths) => depths.iter().max().unwrap_or(&0) + 2 * self.piece,
            None => self.depth + 64 * WINDOW_ROWS * self.rounds,
        }
    }
}

/// Refuses a setting that has no use beside another.
fn alone<T>(values: &Values, setting: &Setting<T>, beside: &str) -> Result<(), UsageError> {
    if values.is_default(setting) {
        return Ok(());
    }
    let place = values.place(setting);
    Err(UsageError(format!("{place}: found beside {beside}; accepted: one of the two")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Command, chosen, command_line};

    fn wanted(flags: &[&str]) -> Wanted {
        let words = ["finback", "bench", "round"].iter().chain(flags);
        let matches = command_line().get_matches_from(words);
        let (command, flags) = chosen(&matches).unwrap();
        assert_eq!(command, Command::BenchRound);
        Wanted::of(&Values::resolve(command, flags, |_| None).unwrap()).unwrap()
    }

    #[test]
    fn small_widths_have_small_depths_where_nobody_said() {
        let small = ["--widths", "small"];
        let rounds = wanted(&small);
        assert_eq!((rounds.depth, rounds.piece, rounds.rounds), (128, 64, 20));
        assert_eq!(rounds.depths, None);
        assert_eq!(wanted(&[&small[..], &["--depth", "4096"]].concat()).depth, 4096);
        let pieces = wanted(&[&small[..], &["--prompt"]].concat());
        assert_eq!((pieces.depths.as_deref(), pieces.positions()), (Some(&[0, 128][..]), 256));
        let release = wanted(&["--device", "cuda", "--prompt"]);
        assert_eq!(release.depths.as_deref(), Some(&[0, 32768, 262_144][..]));
        assert_eq!(release.positions(), 262_144 + 2 * 4096);
        let listed = wanted(&["--launches"]);
        assert_eq!((listed.depth, listed.rounds), (4096, 1));
    }
}
