use carefree_runtime::*;
use std::time::Instant;
fn main() {
    let n = 10000;
    let mut v = vec![];
    for _ in 0..200 {
        v.push(run(move || {
            let t = Instant::now();
            for _ in 0..n {
                spawn(|| {
                    yield_now();
                    yield_now();
                });
            }
            let c = t.elapsed();
            while metrics().alive > 1 {
                yield_now();
            }
            (t.elapsed().as_nanos() as u64 / n, c.as_nanos() as u64 / n)
        }));
    }
    v.sort();
    println!("min {:?} median {:?}", v[0], v[100]);
}
