//! Random programs of coroutines that are resumed, dropped and transferred between, compared with a
//! model that knows nothing of stacks.
//!
//! A coroutine follows a script and logs what happens to it. The driver owns a few slots with
//! coroutines in them. Scripts can access the slots too: there a transfer finds its target and
//! leaves its sender.

mod owned;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use carefree_context::coroutine::{Coroutine, CoroutineState, SymmetricSuspender};
use owned::symmetric;
use proptest::prelude::*;

const SLOTS: usize = 4;

/// A step of a script.
#[derive(Clone, Debug)]
enum Step {
    /// Suspend with a value.
    Yield(u32),
    /// Suspend with a value, and catch a panic of that.
    YieldCatching(u32),
    /// Have one more local with a destructor.
    Guard,
    /// Transfer to the coroutine in this slot, if there is one, and leave the own handle there.
    Transfer(usize),
    /// Drop the coroutine in this slot, if there is one.
    Drop(usize),
    /// Take the coroutine in this slot, if there is one, resume it, and put it back.
    Resume(usize),
    /// Panic.
    Panic,
}

/// A step of the driver.
#[derive(Clone, Debug)]
enum Act {
    New(usize, Vec<Step>),
    Resume(usize, u32),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u32>().prop_map(Step::Yield),
        2 => any::<u32>().prop_map(Step::YieldCatching),
        2 => Just(Step::Guard),
        3 => (0..SLOTS).prop_map(Step::Transfer),
        1 => (0..SLOTS).prop_map(Step::Drop),
        1 => (0..SLOTS).prop_map(Step::Resume),
        1 => Just(Step::Panic),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0..SLOTS, prop::collection::vec(step(), 0..8)).prop_map(|(slot, script)| {
            Act::New(slot, script)
        }),
        5 => (0..SLOTS, any::<u32>()).prop_map(|(slot, input)| Act::Resume(slot, input)),
        1 => (0..SLOTS).prop_map(Act::Drop),
    ]
}

/// Everything that is visible from outside.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    Started { id: usize, input: u32 },
    Resumed { id: usize, input: u32 },
    Caught { id: usize },
    GuardDropped { id: usize, number: usize },
    ScriptDropped { id: usize },
    Yielded(u32),
    Complete(usize),
    Panicked(usize),
    DropPanicked(usize),
    Empty,
}

// ---------------------------------------------------------------- the real thing

type Real = Coroutine<u32, u32, usize>;
type Events = Rc<RefCell<Vec<Event>>>;

#[derive(Clone, Default)]
struct World {
    slots: Rc<RefCell<[Option<Real>; SLOTS]>>,
    events: Events,
}

struct RealGuard(Events, Event);

impl Drop for RealGuard {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1.clone());
    }
}

/// The payload of a script's panic.
struct Scripted(usize);

impl World {
    fn log(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }

    fn take(&self, slot: usize) -> Option<Real> {
        self.slots.borrow_mut()[slot].take()
    }

    /// Puts a handle into a slot, and drops the former one.
    fn put(&self, slot: usize, handle: Real) {
        let before = self.slots.borrow_mut()[slot].replace(handle);
        drop(before);
    }

    fn coroutine(&self, id: usize, script: Vec<Step>) -> Real {
        let world = self.clone();
        let whole = RealGuard(self.events.clone(), Event::ScriptDropped { id });
        symmetric(move |suspender, input| {
            let _whole = whole;
            world.log(Event::Started { id, input });
            world.follow(id, script, suspender);
            id
        })
    }

