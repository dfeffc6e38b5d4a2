//! Coroutines: computations that are suspended and resumed explicitly.

mod call;
mod control;
mod create;
mod dispose;
mod links;
mod message;
mod owned;
mod scope;
mod suspender;
mod switch;
mod symmetric;
mod unwind;
mod word;

pub use call::call_on_stack;
pub use owned::{Coroutine, CoroutineState};
pub use scope::{Scope, ScopedCoroutine, scope};
pub use suspender::Suspender;
pub use symmetric::SymmetricSuspender;
