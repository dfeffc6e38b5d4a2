//! Boost: Boost.Context for coroutines, Boost.Fiber for everything else, where installed.

use carefree_benches::peer::Peer;

pub(crate) const NAME: &str = "Boost";

#[cfg(not(has_boost))]
pub(crate) fn peer() -> Option<Peer> {
    None
}

#[cfg(has_boost)]
pub(crate) fn peer() -> Option<Peer> {
    use carefree_benches::boost;
    Some(Peer {
        name: NAME,
        fewer: 1,
        coroutine: Some(boost::context_rounds),
        crowd: Some(boost::crowd),
        sleepers: Some(boost::sleepers),
        parked: Some(|units, look| match boost::parked(units, look) {
            0 => Err(std::io::Error::other("Boost.Fiber ran out of stacks")),
            waited => Ok(waited),
        }),
        readers: None,
        channel: None,
        crossbeam: None,
        elsewhere: None,
    })
}
