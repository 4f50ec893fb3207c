//! One kernel at one shape: its buffers, its launch, and what must come out.

use std::collections::HashMap;

use finback_numerics::bf16;

/// What a gate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Outputs match a float64 reference within a bound from the operation count, or exact bytes.
    Reference,
    /// A row's bits are the same at every row count, beside any neighbour, in any order of lanes.
    Rows,
    /// Every output is written and nothing else.
    Writes,
    /// A NaN or an infinity goes where the kernel's rule says, in its own row only.
    Broken,
}

impl Gate {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Reference, Self::Rows, Self::Writes, Self::Broken];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Rows => "rows",
            Self::Writes => "writes",
            Self::Broken => "nan",
        }
    }
}

/// What a row's part of an output must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Want {
    /// These bytes.
    Bytes(Vec<u8>),
    /// These values, each within its bound.
    Near(Vec<(f64, f64)>),
}

/// Byte offset of launch row `i`, from the numbers of the rows in the launch.
pub type Place = Box<dyn Fn(&[usize], usize) -> usize>;
/// Bytes made for the rows in a launch.
pub type Make = Box<dyn Fn(&[usize]) -> Vec<u8>>;

/// What a buffer is to a launch. A launch takes some of the case's rows, by number.
pub enum Role {
    /// The same for every launch.
    Shared(Vec<u8>),
    /// So many bytes a row.
    Row(Vec<u8>, usize),
    /// Made for the rows in the launch.
    Made(Make),
    /// Written.
    Out(Out),
}

/// A written buffer.
pub struct Out {
    /// Bytes that a row writes.
    pub bytes: usize,
    /// Bytes of the buffer with so many rows in the launch.
    pub size: Box<dyn Fn(usize) -> usize>,
    /// Where a row writes.
    pub place: Place,
    /// What the rows hold before, where a kernel works in place.
    pub before: Option<Vec<u8>>,
}

