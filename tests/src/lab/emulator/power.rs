//! The power desk of one machine: carries out what its BMC accepted, and says what `PowerState` shows, which is the
//! truth unless a knob lies. Every step towards the machine goes into the power timeline.
//!
//! An accepted command goes on when the connection that brought it is gone, as on a real BMC; the next command
//! takes its place.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::task::AbortHandle;

use super::knobs::{CommandDoes, Knobs, PowerShown};
use super::ledger::{Ledger, PowerStep};
use super::machine::{Machine, Power};
use crate::lab::writer::boottime_ns;

const MS: u64 = 1_000_000;

/// The machine of one BMC and what is being done to it.
pub struct PowerDesk {
    bmc: String,
    true_uuid: String,
    machine: Arc<dyn Machine>,
    ledger: Arc<Ledger>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The task of the last command, and whose it is.
    task: Option<(AbortHandle, String)>,
    /// Counts commands, so that a task which was replaced can no longer say what is under way.
    command: u64,
    /// The change under way.
    moving: Option<Power>,
    /// An off command was accepted while `stuck_powering_off` was set.
    stuck: bool,
    cached: Option<(u64, Power)>,
    /// How many readings were shown from a sequence.
    shown: usize,
    /// When the power knobs were last set.
    set_at: u64,
    /// Off is shown until then, whatever is true: a BMC that has just started.
    off_until: u64,
    /// When the machine was last given power, as far as this desk did it.
    on_at: u64,
}

/// What a command does, fixed when it was accepted.
struct Plan {
    command: u64,
    by: String,
    steps: Vec<(Duration, Power)>,
    restore: Option<Duration>,
}

// === impl PowerDesk ===

impl PowerDesk {
    /// A desk that notes what it does under this BMC's name and this true UUID.
    #[must_use]
    pub fn new(bmc: &str, true_uuid: &str, machine: Arc<dyn Machine>, ledger: Arc<Ledger>) -> Self {
        let inner = Mutex::new(Inner { on_at: boottime_ns(), ..Inner::default() });
        Self { bmc: bmc.to_owned(), true_uuid: true_uuid.to_owned(), machine, ledger, inner }
    }

    /// The machine's true state.
    ///
    /// # Errors
    /// If the machine cannot be asked.
    pub async fn truth(&self) -> std::io::Result<Power> {
        self.machine.state().await
    }

    /// When the machine was last given power, `CLOCK_BOOTTIME` in ns, as far as this desk did it.
    #[must_use]
    pub fn on_at(&self) -> u64 {
        self.lock().on_at
    }

    /// Starts to carry out an accepted command: the machine goes through these states in order.
    pub fn command(self: &Arc<Self>, steps: &[Power], knobs: &Knobs, by: &str) {
        let mut inner = self.lock();
        if let Some((old, whose)) = inner.task.take().filter(|(old, _)| !old.is_finished()) {
            old.abort();
            self.note(PowerStep::Superseded, &whose);
        }
        inner.command += 1;
        (inner.moving, inner.stuck) = (None, false);
        match knobs.command {
            CommandDoes::Nothing => return,
            CommandDoes::StuckPoweringOff => {
                inner.stuck = steps.first() == Some(&Power::Off);
                return;
            }
            CommandDoes::Acts => {}
        }
        let plan = Plan::new(inner.command, by, steps, knobs);
        let desk = Arc::clone(self);
        let task = tokio::spawn(async move { desk.carry_out(plan).await }).abort_handle();
        inner.task = Some((task, by.to_owned()));
    }

    /// The knobs of the power reading were set: a constant's time begins, a sequence starts over.
    pub fn knobs_set(&self) {
        let mut inner = self.lock();
        (inner.set_at, inner.shown, inner.cached, inner.stuck) = (boottime_ns(), 0, None, false);
    }

    /// The BMC has just started and says Off for so long, whatever is true.
    pub fn says_off_for(&self, span: Duration) {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.lock().off_until = boottime_ns().saturating_add(span);
    }