    fn follow(
        &self,
        id: usize,
        script: Vec<Step>,
        suspender: &SymmetricSuspender<u32, u32, usize>,
    ) {
        let mut guards = Vec::new();
        for step in script {
            match step {
                Step::Yield(value) => {
                    let input = suspender.suspend(value);
                    self.log(Event::Resumed { id, input });
                }
                Step::YieldCatching(value) => {
                    match catch_unwind(AssertUnwindSafe(|| suspender.suspend(value))) {
                        Ok(input) => self.log(Event::Resumed { id, input }),
                        Err(_) => self.log(Event::Caught { id }),
                    }
                }
                Step::Guard => {
                    let number = guards.len();
                    let event = Event::GuardDropped { id, number };
                    guards.push(RealGuard(self.events.clone(), event));
                }
                Step::Transfer(slot) => {
                    if let Some(target) = self.take(slot) {
                        let world = self.clone();
                        let input = suspender.transfer(target, move |me| {
                            world.put(slot, me);
                            slot as u32
                        });
                        self.log(Event::Resumed { id, input });
                    }
                }
                Step::Drop(slot) => drop(self.take(slot)),
                Step::Resume(slot) => {
                    if let Some(mut target) = self.take(slot) {
                        let state = target.resume(id as u32);
                        self.came_back(slot, target, state);
                    }
                }
                Step::Panic => resume_unwind(Box::new(Scripted(id))),
            }
        }
    }

    fn came_back(&self, slot: usize, handle: Real, state: CoroutineState<u32, usize>) {
        match state {
            CoroutineState::Yielded(value) => {
                self.log(Event::Yielded(value));
                assert!(!handle.is_done());
                self.put(slot, handle);
            }
            CoroutineState::Complete(id) => {
                self.log(Event::Complete(id));
                assert!(handle.is_done());
            }
        }
    }

    fn act(&self, id: usize, act: Act) {
        match act {
            Act::New(slot, script) => {
                let new = self.coroutine(id, script);
                self.dropping(|| self.put(slot, new));
            }
            Act::Drop(slot) => match self.take(slot) {
                Some(handle) => self.dropping(|| drop(handle)),
                None => self.log(Event::Empty),
            },
            Act::Resume(slot, input) => match self.take(slot) {
                Some(mut handle) => match catch_unwind(AssertUnwindSafe(|| handle.resume(input))) {
                    Ok(state) => self.dropping(|| self.came_back(slot, handle, state)),
                    Err(payload) => {
                        assert!(handle.is_done());
                        self.log(Event::Panicked(scripted(&*payload)));
                    }
                },
                None => self.log(Event::Empty),
            },
        }
        assert!(!std::thread::panicking());
    }

    /// Runs a step that may drop coroutines, whose destructors may panic.
    fn dropping(&self, f: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
            self.log(Event::DropPanicked(scripted(&*payload)));
        }
    }
}

fn scripted(payload: &(dyn std::any::Any + Send)) -> usize {
    payload.downcast_ref::<Scripted>().expect("only scripts panic").0
}

// ---------------------------------------------------------------- the model

/// A coroutine in the model: its next step, and what its end will drop.
#[derive(Clone, Debug)]
struct Model {
    id: usize,
    rest: VecDeque<Step>,
    guards: usize,
    started: bool,
    unwinding: bool,
    /// The last step was a catching one.
    catching: bool,
}

#[derive(Default)]
struct ModelWorld {
    slots: [Option<Model>; SLOTS],
    events: Vec<Event>,
}

/// How a run of steps ends, for the coroutine that is returned with it.
enum Outcome {
    Yielded(u32, Model),
    Complete(usize),
    Panicked(usize),
    /// The forced unwind has reached the end.
    Unwound,
}