/// The addresses of a launch's buffers.
pub struct Addresses(pub(super) HashMap<&'static str, u64>);

impl Addresses {
    /// A buffer's address. Every name is one of the case's.
    pub fn of(&self, name: &str) -> u64 {
        debug_assert!(self.0.contains_key(name), "no buffer {name}");
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// Arguments and grid for the rows in a launch.
pub type Plan = Box<dyn Fn(&Addresses, &[usize]) -> (Vec<u8>, [u32; 2])>;

/// Where a broken value may go.
#[derive(Debug, Clone, Copy)]
pub enum Rule {
    /// Every value of the row's part of this output is NaN.
    Nan(&'static str),
    /// Every value of it is NaN or infinite.
    NotFinite(&'static str),
    /// This value of it is NaN; the others keep their bits.
    NanAt(&'static str, usize),
    /// The values from here on, so many, are NaN; the others keep their bits.
    NanIn(&'static str, usize, usize),
    /// This holds of the row's part of it, as it was and as it is.
    Check(&'static str, fn(&[u8], &[u8]) -> bool),
    /// Its bits are what they were.
    Same(&'static str),
}

/// A value planted in a row's input.
#[derive(Debug, Clone, Copy)]
pub struct Strike {
    /// The input, a row buffer or one written in place.
    pub buffer: &'static str,
    /// Which value of the row.
    pub at: usize,
    /// The value.
    pub value: f32,
    /// What follows.
    pub rule: Rule,
}

/// A kernel at a shape.
pub struct Case {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The shape in words.
    pub shape: String,
    /// Number of rows there are.
    pub rows: usize,
    pub(super) buffers: Vec<(&'static str, Role)>,
    /// The buffers whose values are bf16; those of others are f32.
    pub(super) halves: Vec<&'static str>,
    pub(super) plan: Plan,
    pub(super) want: Box<dyn Fn(usize) -> Vec<Want>>,
    pub(super) strikes: Vec<Strike>,
    /// Other kernels that must leave the same bits, and how each is launched.
    pub(super) twins: Vec<(&'static str, Plan)>,
    /// Planted faults by name, each with the gate that it must turn red.
    pub faults: Vec<(&'static str, Gate)>,
}

impl Case {
    /// A case without buffers.
    pub fn new(kernel: &'static str, shape: impl Into<String>, rows: usize) -> Self {
        Self {
            kernel,
            shape: shape.into(),
            rows,
            buffers: Vec::new(),
            halves: Vec::new(),
            plan: Box::new(|_, _| (Vec::new(), [0, 0])),
            want: Box::new(|_| Vec::new()),
            strikes: Vec::new(),
            twins: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// An input that every launch sees whole.
    pub fn shared<T: Plain>(mut self, name: &'static str, values: &[T]) -> Self {
        self.buffers.push((name, Role::Shared(bytes(values))));
        self
    }

    /// An input of as many values a row as `values` has for each row.
    pub fn row<T: Plain>(mut self, name: &'static str, values: &[T]) -> Self {
        let data = bytes(values);
        let each = data.len() / self.rows;
        self.buffers.push((name, Role::Row(data, each)));
        self
    }

    /// An input made for the rows in a launch.
    pub fn made(
        mut self,
        name: &'static str,
        make: impl Fn(&[usize]) -> Vec<u8> + 'static,
    ) -> Self {
        self.buffers.push((name, Role::Made(Box::new(make))));
        self
    }

    /// An output of so many bytes a row, rows one after another.
    pub fn out(self, name: &'static str, bytes: usize) -> Self {
        self.strided(name, bytes, bytes, 0)
    }

    /// An output of so many bytes a row, `stride` apart, from `first` on.
    pub fn strided(self, name: &'static str, bytes: usize, stride: usize, first: usize) -> Self {
        self.placed(name, bytes, move |rows| rows * stride, move |_, i| i * stride + first)
    }

    /// An output of so many bytes a row, each where `place` says.
    pub fn placed(
        mut self,
        name: &'static str,
        bytes: usize,
        size: impl Fn(usize) -> usize + 'static,
        place: impl Fn(&[usize], usize) -> usize + 'static,
    ) -> Self {
        let (size, place) = (Box::new(size), Box::new(place));
        self.buffers.push((name, Role::Out(Out { bytes, size, place, before: None })));
        self
    }

    /// A buffer that the kernel changes in place.
    pub fn in_place<T: Plain>(mut self, name: &'static str, values: &[T]) -> Self {
        let data = bytes(values);
        let each = data.len() / self.rows;
        let out = Out {
            bytes: each,
            size: Box::new(move |rows| rows * each),
            place: Box::new(move |_, i| i * each),
            before: Some(data),
        };
        self.buffers.push((name, Role::Out(out)));
        self
    }

    /// As [`Case::row`], of values that are kept as bf16 where they are rounded, as f32 else.
    pub fn row_kept(mut self, name: &'static str, values: &[f32], round: bool) -> Self {
        if !round {
            return self.row(name, values);
        }
        self.halves.push(name);
        self.row(name, &encoded(values))
    }

    /// As [`Case::out`], of so many such values a row.
    pub fn out_kept(mut self, name: &'static str, count: usize, round: bool) -> Self {
        if !round {
            return self.out(name, 4 * count);
        }
        self.halves.push(name);
        self.out(name, 2 * count)
    }

    /// As [`Case::in_place`], of such values.
    pub fn in_place_kept(mut self, name: &'static str, values: &[f32], round: bool) -> Self {
        if !round {
            return self.in_place(name, values);
        }
        self.halves.push(name);
        self.in_place(name, &encoded(values))
    }

    /// Bytes of a buffer's value.
    pub(super) fn bytes_of(&self, name: &str) -> usize {
        if self.halves.contains(&name) { 2 } else { 4 }
    }

    /// The values of a buffer's bytes.
    pub(super) fn values(&self, name: &str, bytes: &[u8]) -> Vec<f32> {
        if self.halves.contains(&name) { halves(bytes) } else { floats(bytes) }
    }

    /// How it is launched.
    pub fn launch(
        mut self,
        plan: impl Fn(&Addresses, &[usize]) -> (Vec<u8>, [u32; 2]) + 'static,
    ) -> Self {
        self.plan = Box::new(plan);
        self
    }

    /// Another kernel that must leave the same bits of every row.
    pub fn twin(
        mut self,
        kernel: &'static str,
        plan: impl Fn(&Addresses, &[usize]) -> (Vec<u8>, [u32; 2]) + 'static,
    ) -> Self {
        self.twins.push((kernel, Box::new(plan)));
        self
    }

    /// What a row must write, one entry an output in their order.
    pub fn want(mut self, want: impl Fn(usize) -> Vec<Want> + 'static) -> Self {
        self.want = Box::new(want);
        self
    }

    /// What a broken value in a row's input must do.
    pub fn strike(mut self, buffer: &'static str, at: usize, value: f32, rule: Rule) -> Self {
        self.strikes.push(Strike { buffer, at, value, rule });
        self
    }

    /// A planted fault and the gate it must turn red.
    pub fn fault(mut self, name: &'static str, gate: Gate) -> Self {
        self.faults.push((name, gate));
        self
    }

    /// The outputs in order.
    pub(super) fn outs(&self) -> impl Iterator<Item = (&'static str, &Out)> {
        self.buffers.iter().filter_map(|(name, role)| match role {
            Role::Out(out) => Some((*name, out)),
            _ => None,
        })
    }
}

/// A value that goes to a device as its bytes.
pub trait Plain: Copy {
    /// Appends its bytes.
    fn put(self, to: &mut Vec<u8>);
}

macro_rules! plain {
    ($($kind:ty),*) => {$(
        impl Plain for $kind {
            fn put(self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}
plain!(u8, u16, u32, u64, f32);

/// The bytes of values.
pub fn bytes<T: Plain>(values: &[T]) -> Vec<u8> {
    let mut to = Vec::with_capacity(size_of_val(values));
    values.iter().for_each(|value| value.put(&mut to));
    to
}

/// The f32 values of bytes.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_ne_bytes(*b)).collect()
}

/// Values as bf16.
pub fn encoded(values: &[f32]) -> Vec<u16> {
    values.iter().map(|&x| bf16::encode(x)).collect()
}

/// The bf16 values of bytes.
pub fn halves(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.as_chunks::<2>().0.iter();
    words.map(|b| f32::from_bits(u32::from(u16::from_ne_bytes(*b)) << 16)).collect()
}
