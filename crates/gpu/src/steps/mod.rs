//! The steps of [`finback_ops::Ops`], by part of the model.

mod attention;
mod experts;
mod heads;
mod select;
mod streams;

pub(crate) use heads::NO_CHOICE;