    /// What `PowerState` says now; `None` is no such key.
    ///
    /// # Errors
    /// If the truth is to be shown and the machine cannot be asked.
    pub async fn shown(&self, power: &PowerShown, knobs: &Knobs) -> std::io::Result<Option<Value>> {
        let now = boottime_ns();
        if now < self.lock().off_until {
            return Ok(Some(Value::from("Off")));
        }
        match power {
            PowerShown::Constant { value, for_ms } => {
                let set_at = self.lock().set_at;
                if for_ms.is_none_or(|ms| now < set_at.saturating_add(ms * MS)) {
                    return Ok(Some(Value::from(value.as_str())));
                }
            }
            PowerShown::Sequence(values) if !values.is_empty() => {
                let mut inner = self.lock();
                let value = &values[inner.shown % values.len()];
                inner.shown += 1;
                return Ok(Some(Value::from(value.as_str())));
            }
            PowerShown::Cached(ms) => return self.cached(now, *ms).await.map(|power| Some(text(power))),
            PowerShown::Null => return Ok(Some(Value::Null)),
            PowerShown::Missing => return Ok(None),
            PowerShown::Truth | PowerShown::Sequence(_) => {}
        }
        if let Some(under_way) = self.transition(knobs) {
            return Ok(Some(Value::from(under_way)));
        }
        self.truth().await.map(|power| Some(text(power)))
    }

