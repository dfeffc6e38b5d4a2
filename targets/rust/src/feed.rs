//! The feed workload of docs/targets.md: people who need so many bites each, fed by tasks or
//! coroutines on one thread, over a few threads, or by processes with some in each.

use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::runtime;

use crate::{Account, Orders, Round, Usage};

/// What people have eaten, and switches made meanwhile.
#[derive(Clone, Copy, Default)]
struct Fed {
    eaten: u64,
    made: u64,
}

impl Fed {
    fn and(self, other: Fed) -> Fed {
        Fed { eaten: self.eaten + other.eaten, made: self.made + other.made }
    }
}

#[derive(Clone, Copy)]
struct Meal {
    people: u64,
    nutrients: u64,
    yields: bool,
}

struct Person {
    need: u64,
    iron: u64,
    calcium: u64,
    fiber: u64,
}

impl Person {
    fn new(need: u64) -> Person {
        Person { need, iron: 0, calcium: 0, fiber: 0 }
    }

    fn is_satisfied(&self) -> bool {
        [self.iron, self.calcium, self.fiber] == [self.need; 3]
    }

    fn bite(&mut self) {
        self.iron += 1;
        self.calcium += 1;
        self.fiber += 1;
        // Without this, the compiler makes one addition of a whole meal.
        black_box(self);
    }

    fn eaten(&self) -> u64 {
        self.iron + self.calcium + self.fiber
    }
}

/// The person that ate last: a yield after which it is still the same one made no switch.
static LAST: AtomicU64 = AtomicU64::new(0);

async fn fed_by_task(number: u64, meal: Meal) -> Fed {
    let (mut person, mut made) = (Person::new(meal.nutrients), 0);
    while !person.is_satisfied() {
        person.bite();
        if meal.yields {
            LAST.store(number, Ordering::Relaxed);
            tokio::task::yield_now().await;
            made += u64::from(LAST.load(Ordering::Relaxed) != number);
        }
    }
    Fed { eaten: person.eaten(), made }
}

fn fed_by_may(number: u64, meal: Meal) -> Fed {
    let (mut person, mut made) = (Person::new(meal.nutrients), 0);
    while !person.is_satisfied() {
        person.bite();
        if meal.yields {
            LAST.store(number, Ordering::Relaxed);
            may::coroutine::yield_now();
            made += u64::from(LAST.load(Ordering::Relaxed) != number);
        }
    }
    Fed { eaten: person.eaten(), made }
}

fn by_tasks(runtime: &runtime::Runtime, meal: Meal) -> Fed {
    runtime.block_on(async {
        let spawn = |number| tokio::spawn(fed_by_task(number, meal));
        let tasks: Vec<_> = (1..=meal.people).map(spawn).collect();
        let mut all = Fed::default();
        for task in tasks {
            all = all.and(task.await.expect("no unit panics"));
        }
        all
    })
}

fn by_may(meal: Meal) -> Fed {
    let spawn = |number| may::go!(move || fed_by_may(number, meal));
    let coroutines: Vec<_> = (1..=meal.people).map(spawn).collect();
    let fed = coroutines.into_iter().map(|one| one.join().expect("no unit panics"));
    fed.fold(Fed::default(), Fed::and)
}

/// This program, run again for a share of the people each.
fn by_processes(unit: &str, meal: Meal, workers: u64) -> Result<Fed, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let workers = workers.clamp(1, meal.people.max(1));
    let start = |at: u64| {
        let share = meal.people / workers + u64::from(at < meal.people % workers);
        Command::new(&own)
            .args(["workload=feed".to_owned(), format!("unit={unit}"), format!("units={share}")])
            .args([format!("nutrients={}", meal.nutrients), format!("yields={}", u8::from(meal.yields))])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a process could not be started: {error}"))
    };
    let children: Vec<Child> = (0..workers).map(start).collect::<Result<_, _>>()?;
    let mut all = Fed::default();
    for child in children {
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        // It is this program's own line, whose form is known.
        let number = |key: &str| {
            let (_, rest) = text.split_once(&format!(r#""{key}":"#))?;
            rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
        };
        let (eaten, made) = number("eaten")
            .zip(number("switches_made"))
            .ok_or_else(|| format!("a process did not say what it did, but: {}", text.trim()))?;
        all = all.and(Fed { eaten, made });
    }
    Ok(all)
}

pub fn take(orders: &Orders) -> Result<Account, String> {
    let meal = Meal {
        people: orders.number("units", 1)?,
        nutrients: orders.number("nutrients", 1)?,
        yields: orders.is_set("yields")?,
    };
    let workers = orders.number("workers", 2)?.max(1);
    let (unit, how) = (orders.word("unit"), orders.word("how"));
    // Before the clock, as the other runtimes start theirs with the process.
    let runtime = match how {
        "hybrid" => runtime::Builder::new_multi_thread().worker_threads(workers as usize).build(),
        _ => runtime::Builder::new_current_thread().build(),
    };
    let runtime = runtime.map_err(|error| error.to_string())?;
    let feast = || match (how, unit) {
        ("processes", _) => by_processes(unit, meal, workers),
        (_, "may") => Ok(by_may(meal)),
        _ => Ok(by_tasks(&runtime, meal)),
    };
    let mut account = Account::default();
    for _ in 0..orders.number("warmup", 0)? {
        let start = Instant::now();
        feast()?;
        let (rounds, ns) = account.warmup.unwrap_or_default();
        account.warmup = Some((rounds + 1, ns + start.elapsed().as_nanos()));
    }
    let before = Usage::now();
    let mut eaten = 0;
    for _ in 0..orders.number("rounds", 1)? {
        let start = Instant::now();
        let fed = feast()?;
        let run_ns = start.elapsed().as_nanos();
        account.rounds.push(Round { create_ns: 0, run_ns, made: fed.made });
        account.asked += if meal.yields { meal.people * meal.nutrients } else { 0 };
        eaten += fed.eaten;
    }
    account.usage = Usage::since(before);
    account.more.insert("eaten", eaten);
    Ok(account)
}
