//! Refusals by what would also hold a verdict: pause, policy, opt-out, binding, brakes.

use coroner_shared::time::Span;

use super::{Refuses, Said};
use crate::phase::{Brake, HeldReason};
use crate::words;

/// A reason to hold that refuses an act or an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldRefusal {
    /// What would hold a verdict.
    Held(HeldReason),
    /// A brake; for the pace, with how long it lasts.
    Brake(Brake, Span),
}

impl Refuses for HoldRefusal {
    fn said(&self) -> Said {
        match self {
            Self::Held(HeldReason::Brake(brake)) => of_brake(*brake, Span::ZERO),
            Self::Brake(brake, left) => of_brake(*brake, *left),
            Self::Held(why) => Said {
                word: why.word(),
                what: words::hold(why),
                next: "No power command is sent; it is judged again on every change.",
                advice: words::hold_advice(why).into(),
            },
        }
    }
}

fn of_brake(brake: Brake, left: Span) -> Said {
    let what = words::brake(brake);
    Said {
        word: brake.word(),
        what: if left == Span::ZERO { what.to_owned() } else { format!("{what} ({left} left)") },
        next: "Nothing more is powered off until that is over.",
        advice: words::brake_advice(brake).into(),
    }
}
