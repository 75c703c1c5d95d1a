//! The C library's own calls, behind the ones of ours that have their names.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up once.
pub(crate) struct Real(AtomicPtr<libc::c_void>, &'static str);

impl Real {
    /// `name` ends with a zero byte.
    pub(crate) const fn new(name: &'static str) -> Self {
        assert!(CStr::from_bytes_with_nul(name.as_bytes()).is_ok());
        Self(AtomicPtr::new(ptr::null_mut()), name)
    }

    /// Its address; null if the C library has none of this name.
    pub(crate) fn address(&self) -> *mut libc::c_void {
        let known = self.0.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: that the name ends with a zero byte was checked; the handle asks for the next library after this one.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.1.as_ptr().cast()) };
        self.0.store(found, Ordering::Release);
        found
    }
}

/// Calls the C library's function of this name and type; -1 and `ENOSYS` where there is none.
macro_rules! real {
    ($name:expr, fn($($argument:ident: $type:ty),*) -> $result:ty) => {{
        static REAL: $crate::real::Real = $crate::real::Real::new($name);
        let address = REAL.address();
        if address.is_null() {
            $crate::real::set_errno(libc::ENOSYS);
            return -1 as _;
        }
        // SAFETY: the C library's function of this name has this type; its caller answers for the arguments.
        unsafe {
            let function = std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn($($type),*) -> $result>(address);
            function($($argument),*)
        }
    }};
}
pub(crate) use real;

/// The number of the last error of this thread.
pub(crate) fn errno() -> i32 {
    // SAFETY: the C library's own, of this thread.
    unsafe { *libc::__errno_location() }
}

/// As [`errno`].
pub(crate) fn set_errno(number: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number }
}
