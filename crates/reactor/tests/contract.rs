//! What every backend promises, checked by the same code over each of them.

mod contract {
    mod cancel;
    mod file;
    mod identity;
    mod kit;
    mod sharing;
    mod socket;
    mod stream;
    mod stress;
    mod virtual_time;
    mod wait;
}
