//! The watchdog, in one program: `modes` runs all of it again in forced modes.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod modes;
mod watching;

/// Before `main`, as in the `carefree` crate.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = {
    extern "C" fn register() {
        carefree_insight::register();
    }
    register
};
