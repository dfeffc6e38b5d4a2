//! Prints how fibers of this process see thread-local storage, and why.

fn main() {
    match carefree_context::tls::mode() {
        carefree_context::tls::Mode::Own(layout) => {
            println!(
                "own: {} bytes a fiber, {} of them in reserve",
                layout.size(),
                layout.reserve()
            );
        }
        carefree_context::tls::Mode::Shared(reason) => println!("shared: {reason}"),
    }
}
