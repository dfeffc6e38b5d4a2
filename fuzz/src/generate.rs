//! Draws programs from seeds.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::call::{Buffer, Call, Lies, List, Moment, Span, Step, Via, Word};
use crate::crowd;
use crate::known;
use crate::object::{Access, Family, Object, Place};
use crate::program::{Program, Sequence};
use crate::storm::Storm;

/// Which programs to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Any,
    Sequence,
    Crowd,
}

/// The program that a seed stands for.
pub fn draw(seed: u64, kind: Kind) -> Program {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = match kind {
        Kind::Any => prop_oneof![5 => sequence(), 1 => crowds()].boxed(),
        Kind::Sequence => sequence().boxed(),
        Kind::Crowd => crowds().boxed(),
    };
    strategy.new_tree(&mut runner).expect("the strategies reject nothing").current()
}

fn crowds() -> impl Strategy<Value = Program> {
    crowd::any().prop_map(Program::Crowd)
}

fn sequence() -> impl Strategy<Value = Program> {
    let storm = prop_oneof![
        8 => Just(None),
        1 => Just(Some(Storm::Restarting)),
        1 => Just(Some(Storm::Interrupting)),
    ];
    let limit = prop_oneof![4 => Just(None), 1 => (0u32..200_000).prop_map(Some)];
    (limit, storm, vec(object().boxed(), 1..5), vec(step().boxed(), 1..14)).prop_map(
        |(file_limit, storm, objects, steps)| {
            Program::Sequence(Sequence { file_limit, storm, objects, steps })
        },
    )
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![
        4 => Just(Access::Both),
        1 => Just(Access::Read),
        1 => Just(Access::Write),
        2 => Just(Access::Append),
    ]
}

fn file() -> impl Strategy<Value = Object> {
    let place =
        prop_oneof![1 => Just(Place::Disk), 1 => Just(Place::Memory), 1 => Just(Place::Small)];
    (place, access(), length(), any::<bool>()).prop_map(|(place, access, length, nonblocking)| {
        Object::File { place, access, length: length.min(100_000) as u32, nonblocking }
    })
}

fn object() -> impl Strategy<Value = Object> {
    let family = prop_oneof![
        3 => Just(Family::Stream),
        2 => Just(Family::Datagram),
        2 => Just(Family::Packet),
        2 => Just(Family::Tcp),
        1 => Just(Family::Udp),
    ];
    let mode = || prop_oneof![2 => Just(false), 1 => Just(true)];
    let seldom = || prop_oneof![4 => Just(false), 1 => Just(true)];
    prop_oneof![
        5 => file(),
        2 => access().prop_map(|access| Object::Again { access }),
        5 => (mode(), seldom(), seldom())
            .prop_map(|(nonblocking, packets, small)| Object::Pipe { nonblocking, packets, small }),
        5 => (family, mode()).prop_map(|(family, nonblocking)| Object::Sockets { family, nonblocking }),
        1 => mode().prop_map(|nonblocking| Object::Listener { nonblocking }),
        2 => (0u32..4, any::<bool>(), mode())
            .prop_map(|(value, semaphore, nonblocking)| Object::Event { value, semaphore, nonblocking }),
        1 => (any::<bool>(), mode())
            .prop_map(|(fires, nonblocking)| Object::Timer { fires, nonblocking }),
        2 => Just(Object::Epoll),
        1 => prop_oneof![
            Just(Object::Null),
            Just(Object::Zero),
            Just(Object::Full),
            Just(Object::Directory),
            Just(Object::Closed),
        ],
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0u64),
        2 => Just(8u64),
        4 => 1u64..300,
        1 => Just(4096u64),
        2 => 300u64..5000,
        1 => Just(65_536u64),
        1 => 5_000u64..200_000,
    ]
}

/// Of a call that takes no buffer, or of one that may be refused for it.
fn any_length() -> impl Strategy<Value = u64> {
    prop_oneof![
        30 => length(),
        1 => prop_oneof![
            Just(u64::MAX),
            Just(1 << 63),
            Just(0x7fff_f000),
            // Less may be there or not, as the kernel has chosen a place for the buffer.
            (47u32..63).prop_map(|bits| 1 << bits),
            (47u32..63).prop_map(|bits| (1 << bits) + 1),
        ],
    ]
}