    /// `PoweringOff` or `PoweringOn` while a change is under way.
    fn transition(&self, knobs: &Knobs) -> Option<&'static str> {
        let inner = self.lock();
        match inner.moving.filter(|_| knobs.transitional) {
            _ if inner.stuck => Some("PoweringOff"),
            Some(Power::Off) => Some("PoweringOff"),
            Some(Power::On) => Some("PoweringOn"),
            None => None,
        }
    }

    async fn cached(&self, now: u64, ms: u64) -> std::io::Result<Power> {
        if let Some((at, power)) = self.lock().cached
            && now.saturating_sub(at) < ms * MS
        {
            return Ok(power);
        }
        let power = self.truth().await?;
        self.lock().cached = Some((now, power));
        Ok(power)
    }

    async fn carry_out(self: Arc<Self>, plan: Plan) {
        let Plan { command, by, steps, restore } = plan;
        for (wait, power) in steps {
            self.moving(command, Some(power));
            tokio::time::sleep(wait).await;
            self.turn(power, &by).await;
            self.moving(command, None);
        }
        if let Some(restore) = restore {
            tokio::time::sleep(restore).await;
            self.turn(Power::On, "restore").await;
        }
    }

    fn moving(&self, command: u64, towards: Option<Power>) {
        let mut inner = self.lock();
        if inner.command == command {
            inner.moving = towards;
        }
    }

    async fn turn(&self, power: Power, by: &str) {
        let before = self.machine.state().await.ok();
        let (begin, done) = match power {
            Power::Off => (PowerStep::OffBegin, PowerStep::OffDone),
            Power::On => (PowerStep::OnBegin, PowerStep::OnDone),
        };
        let changes = before != Some(power);
        if changes {
            self.note(begin, by);
        }
        let result = match power {
            Power::Off => self.machine.off().await,
            Power::On => self.machine.on().await,
        };
        match result {
            Ok(after) if after == power => {
                if changes {
                    self.note(done, by);
                }
                if power == Power::On {
                    self.lock().on_at = boottime_ns();
                }
            }
            Ok(_) | Err(_) => self.note(PowerStep::Failed, by),
        }
    }

    fn note(&self, step: PowerStep, by: &str) {
        self.ledger.power(&self.bmc, &self.true_uuid, step, by);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Plan ===

impl Plan {
    fn new(command: u64, by: &str, steps: &[Power], knobs: &Knobs) -> Self {
        let takes = |power: &Power| match power {
            Power::Off => (Duration::from_millis(knobs.off_takes_ms), Power::Off),
            Power::On => (Duration::from_millis(knobs.on_takes_ms), Power::On),
        };
        let stays_off = steps.last() == Some(&Power::Off);
        let restore = knobs.power_restore_ms.filter(|_| stays_off).map(Duration::from_millis);
        Self { command, by: by.to_owned(), steps: steps.iter().map(takes).collect(), restore }
    }
}

/// A true state as `PowerState` says it.
fn text(power: Power) -> Value {
    match power {
        Power::On => Value::from("On"),
        Power::Off => Value::from("Off"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::SimMachine;
    use super::*;

    struct Bench {
        desk: Arc<PowerDesk>,
        machine: Arc<SimMachine>,
        ledger: Arc<Ledger>,
        _folder: tempfile::TempDir,
    }

    fn bench() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Arc::new(Ledger::open(folder.path()).unwrap());
        let machine = Arc::new(SimMachine::new());
        let desk = PowerDesk::new("n1", "u", Arc::clone(&machine) as Arc<dyn Machine>, Arc::clone(&ledger));
        Bench { desk: Arc::new(desk), machine, ledger, _folder: folder }
    }

    impl Bench {
        async fn says(&self, knobs: &Knobs) -> String {
            self.desk
                .shown(&knobs.power, knobs)
                .await
                .unwrap()
                .map_or("missing".to_owned(), |v| v.to_string())
        }

        fn steps(&self) -> Vec<PowerStep> {
            self.ledger.power_events().unwrap().iter().map(|event| event.event).collect()
        }

        async fn until(&self, power: Power) {
            while self.machine.power() != power {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    #[tokio::test]
    async fn an_off_takes_its_time_and_a_newer_command_takes_its_place() {
        let bench = bench();
        let knobs = Knobs { off_takes_ms: 60_000, ..Knobs::default() };
        bench.desk.command(&[Power::Off], &knobs, "s1");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(
            (bench.machine.power(), bench.says(&knobs).await.as_str()),
            (Power::On, "\"PoweringOff\"")
        );
        let blunt = Knobs { transitional: false, ..knobs };
        assert_eq!(bench.says(&blunt).await, "\"On\"");
        bench.desk.command(&[Power::Off], &Knobs::default(), "s2");
        bench.until(Power::Off).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(bench.says(&blunt).await, "\"Off\"");
        assert_eq!(bench.steps(), [PowerStep::Superseded, PowerStep::OffBegin, PowerStep::OffDone]);
    }

    #[tokio::test]
    async fn an_off_that_cancels_a_power_on_under_way_leaves_the_machine_off() {
        let bench = bench();
        bench.machine.set(Power::Off);
        let slow = Knobs { on_takes_ms: 30, ..Knobs::default() };
        bench.desk.command(&[Power::On], &slow, "s1");
        bench.desk.command(&[Power::Off], &slow, "s2");
        tokio::time::sleep(Duration::from_millis(80)).await;
        assert_eq!((bench.machine.power(), bench.steps()), (Power::Off, vec![PowerStep::Superseded]));
    }

    #[tokio::test]
    async fn power_comes_back_by_itself_where_that_knob_is_set() {
        let bench = bench();
        let knobs = Knobs { power_restore_ms: Some(30), ..Knobs::default() };
        bench.desk.command(&[Power::Off], &knobs, "s1");
        bench.until(Power::Off).await;
        assert_eq!(
            bench.says(&knobs).await.replace("PoweringOff", "Off"),
            "\"Off\"",
            "nothing tells it ahead"
        );
        bench.until(Power::On).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let last = bench.ledger.power_events().unwrap().pop().unwrap();
        assert_eq!((last.event, last.by.as_str()), (PowerStep::OnDone, "restore"));
    }

    #[tokio::test]
    async fn every_lie_about_the_power_is_told_as_set() {
        let constant = |for_ms| PowerShown::Constant { value: "Off".to_owned(), for_ms };
        let sequence = PowerShown::Sequence(["Off", "On", "Reset"].map(str::to_owned).to_vec());
        let table: [(PowerShown, [&str; 4]); 6] = [
            (PowerShown::Truth, ["\"On\""; 4]),
            (constant(None), ["\"Off\""; 4]),
            (constant(Some(0)), ["\"On\""; 4]),
            (sequence, ["\"Off\"", "\"On\"", "\"Reset\"", "\"Off\""]),
            (PowerShown::Null, ["null"; 4]),
            (PowerShown::Missing, ["missing"; 4]),
        ];
        let bench = bench();
        for (power, want) in table {
            let knobs = Knobs { power, ..Knobs::default() };
            bench.desk.knobs_set();
            for want in want {
                assert_eq!(bench.says(&knobs).await, want, "{:?}", knobs.power);
            }
        }
        let cached = Knobs { power: PowerShown::Cached(60_000), ..Knobs::default() };
        assert_eq!(bench.says(&cached).await, "\"On\"");
        bench.machine.set(Power::Off);
        assert_eq!(bench.says(&cached).await, "\"On\"", "from the cache");
        bench.desk.says_off_for(Duration::from_secs(60));
        bench.machine.set(Power::On);
        assert_eq!(bench.says(&Knobs::default()).await, "\"Off\"", "a BMC that has just started");
    }

    #[tokio::test]
    async fn commands_that_do_nothing_are_told_from_those_that_hang_halfway() {
        let bench = bench();
        for (command, want) in
            [(CommandDoes::Nothing, "\"On\""), (CommandDoes::StuckPoweringOff, "\"PoweringOff\"")]
        {
            let knobs = Knobs { command, ..Knobs::default() };
            bench.desk.command(&[Power::Off], &knobs, "s1");
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(bench.says(&knobs).await, want);
        }
        assert_eq!((bench.machine.power(), bench.steps()), (Power::On, vec![]));
    }
}
