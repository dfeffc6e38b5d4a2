//! Names: in the models nothing has one.

use crate::fiber::Header;

pub(crate) struct Names;

impl Header {
    pub(crate) fn set_name(&self, _name: Box<str>) {}

    pub(crate) fn name(&self) -> Option<&str> {
        None
    }

    pub(crate) fn standard(&self) -> Option<&std::thread::Thread> {
        None
    }
}
