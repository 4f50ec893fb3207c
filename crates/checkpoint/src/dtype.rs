//! Element types of the safetensors format.

use std::fmt;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:literal;)*) => {
        /// How a tensor's elements are stored.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Dtype { $($(#[$doc])* $variant,)* }

        impl Dtype {
            /// Every known type.
            pub const ALL: &[Dtype] = &[$(Dtype::$variant,)*];

            /// The format's own name of the type, as a header spells it.
            pub fn name(self) -> &'static str {
                match self { $(Dtype::$variant => $name,)* }
            }

            /// Bits of one element.
            pub fn bits(self) -> usize {
                match self { $(Dtype::$variant => $bits,)* }
            }
        }
    };
}

dtypes! {
    /// 8-bit float, 4 exponent and 3 mantissa bits, no infinities.
    F8E4M3 = "F8_E4M3", 8;
    /// Power-of-two scale: 2^(byte - 127), 255 is NaN.
    F8E8M0 = "F8_E8M0", 8;
    /// Signed byte; two FP4 codes where the tensor is a packed weight.
    I8 = "I8", 8;
    /// Unsigned byte; two FP4 codes where the tensor is a packed weight.
    U8 = "U8", 8;
    /// The upper half of an F32.
    Bf16 = "BF16", 16;
    /// IEEE half.
    F16 = "F16", 16;
    /// IEEE single.
    F32 = "F32", 32;
    /// IEEE double.
    F64 = "F64", 64;
    /// 32-bit signed integer.
    I32 = "I32", 32;
    /// 64-bit signed integer.
    I64 = "I64", 64;
    /// One byte of 0 or 1. Listed only: no tensor of a model uses it.
    Bool = "BOOL", 8;
    /// Two 4-bit floats a byte. Listed only.
    F4 = "F4", 4;
    /// 6-bit float. Listed only.
    F6E2M3 = "F6_E2M3", 6;
    /// 6-bit float. Listed only.
    F6E3M2 = "F6_E3M2", 6;
    /// 8-bit float with 5 exponent bits. Listed only.
    F8E5M2 = "F8_E5M2", 8;
    /// 16-bit signed integer. Listed only.
    I16 = "I16", 16;
    /// 16-bit unsigned integer. Listed only.
    U16 = "U16", 16;
    /// 32-bit unsigned integer. Listed only.
    U32 = "U32", 32;
    /// 64-bit unsigned integer. Listed only.
    U64 = "U64", 64;
    /// Two F32. Listed only.
    C64 = "C64", 64;
}

impl Dtype {
    /// The type a header calls `name`.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.iter().copied().find(|d| d.name() == name)
    }

    /// Bytes of a tensor of this type and `shape`; `None` if the count overflows or the elements
    /// don't fill whole bytes.
    pub fn bytes(self, shape: &[usize]) -> Option<usize> {
        let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        let bits = elements.checked_mul(self.bits())?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for &d in Dtype::ALL {
            assert_eq!(Dtype::from_name(d.name()), Some(d));
        }
        assert_eq!(Dtype::from_name("f32"), None);
    }

    #[test]
    fn bytes_follow_the_shape() {
        assert_eq!(Dtype::F32.bytes(&[2, 3]), Some(24));
        assert_eq!(Dtype::F32.bytes(&[]), Some(4));
        assert_eq!(Dtype::Bf16.bytes(&[0, 7]), Some(0));
        assert_eq!(Dtype::F4.bytes(&[3]), None);
        assert_eq!(Dtype::F32.bytes(&[usize::MAX, 2]), None);
    }
}
