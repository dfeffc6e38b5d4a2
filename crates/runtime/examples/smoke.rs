use carefree_runtime::*;
use std::time::Instant;
fn best(what: &str, unit: f64, reps: usize, mut f: impl FnMut() -> f64) {
    let mut v: Vec<f64> = (0..reps).map(|_| f() / unit).collect();
    v.sort_by(f64::total_cmp);
    println!("{what:24} min {:8.1} q1 {:8.1} median {:8.1} ns", v[0], v[reps / 4], v[reps / 2]);
}
fn main() {
    for n in [100u32, 1000, 10000] {
        best(&format!("alloc {n}"), n as f64, 200000 / n as usize, || {
            run(move || {
                let t = Instant::now();
                let mut hs = Vec::with_capacity(n as usize);
                for _ in 0..n {
                    hs.push(spawn(|| {
                        yield_now();
                        yield_now();
                    }))
                }
                for h in hs {
                    h.join().unwrap();
                }
                t.elapsed().as_nanos() as f64
            })
        });
        best(&format!("detached {n}"), n as f64, 200000 / n as usize, || {
            run(move || {
                let t = Instant::now();
                for _ in 0..n {
                    spawn(|| {
                        yield_now();
                        yield_now();
                    });
                }
                let before = metrics().switches;
                let _ = before;
                while metrics().alive > 1 {
                    yield_now();
                }
                t.elapsed().as_nanos() as f64
            })
        });
    }
    for n in [2u32, 10, 100, 1000] {
        best(&format!("yield {n}"), 200_000.0, 20, || {
            run(move || {
                let t = Instant::now();
                let hs: Vec<_> = (0..n)
                    .map(|_| {
                        spawn(move || {
                            for _ in 0..200_000 / n {
                                yield_now()
                            }
                        })
                    })
                    .collect();
                for h in hs {
                    h.join().unwrap();
                }
                t.elapsed().as_nanos() as f64
            })
        });
    }
    best("throughput", 1.0, 50, || {
        run(|| {
            let t = Instant::now();
            let hs: Vec<_> = (0..1000)
                .map(|_| {
                    spawn(|| {
                        for _ in 0..100 {
                            yield_now()
                        }
                    })
                })
                .collect();
            for h in hs {
                h.join().unwrap();
            }
            t.elapsed().as_nanos() as f64
        })
    });
}
