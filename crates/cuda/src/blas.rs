//! NVIDIA's matrix product, as a measure of what the device can do.
#![allow(unsafe_code)]

use std::ffi::c_void;

use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys::{self, cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t};
use cudarc::driver::sys::CUstream;

/// Whether the library is there.
pub fn is_there() -> bool {
    // SAFETY: opening NVIDIA's own library runs its start code only.
    unsafe { sys::is_culib_present() }
}

/// The library's state on a stream.
pub struct Blas(sys::cublasHandle_t);

impl Blas {
    /// On a stream of the current context. Call [`is_there`] first: without the library this panics.
    pub fn new(stream: CUstream) -> Result<Self, String> {
        let blas = Self(result::create_handle().map_err(said)?);
        // SAFETY: the caller's stream lives longer than this.
        unsafe { result::set_stream(blas.0, stream.cast()) }.map_err(said)?;
        Ok(blas)
    }

    /// Enqueues a BF16 product of two square matrices with `side` rows, summed in f32.
    pub fn square(&self, side: i32, [a, b, out]: [u64; 3]) -> Result<(), String> {
        let kind = sys::cudaDataType_t::CUDA_R_16BF;
        let (one, none) = (1.0f32, 0.0f32);
        // SAFETY: the three matrices are the caller's device memory.
        unsafe {
            result::gemm_ex(
                self.0,
                cublasOperation_t::CUBLAS_OP_T,
                cublasOperation_t::CUBLAS_OP_N,
                side,
                side,
                side,
                (&raw const one).cast(),
                a as *const c_void,
                kind,
                side,
                b as *const c_void,
                kind,
                side,
                (&raw const none).cast(),
                out as *mut c_void,
                kind,
                side,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .map_err(said)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle is not used again.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

fn said(error: CublasError) -> String {
    format!("cuBLAS: {:?}", error.0)
}