fn lies() -> impl Strategy<Value = Lies> {
    prop_oneof![
        16 => Just(Lies::Well),
        1 => Just(Lies::Null),
        1 => Just(Lies::Nowhere),
        2 => prop_oneof![0u32..300, 0u32..70_000].prop_map(Lies::AtEdge),
        1 => Just(Lies::ReadOnly),
    ]
}

fn buffer() -> impl Strategy<Value = Buffer> {
    // What is longer than the memory behind it must not be said to be there.
    (any_length(), lies()).prop_map(|(length, lies)| Buffer {
        length,
        lies: if length > 200_000 && lies == Lies::Well { Lies::AtEdge(100) } else { lies },
    })
}

fn list() -> impl Strategy<Value = List> {
    let count = prop_oneof![
        20 => Just(None),
        1 => prop_oneof![Just(-1), Just(0), Just(1025), Just(i32::MIN)].prop_map(Some),
    ];
    let place = prop_oneof![
        18 => Just(Lies::Well),
        1 => Just(Lies::Null),
        1 => Just(Lies::Nowhere),
        // Bytes of the list: each buffer takes sixteen.
        1 => prop_oneof![Just(16u32), Just(24u32)].prop_map(Lies::AtEdge),
    ];
    (vec(buffer(), 0..4), place, count).prop_map(|(buffers, lies, count)| List {
        buffers,
        lies,
        count,
    })
}

fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 0i64..1000,
        3 => 0i64..200_000,
        1 => prop_oneof![Just(-1i64), Just(-5), Just(i64::MIN), Just(i64::MAX), Just(i64::MAX - 100)],
    ]
}

fn flags_of_files() -> impl Strategy<Value = i32> {
    let one = || {
        prop_oneof![
            Just(1),
            Just(2),
            Just(4),
            Just(8),
            Just(16),
            Just(32),
            Just(64),
            Just(128),
            Just(0x1000)
        ]
    };
    prop_oneof![
        4 => Just(0),
        6 => one(),
        1 => (one(), one()).prop_map(|(a, b)| a | b),
    ]
}

fn flags_of_receiving() -> impl Strategy<Value = i32> {
    prop_oneof![
        4 => Just(0),
        2 => Just(libc::MSG_DONTWAIT),
        1 => Just(libc::MSG_PEEK),
        1 => Just(libc::MSG_WAITALL),
        1 => Just(libc::MSG_TRUNC),
        1 => Just(libc::MSG_PEEK | libc::MSG_DONTWAIT),
        1 => Just(libc::MSG_OOB),
        1 => Just(libc::MSG_ERRQUEUE),
    ]
}

fn flags_of_many() -> impl Strategy<Value = i32> {
    prop_oneof![4 => Just(libc::MSG_WAITFORONE), 2 => Just(0), 1 => flags_of_receiving()]
}

fn flags_of_sending() -> impl Strategy<Value = i32> {
    prop_oneof![
        4 => Just(0),
        2 => Just(libc::MSG_DONTWAIT),
        1 => Just(libc::MSG_EOR),
        1 => Just(libc::MSG_NOSIGNAL),
        1 => Just(libc::MSG_OOB),
    ]
}

fn flags_of_splicing() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(0u32), 2 => Just(libc::SPLICE_F_NONBLOCK), 1 => Just(libc::SPLICE_F_MOVE), 1 => Just(0x100u32)]
}

fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![3 => Just(Moment::Now), 1 => Just(Moment::Soon), 2 => Just(Moment::Late)]
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        2 => Just(Span::Now),
        2 => Just(Span::Soon),
        1 => Just(Span::Negative),
        1 => Just(Span::TooManyNanoseconds),
        1 => Just(Span::Nowhere),
    ]
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        3 => Just(Word::Good),
        1 => Just(Word::Null),
        1 => Just(Word::Nowhere),
        1 => Just(Word::Unaligned),
        1 => Just(Word::ReadOnly),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let via = prop_oneof![4 => Just(Via::Function), 1 => Just(Via::Number)];
    (via, call()).prop_map(|(via, call)| Step { via, call })
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        20 => moving().boxed(),
        6 => flagged().boxed(),
        6 => messages().boxed(),
        6 => copying().boxed(),
        8 => changing().boxed(),
        6 => waiting().boxed(),
        1 => futex().boxed(),
    ]
}

fn slot() -> impl Strategy<Value = u8> {
    0u8..8
}

