//! Hyper-connections (section 4).

use super::linear::Linear;
use super::{Reference, sigmoid, softmax};

/// The weights of one site.
#[derive(Debug)]
pub(super) struct Hyper {
    /// `[(2 + hc) * hc][hc * hidden]`.
    pub(super) mix: Linear,
    /// `[(2 + hc) * hc]`: pre, post, comb row-major.
    pub(super) base: Vec<f64>,
    /// Of pre, post and comb.
    pub(super) scale: Vec<f64>,
}

/// How a site mixes the streams of one row.
#[derive(Debug)]
pub(super) struct Mix {
    /// `[hc]`: collapses the streams for the next sublayer.
    pub(super) pre: Vec<f64>,
    /// `[hc]`: how much of the sublayer's output each stream takes.
    post: Vec<f64>,
    /// `[hc][hc]`: from stream, to stream.
    comb: Vec<Vec<f64>>,
}

impl Reference {
    pub(super) fn mix(&self, site: &Hyper, streams: &[Vec<f64>]) -> Mix {
        let (hc, eps) = (self.config.hc_mult, self.config.hc_eps);
        let flat = streams.concat();
        let norm = self.root_mean_square(&flat);
        let m: Vec<f64> = site.mix.exact(&flat).iter().map(|v| v / norm).collect();
        let value = |i: usize, part: usize| m[i] * site.scale[part] + site.base[i];
        let pre = (0..hc).map(|i| sigmoid(value(i, 0)) + eps).collect();
        let post = (hc..2 * hc).map(|i| 2.0 * sigmoid(value(i, 1))).collect();
        let mut comb: Vec<Vec<f64>> = (0..hc)
            .map(|from| {
                let first = (2 + from) * hc;
                let row: Vec<f64> = (first..first + hc).map(|i| value(i, 2)).collect();
                softmax(&row).iter().map(|p| p + eps).collect()
            })
            .collect();
        divide_columns(&mut comb, eps);
        for _ in 1..self.config.hc_sinkhorn_iters {
            for row in &mut comb {
                let sum = row.iter().sum::<f64>() + eps;
                row.iter_mut().for_each(|v| *v /= sum);
            }
            divide_columns(&mut comb, eps);
        }
        Mix { pre, post, comb }
    }

    /// `sum_i pre_i streams_i`.
    pub(super) fn collapse(&self, streams: &[Vec<f64>], pre: &[f64]) -> Vec<f64> {
        let channel = |d: usize| streams.iter().zip(pre).map(|(stream, p)| p * stream[d]).sum();
        self.store((0..streams[0].len()).map(channel).collect())
    }

    /// `out_j = post_j y + sum_i comb[i][j] streams_i`.
    pub(super) fn expand(&self, y: &[f64], streams: &[Vec<f64>], mix: &Mix) -> Vec<Vec<f64>> {
        let stream = |to: usize| {
            let kept = |d: usize| -> f64 {
                streams.iter().zip(&mix.comb).map(|(stream, row)| row[to] * stream[d]).sum()
            };
            self.store((0..y.len()).map(|d| mix.post[to] * y[d] + kept(d)).collect())
        };
        (0..streams.len()).map(stream).collect()
    }
}

fn divide_columns(comb: &mut [Vec<f64>], eps: f64) {
    for column in 0..comb.len() {
        let sum = comb.iter().map(|row| row[column]).sum::<f64>() + eps;
        comb.iter_mut().for_each(|row| row[column] /= sum);
    }
}
