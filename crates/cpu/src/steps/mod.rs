//! The steps of [`finback_ops::Ops`], by part of the model.

pub(crate) mod attention;
pub(crate) mod experts;
mod heads;
pub(crate) mod select;
mod streams;