fn moving() -> impl Strategy<Value = Call> {
    prop_oneof![
        5 => (slot(), buffer()).prop_map(|(fd, to)| Call::Read { fd, to }),
        5 => (slot(), buffer()).prop_map(|(fd, from)| Call::Write { fd, from }),
        2 => (slot(), list()).prop_map(|(fd, list)| Call::ReadList { fd, list }),
        2 => (slot(), list()).prop_map(|(fd, list)| Call::WriteList { fd, list }),
        1 => (slot(), buffer(), offset()).prop_map(|(fd, to, offset)| Call::ReadAt { fd, to, offset }),
        1 => (slot(), buffer(), offset()).prop_map(|(fd, from, offset)| Call::WriteAt { fd, from, offset }),
    ]
}

fn flagged() -> impl Strategy<Value = Call> {
    let at = || prop_oneof![1 => Just(-1i64), 2 => offset()];
    prop_oneof![
        1 => (slot(), list(), offset()).prop_map(|(fd, list, offset)| Call::ReadListAt { fd, list, offset }),
        1 => (slot(), list(), offset()).prop_map(|(fd, list, offset)| Call::WriteListAt { fd, list, offset }),
        2 => (slot(), list(), at(), flags_of_files())
            .prop_map(|(fd, list, offset, flags)| Call::ReadFlagged { fd, list, offset, flags }),
        2 => (slot(), list(), at(), flags_of_files())
            .prop_map(|(fd, list, offset, flags)| Call::WriteFlagged { fd, list, offset, flags }),
    ]
}

fn messages() -> impl Strategy<Value = Call> {
    prop_oneof![
        3 => (slot(), buffer(), flags_of_receiving())
            .prop_map(|(fd, to, flags)| Call::Receive { fd, to, flags }),
        3 => (slot(), buffer(), flags_of_sending())
            .prop_map(|(fd, from, flags)| Call::Send { fd, from, flags }),
        2 => (slot(), list(), flags_of_receiving())
            .prop_map(|(fd, list, flags)| Call::ReceiveMessage { fd, list, flags }),
        2 => (slot(), list(), flags_of_sending())
            .prop_map(|(fd, list, flags)| Call::SendMessage { fd, list, flags }),
        1 => (slot(), buffer(), flags_of_receiving(), prop_oneof![Just(0u8), Just(2), Just(110)])
            .prop_map(|(fd, to, flags, room)| Call::ReceiveFrom { fd, to, flags, room }),
        1 => (slot(), vec(buffer(), 0..4), flags_of_many(), option::of(span()))
            .prop_map(|(fd, to, flags, span)| Call::ReceiveMany {
                fd, to: known::received_after_waits(to, flags), flags, span,
            }),
        1 => (slot(), vec(buffer(), 0..4), flags_of_sending())
            .prop_map(|(fd, from, flags)| Call::SendMany { fd, from, flags }),
        1 => (slot(), buffer(), flags_of_sending(), slot(), 0u8..4).prop_map(
            |(fd, from, flags, file, files)| Call::SendFiles { fd, from, flags, file, files },
        ),
        1 => (slot(), buffer(), flags_of_receiving(), 0u8..4)
            .prop_map(|(fd, to, flags, files)| Call::ReceiveFiles { fd, to, flags, files }),
        1 => (slot(), slot()).prop_map(|(fd, to)| Call::Accept { fd, to }),
    ]
}

fn copying() -> impl Strategy<Value = Call> {
    let place = || option::weighted(0.3, offset());
    prop_oneof![
        3 => (slot(), slot(), place(), any_length())
            .prop_map(|(to, from, offset, count)| Call::SendFile { to, from, offset, count }),
        4 => (slot(), place(), slot(), place(), any_length(), flags_of_splicing()).prop_map(
            |(from, from_offset, to, to_offset, length, flags)| Call::Splice {
                from, from_offset, to, to_offset, length, flags,
            },
        ),
        2 => (slot(), slot(), any_length(), flags_of_splicing())
            .prop_map(|(from, to, length, flags)| Call::Tee { from, to, length, flags }),
        1 => (slot(), list(), flags_of_splicing())
            .prop_map(|(fd, list, flags)| Call::GiveMemory { fd, list, flags }),
        2 => (slot(), place(), slot(), place(), any_length()).prop_map(
            |(from, from_offset, to, to_offset, length)| Call::CopyRange {
                from, from_offset, to, to_offset, length,
            },
        ),
    ]
}

