//! [`kernel!`]: a plain function that runs a generic body on an instruction set.

/// Declares `fn name(isa, args)` that runs `body::<S>(s, args)` on the instruction set; the body
/// must be `#[inline(always)]`.
macro_rules! kernel {
    ($($vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $output:ty)? = $body:path;)*) => {$(
        #[allow(clippy::too_many_arguments, reason = "a kernel's plain arguments")]
        $vis fn $name(isa: $crate::simd::Isa, $($arg: $type),*) $(-> $output)? {
            struct Call<A>(A);
            impl $crate::simd::Kernel for Call<($($type,)*)> {
                type Output = kernel!(@output $($output)?);
                #[inline(always)]
                fn run<S: $crate::simd::Simd>(self, s: S) -> Self::Output {
                    let Call(($($arg,)*)) = self;
                    $body(s, $($arg),*)
                }
            }
            isa.run(Call(($($arg,)*)))
        }
    )*};
    (@output) => { () };
    (@output $output:ty) => { $output };
}

pub(crate) use kernel;
