//! Prints how fibers of this process see thread-local storage, and why.

use carefree_context::tls::{self, Mode};

fn main() {
    match tls::mode() {
        Mode::Own(layout) => println!("own: {layout}"),
        Mode::Shared(reason) => println!("shared: {reason}"),
        Mode::Threads(reason) => println!("threads: {reason}"),
    }
}
