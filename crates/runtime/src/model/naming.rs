//! Names in headers: there are none.

use crate::fiber::header::Header;

impl Header {
    pub(crate) fn name(&self) -> Option<&str> {
        None
    }

    pub(crate) fn standard(&self) -> Option<&std::thread::Thread> {
        None
    }
}
