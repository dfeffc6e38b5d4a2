//! What every backend promises, checked by the same code over each of them.

mod contract {
    mod cancel;
    mod file;
    mod kit;
    mod socket;
    mod stream;
    mod wait;
}
