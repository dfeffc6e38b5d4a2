//! All of this again, in every mode that the machine at hand would not choose.

use carefree_testing::again;

fn again_with(environment: &[(&str, &str)]) {
    again::in_mode(environment, &[], "records_through_one_file");
}

#[test(seconds = 600)]
fn over_epoll() {
    again_with(&[("CAREFREE_REACTOR", "epoll")]);
}

#[test(seconds = 600)]
fn on_one_carrier() {
    again_with(&[("CAREFREE_CARRIERS", "1")]);
}
