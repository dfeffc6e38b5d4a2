//! The whole program again, over the other reactor.

use carefree_testing::again;

#[test(seconds = 600)]
fn over_epoll() {
    let one = "a_fiber_loads_a_library_beside_others";
    again::in_mode(&[("CAREFREE_REACTOR", "epoll")], &[], one);
}
