//! Our types have the traits that std's have: looked at by the compiler.

use std::cell::{Cell, UnsafeCell};
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::marker::PhantomPinned;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::thread;

/// Whether a type has a trait.
macro_rules! has {
    ($type:ty, $($bound:tt)+) => {{
        #[allow(dead_code, reason = "where the bound holds, the other is used")]
        trait Otherwise {
            const HAS: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        #[allow(dead_code, reason = "it is asked for a constant only")]
        struct Ask<T: ?Sized>(std::marker::PhantomData<T>);
        // Preferred to the one of `Otherwise`, where its bound holds.
        #[allow(dead_code, reason = "where the bound does not hold, the other is used")]
        impl<T: ?Sized + $($bound)+> Ask<T> {
            const HAS: bool = true;
        }
        <Ask<$type>>::HAS
    }};
}

/// Ours has a trait just if std's has it.
macro_rules! same {
    ($($ours:ty = $std:ty: $($bound:ident)+;)+) => {
        $($(
            const _: () = assert!(
                has!($ours, $bound) == has!($std, $bound),
                concat!(stringify!($ours), " is not as std's: ", stringify!($bound)),
            );
        )+)+
    };
}

/// Ours has what std's has, and may have more.
macro_rules! at_least {
    ($($ours:ty = $std:ty: $($bound:ident)+;)+) => {
        $($(
            const _: () = assert!(
                has!($ours, $bound) || !has!($std, $bound),
                concat!(stringify!($ours), " lacks what std's has: ", stringify!($bound)),
            );
        )+)+
    };
}

type Raw = *mut u8;
type Ref = &'static Cell<i32>;

same! {
    carefree::Thread = thread::Thread: Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug Display Eq PartialEq Hash Default;
    carefree::ThreadId = thread::ThreadId: Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug Eq PartialEq Hash Default;
    carefree::Builder = thread::Builder: Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug Display;
    carefree::Scope<'static, 'static> = thread::Scope<'static, 'static>: Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug Display;
    carefree::JoinHandle<()> = thread::JoinHandle<()>: Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug Display;
    carefree::JoinHandle<Raw> = thread::JoinHandle<Raw>: Send Sync Unpin UnwindSafe RefUnwindSafe Debug;
    carefree::JoinHandle<Rc<i32>> = thread::JoinHandle<Rc<i32>>: Send Sync Unpin UnwindSafe RefUnwindSafe Debug;
    carefree::JoinHandle<Cell<i32>> = thread::JoinHandle<Cell<i32>>: Send Sync Unpin UnwindSafe RefUnwindSafe Debug;
    carefree::JoinHandle<Ref> = thread::JoinHandle<Ref>: Send Sync Unpin UnwindSafe RefUnwindSafe Debug;
    carefree::JoinHandle<PhantomPinned> = thread::JoinHandle<PhantomPinned>: Unpin;
    carefree::ScopedJoinHandle<'static, PhantomPinned> = thread::ScopedJoinHandle<'static, PhantomPinned>: Unpin;
    carefree::ScopedJoinHandle<'static, ()> = thread::ScopedJoinHandle<'static, ()>: Send Sync Unpin UnwindSafe RefUnwindSafe Clone Copy Debug Display;
    carefree::ScopedJoinHandle<'static, Raw> = thread::ScopedJoinHandle<'static, Raw>: Send Sync Unpin UnwindSafe RefUnwindSafe Debug;
    carefree::ScopedJoinHandle<'static, Rc<i32>> = thread::ScopedJoinHandle<'static, Rc<i32>>: Send Sync Unpin UnwindSafe RefUnwindSafe Debug;
    carefree::ScopedJoinHandle<'static, UnsafeCell<i32>> = thread::ScopedJoinHandle<'static, UnsafeCell<i32>>: Send Sync Unpin UnwindSafe RefUnwindSafe Debug;
    carefree::LocalKey<Rc<i32>> = thread::LocalKey<Rc<i32>>: Send Sync Unpin UnwindSafe RefUnwindSafe Debug;
    carefree::AccessError = thread::AccessError: Send Sync Unpin UnwindSafe RefUnwindSafe Clone Debug Display Eq;
}

at_least! {
    // Ours has an order, and can be printed.
    carefree::ThreadId = thread::ThreadId: Display Ord PartialOrd;
    carefree::Builder = thread::Builder: Default;
}

// A number that is not there takes no room.
const _: () = assert!(size_of::<Option<carefree::ThreadId>>() == size_of::<carefree::ThreadId>());
const _: () = assert!(size_of::<carefree::ThreadId>() == size_of::<thread::ThreadId>());
const _: () = assert!(size_of::<Option<carefree::Thread>>() == size_of::<carefree::Thread>());

/// That the tables can say no.
#[test]
fn the_question_has_two_answers() {
    assert!(has!(i32, Send) && has!(i32, Copy));
    assert!(!has!(Rc<i32>, Send) && !has!(Raw, Sync) && !has!(&mut i32, UnwindSafe));
}