fn changing() -> impl Strategy<Value = Call> {
    prop_oneof![
        3 => (slot(), prop_oneof![4 => 0i64..1000, 1 => Just(-5i64), 1 => 0i64..300_000], 0..4i32)
            .prop_map(|(fd, offset, whence)| Call::Seek { fd, offset, whence }),
        1 => (slot(), 0u32..200_000).prop_map(|(fd, length)| Call::Truncate { fd, length }),
        1 => (slot(), any::<bool>()).prop_map(|(fd, data)| Call::Sync { fd, data }),
        2 => (slot(), slot()).prop_map(|(fd, to)| Call::Dup { fd, to }),
        1 => (slot(), slot()).prop_map(|(fd, to)| Call::DupOnto { fd, to }),
        3 => slot().prop_map(|fd| Call::Close { fd }),
        2 => (slot(), -1..4i32).prop_map(|(fd, how)| Call::Shutdown { fd, how }),
        2 => (slot(), any::<bool>()).prop_map(|(fd, on)| Call::SetNonblocking { fd, on }),
        1 => (slot(), any::<bool>()).prop_map(|(fd, on)| Call::SetAppending { fd, on }),
        1 => (slot(), any::<bool>()).prop_map(|(fd, on)| Call::SetNonblockingByIoctl { fd, on }),
        1 => slot().prop_map(|fd| Call::Available { fd }),
        1 => (slot(), prop_oneof![Just(libc::LOCK_SH), Just(libc::LOCK_EX), Just(libc::LOCK_UN)])
            .prop_map(|(fd, how)| Call::Lock { fd, how }),
        1 => (slot(), 0i16..3, 0u32..50, 0u32..50)
            .prop_map(|(fd, kind, start, length)| Call::LockRange { fd, kind, start, length }),
        1 => slot().prop_map(|fd| Call::LimitReceiving { fd }),
        1 => (slot(), any::<bool>()).prop_map(|(fd, fires)| Call::SetTimer { fd, fires }),
    ]
}

fn waiting() -> impl Strategy<Value = Call> {
    let events = || {
        prop_oneof![
            3 => Just(libc::POLLIN),
            2 => Just(libc::POLLOUT),
            1 => Just(libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP),
            1 => Just(0i16),
            1 => Just(libc::POLLPRI),
        ]
    };
    let change = prop_oneof![
        3 => Just(libc::EPOLLIN as u32),
        1 => Just(libc::EPOLLOUT as u32),
        1 => Just((libc::EPOLLIN | libc::EPOLLET) as u32),
        1 => Just((libc::EPOLLIN | libc::EPOLLONESHOT) as u32),
    ];
    prop_oneof![
        3 => (vec((slot(), events()), 0..5), lies(), moment())
            .prop_map(|(files, lies, moment)| Call::Poll { files, lies, moment }),
        1 => (vec((slot(), events()), 0..4), moment(), any::<bool>())
            .prop_map(|(files, moment, masked)| Call::PollMasked { files, moment, masked }),
        2 => (vec(slot(), 0..3), vec(slot(), 0..3), moment(), lies())
            .prop_map(|(read, write, moment, lies)| Call::Select { read, write, moment, lies }),
        3 => (slot(), slot(), prop_oneof![4 => Just(1), 1 => Just(2), 1 => Just(3)], change)
            .prop_map(|(epoll, fd, how, events)| Call::EpollChange { epoll, fd, how, events }),
        3 => (slot(), prop_oneof![8 => 1..5i32, 1 => Just(0), 1 => Just(-1)], lies(), moment())
            .prop_map(|(epoll, most, lies, moment)| Call::EpollWait { epoll, most, lies, moment }),
        1 => (vec(slot(), 0..3), moment())
            .prop_map(|(read, moment)| Call::SelectMasked { read, moment }),
        1 => (slot(), prop_oneof![8 => 1..5i32, 1 => Just(0)], moment())
            .prop_map(|(epoll, most, moment)| Call::EpollWaitMasked { epoll, most, moment }),
        1 => span().prop_map(|span| Call::Sleep { span }),
    ]
}

fn futex() -> impl Strategy<Value = Call> {
    // Those without priority inheritance, which write the kernel thread's number; and one that is none.
    let operation = prop_oneof![4 => 0..6i32, 2 => 9..11i32, 1 => Just(77)];
    let operation = (operation, any::<bool>())
        .prop_map(|(operation, private)| operation | if private { 128 } else { 0 });
    (operation, word(), word(), 0u32..3, span()).prop_map(
        |(operation, word, second, value, span)| Call::Futex {
            operation,
            word,
            second,
            value,
            span,
        },
    )
}
