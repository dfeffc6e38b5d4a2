//! What an offloaded call costs, beside what it saves others from.
//!
//! `cargo run --release -p carefree-runtime --example offload_costs`

use std::time::Instant;

use carefree_runtime::{Runtime, offload, scope, yield_now};

fn main() -> std::io::Result<()> {
    const CALLS: u32 = 20_000;
    const FIBERS: u32 = 64;
    let runtime = Runtime::builder().build()?;
    let carriers = runtime.run(carefree_runtime::available_parallelism)?;
    println!("{carriers} carriers");
    runtime.run(|| {
        let measure = |what: &str, calls: u32, f: &mut dyn FnMut()| {
            f();
            let begun = Instant::now();
            f();
            println!(
                "{what:<50} {:>8.2} us a call",
                begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
            );
        };
        measure("one fiber: a call that is offloaded", CALLS, &mut || {
            for _ in 0..CALLS {
                offload(|| ());
            }
        });
        measure("64 fibers: calls that are offloaded", CALLS, &mut || {
            scope(|scope| {
                for _ in 0..FIBERS {
                    scope.spawn(|| {
                        for _ in 0..CALLS / FIBERS {
                            offload(|| ());
                        }
                    });
                }
            });
        });
        measure("for comparison: a yield between two fibers", CALLS, &mut || {
            scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..CALLS / 2 {
                            yield_now();
                        }
                    });
                }
            });
        });
    });
    Ok(())
}
