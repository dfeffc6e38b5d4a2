//! Our own program for `feed`.

use super::{How, Meal};
use crate::answer::{Account, Failure};
use crate::own::Words;

/// Takes a sample in this process.
pub(crate) fn take(words: Words<'_>) -> Result<Account, Failure> {
    let unit = words.unit()?;
    let meal = Meal {
        people: words.number("units", 1)?,
        nutrients: words.number("nutrients", 1)?,
        yields: words.flag("yields")?,
        how: words.get("how").map_or(Ok(How::Units), str::parse).map_err(Failure::new)?,
        workers: words.number("workers", 2)?,
    };
    let rounds = words.number("rounds", 1)?;
    let mut account = Account {
        units: meal.people,
        switches_asked: meal.switches_asked() * rounds,
        warmup: words.warm_up(|| Ok(super::serve(unit, &meal)?.times))?,
        ..Account::default()
    };
    let mut eaten = 0;
    for _ in 0..rounds {
        let fed = super::serve(unit, &meal)?;
        account.rounds.push(fed.times);
        account.switches_made += fed.switches_made;
        eaten += fed.eaten;
    }
    account.more.insert("eaten".into(), eaten.into());
    Ok(account)
}
