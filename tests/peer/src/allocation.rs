//! Counts the bytes that are allocated, for the comparison of memory; as requested, without the allocator's own share.
//!
//! Counts only between [`count`] and the end of its closure's caller, so that the timed comparisons pay one load per call.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

static COUNTING: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicI64 = AtomicI64::new(0);

/// The system's allocator with a counter.
pub(crate) struct Counting;

fn add(bytes: i64) {
    if COUNTING.load(Relaxed) {
        BYTES.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller's promise is the one that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What `make` returns, and how many bytes are allocated after it that were not before it, by any thread.
pub(crate) fn count<T>(make: impl FnOnce() -> T) -> (T, i64) {
    BYTES.store(0, Relaxed);
    COUNTING.store(true, Relaxed);
    let made = make();
    let bytes = BYTES.load(Relaxed);
    COUNTING.store(false, Relaxed);
    (made, bytes)
}
