//! Where a fiber is put that was made ready: in the models, all the same.

#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Next,
    Last,
}