impl ModelWorld {
    fn log(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Drops a suspended coroutine: its panic, if one comes of it.
    fn drop_model(&mut self, mut model: Model) -> Option<usize> {
        if !model.started {
            self.log(Event::ScriptDropped { id: model.id });
            return None;
        }
        model.unwinding = true;
        loop {
            if model.catching {
                model.catching = false;
                self.log(Event::Caught { id: model.id });
            } else {
                self.end(&model);
                return None;
            }
            match self.run(model) {
                Outcome::Yielded(_, again) => model = again,
                Outcome::Complete(_) | Outcome::Unwound => return None,
                Outcome::Panicked(id) => return Some(id),
            }
        }
    }

    /// What its locals and its closure's guard do at the end.
    fn end(&mut self, model: &Model) {
        for number in 0..model.guards {
            self.log(Event::GuardDropped { id: model.id, number });
        }
        self.log(Event::ScriptDropped { id: model.id });
    }

    fn put(&mut self, slot: usize, model: Model) -> Option<usize> {
        let before = self.slots[slot].replace(model);
        before.and_then(|before| self.drop_model(before))
    }

    fn arrive(&mut self, model: &mut Model, input: u32) {
        model.catching = false;
        if model.started {
            self.log(Event::Resumed { id: model.id, input });
        } else {
            model.started = true;
            self.log(Event::Started { id: model.id, input });
        }
    }

    fn resume(&mut self, mut model: Model, input: u32) -> Outcome {
        self.arrive(&mut model, input);
        self.run(model)
    }

    fn fail(&mut self, model: &Model, id: usize) -> Outcome {
        self.end(model);
        Outcome::Panicked(id)
    }

    fn run(&mut self, mut model: Model) -> Outcome {
        while let Some(step) = model.rest.pop_front() {
            match step {
                Step::Yield(value) => return Outcome::Yielded(value, model),
                Step::YieldCatching(value) => {
                    model.catching = true;
                    return Outcome::Yielded(value, model);
                }
                Step::Guard => model.guards += 1,
                Step::Drop(slot) => {
                    if let Some(other) = self.slots[slot].take() {
                        if let Some(id) = self.drop_model(other) {
                            return self.fail(&model, id);
                        }
                    }
                }
                Step::Resume(slot) => {
                    if let Some(other) = self.slots[slot].take() {
                        match self.resume(other, model.id as u32) {
                            Outcome::Yielded(value, other) => {
                                self.log(Event::Yielded(value));
                                if let Some(id) = self.put(slot, other) {
                                    return self.fail(&model, id);
                                }
                            }
                            Outcome::Complete(id) => self.log(Event::Complete(id)),
                            Outcome::Panicked(id) => return self.fail(&model, id),
                            Outcome::Unwound => unreachable!("it is not dropped"),
                        }
                    }
                }
                Step::Transfer(slot) => {
                    if let Some(mut target) = self.slots[slot].take() {
                        if model.unwinding {
                            if let Some(id) = self.drop_model(target) {
                                return self.fail(&model, id);
                            }
                            self.end(&model);
                            return Outcome::Unwound;
                        }
                        // The slot is empty, so this drops nothing.
                        assert!(self.put(slot, model).is_none());
                        self.arrive(&mut target, slot as u32);
                        model = target;
                    }
                }
                Step::Panic => {
                    let id = model.id;
                    return self.fail(&model, id);
                }
            }
        }
        self.end(&model);
        Outcome::Complete(model.id)
    }

    fn act(&mut self, id: usize, act: Act) {
        match act {
            Act::New(slot, script) => {
                let new = Model {
                    id,
                    rest: script.into(),
                    guards: 0,
                    started: false,
                    unwinding: false,
                    catching: false,
                };
                if let Some(id) = self.put(slot, new) {
                    self.log(Event::DropPanicked(id));
                }
            }
            Act::Drop(slot) => match self.slots[slot].take() {
                Some(model) => {
                    if let Some(id) = self.drop_model(model) {
                        self.log(Event::DropPanicked(id));
                    }
                }
                None => self.log(Event::Empty),
            },
            Act::Resume(slot, input) => match self.slots[slot].take() {
                Some(model) => match self.resume(model, input) {
                    Outcome::Yielded(value, model) => {
                        self.log(Event::Yielded(value));
                        if let Some(id) = self.put(slot, model) {
                            self.log(Event::DropPanicked(id));
                        }
                    }
                    Outcome::Complete(id) => self.log(Event::Complete(id)),
                    Outcome::Panicked(id) => self.log(Event::Panicked(id)),
                    Outcome::Unwound => unreachable!("it is not dropped"),
                },
                None => self.log(Event::Empty),
            },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]


    #[test]
    fn coroutines_do_as_the_model(acts in prop::collection::vec(act(), 1..40)) {
        let world = World::default();
        let mut model = ModelWorld::default();
        let ends = (0..SLOTS).map(Act::Drop);
        for (id, act) in acts.into_iter().chain(ends).enumerate() {
            world.act(id, act.clone());
            model.act(id, act.clone());
            let real = world.events.take();
            let expected = std::mem::take(&mut model.events);
            prop_assert_eq!(real, expected, "after {:?}", act);
        }
        // The script of a dropped coroutine may have left another one in a slot.
        for slot in 0..SLOTS {
            prop_assert_eq!(world.take(slot).is_some(), model.slots[slot].take().is_some());
        }
    }
}
