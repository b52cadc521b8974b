//! Tasks of the simulated processes: futures that wait for virtual time and for answers, polled one after another by
//! the run. What the arbiter's shell writes as `async` code reads alike here, so that both can be compared.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use coroner_shared::time::{Mono, Span};

/// Names a task.
pub(crate) type TaskId = u64;
/// What a task does.
pub(crate) type Work<T = ()> = Pin<Box<dyn Future<Output = T>>>;

#[derive(Default)]
struct Inner {
    now: Cell<Mono>,
    current: Cell<TaskId>,
    ready: RefCell<VecDeque<TaskId>>,
    is_ready: RefCell<BTreeSet<TaskId>>,
    wakes: RefCell<BinaryHeap<Reverse<(Mono, u64, TaskId)>>>,
    count: Cell<u64>,
}

/// What all tasks share: virtual time, and who is to be polled.
#[derive(Clone, Default)]
pub(crate) struct Reactor(Rc<Inner>);

/// A place for one answer.
pub(crate) struct Slot<T> {
    reactor: Reactor,
    held: Rc<RefCell<(Option<T>, Option<TaskId>)>>,
}

/// Something that one at a time may hold.
#[derive(Clone)]
pub(crate) struct Lock {
    reactor: Reactor,
    held: Rc<Cell<bool>>,
    waiting: Rc<RefCell<VecDeque<TaskId>>>,
}

/// Holding it.
pub(crate) struct Guard(Lock);

/// Something that changes and is waited for.
#[derive(Clone)]
pub(crate) struct Signal {
    reactor: Reactor,
    version: Rc<Cell<u64>>,
    waiting: Rc<RefCell<BTreeSet<TaskId>>>,
}

/// Which of two came first.
pub(crate) enum Either<A, B> {
    First(A),
    Second(B),
}

// === impl Reactor ===

impl Reactor {
    pub(crate) fn now(&self) -> Mono {
        self.0.now.get()
    }

    pub(crate) fn set_now(&self, now: Mono) {
        self.0.now.set(now);
    }

    pub(crate) fn set_current(&self, task: TaskId) {
        self.0.current.set(task);
    }

    pub(crate) fn make_ready(&self, task: TaskId) {
        if self.0.is_ready.borrow_mut().insert(task) {
            self.0.ready.borrow_mut().push_back(task);
        }
    }

    pub(crate) fn next_ready(&self) -> Option<TaskId> {
        let task = self.0.ready.borrow_mut().pop_front()?;
        self.0.is_ready.borrow_mut().remove(&task);
        Some(task)
    }

    /// When the first sleeper wakes up.
    pub(crate) fn next_wake(&self) -> Option<Mono> {
        self.0.wakes.borrow().peek().map(|Reverse((at, _, _))| *at)
    }

    /// Wakes whoever is due.
    pub(crate) fn wake(&self) {
        let now = self.now();
        let mut wakes = self.0.wakes.borrow_mut();
        while wakes.peek().is_some_and(|Reverse((at, _, _))| *at <= now) {
            if let Some(Reverse((_, _, task))) = wakes.pop() {
                self.make_ready(task);
            }
        }
    }

    fn wake_at(&self, at: Mono, task: TaskId) {
        let count = self.0.count.get() + 1;
        self.0.count.set(count);
        self.0.wakes.borrow_mut().push(Reverse((at, count, task)));
    }

    pub(crate) async fn sleep(&self, span: Span) {
        let until = self.now() + span;
        let mut armed = false;
        poll_fn(|_| {
            if self.now() >= until {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut armed, true) {
                self.wake_at(until, self.0.current.get());
            }
            Poll::Pending
        })
        .await;
    }

    pub(crate) fn slot<T>(&self) -> Slot<T> {
        Slot { reactor: self.clone(), held: Rc::new(RefCell::new((None, None))) }
    }

    pub(crate) fn lock(&self) -> Lock {
        Lock { reactor: self.clone(), held: Rc::default(), waiting: Rc::default() }
    }

    pub(crate) fn signal(&self) -> Signal {
        Signal { reactor: self.clone(), version: Rc::default(), waiting: Rc::default() }
    }

    /// The answer, if it comes within that time.
    pub(crate) async fn within<T>(&self, limit: Span, work: impl Future<Output = T>) -> Option<T> {
        match either(work, self.sleep(limit)).await {
            Either::First(value) => Some(value),
            Either::Second(()) => None,
        }
    }
}

/// Whichever comes first; the first one where both are there.
pub(crate) async fn either<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> Either<A, B> {
    let (mut first, mut second) = (Box::pin(first), Box::pin(second));
    poll_fn(|context| {
        if let Poll::Ready(value) = first.as_mut().poll(context) {
            return Poll::Ready(Either::First(value));
        }
        second.as_mut().poll(context).map(Either::Second)
    })
    .await
}

// === impl Slot ===

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self { reactor: self.reactor.clone(), held: Rc::clone(&self.held) }
    }
}

impl<T> Slot<T> {
    /// Fills it; only the first answer counts.
    pub(crate) fn fill(&self, value: T) {
        let mut held = self.held.borrow_mut();
        if held.0.is_none() {
            held.0 = Some(value);
            if let Some(task) = held.1.take() {
                self.reactor.make_ready(task);
            }
        }
    }

    pub(crate) async fn take(&self) -> T {
        poll_fn(|_| {
            let mut held = self.held.borrow_mut();
            if let Some(value) = held.0.take() {
                return Poll::Ready(value);
            }
            held.1 = Some(self.reactor.0.current.get());
            Poll::Pending
        })
        .await
    }
}

// === impl Lock, Guard ===

impl Lock {
    pub(crate) async fn hold(&self) -> Guard {
        poll_fn(|_| {
            if !self.held.replace(true) {
                return Poll::Ready(());
            }
            let task = self.reactor.0.current.get();
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.contains(&task) {
                waiting.push_back(task);
            }
            Poll::Pending
        })
        .await;
        Guard(self.clone())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.held.set(false);
        for task in self.0.waiting.borrow_mut().drain(..) {
            self.0.reactor.make_ready(task);
        }
    }
}

// === impl Signal ===

impl Signal {
    pub(crate) fn send(&self) {
        self.version.set(self.version.get() + 1);
        for task in std::mem::take(&mut *self.waiting.borrow_mut()) {
            self.reactor.make_ready(task);
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.get()
    }

    /// Waits for a version after the one seen; gives it.
    pub(crate) async fn after(&self, seen: u64) -> u64 {
        poll_fn(|_| {
            if self.version.get() > seen {
                return Poll::Ready(self.version.get());
            }
            self.waiting.borrow_mut().insert(self.reactor.0.current.get());
            Poll::Pending
        })
        .await
    }
}
