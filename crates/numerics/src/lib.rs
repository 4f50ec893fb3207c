//! Number formats, elementary functions and summation orders: the scalar code that defines every bit.
