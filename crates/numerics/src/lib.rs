//! Number formats, elementary functions and summation orders: the scalar code that defines every bit.
//!
//! Everything here is plain IEEE f32 arithmetic with every fused multiply-add written out, so any
//! instruction set gives the same bits. Functions that vector code needs as well are generic over
//! [`lanes::Lanes`], which `f32` and the vector types of a backend both implement: one formula,
//! the same bits in each lane.

pub mod bf16;
pub mod fp4;
pub mod fp8;
pub mod lanes;
pub mod math;
pub mod order;
pub mod quant;
pub mod rng;
pub mod rows;
pub mod sample;
