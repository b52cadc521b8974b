//! Follows the death of one machine and tells it as it happens: what its Incident says, when the taint comes, where
//! the workload goes. All times are counted from the moment at which the machine fell silent.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    lab::{
        site::{Site, look::Placed, tell::Look},
        truth::{self, Event},
    },
    oracles::{
        clock::Sample,
        stages::{Death, Stages},
        watched::{Change, Kind, Seen},
    },
};

/// A death, or what looks like one.
pub struct Story<'a> {
    site: &'a Site,
    /// Who, when, and which pods must run elsewhere.
    pub death: Death,
    /// Up to where the watch's lines were heard.
    heard: usize,
    /// What was told already.
    told: BTreeSet<String>,
    /// The Incident about this life, once there is one; the one in which it was condemned before any other.
    pub incident: Option<(String, Value)>,
    /// Pods of `death.pods` that run elsewhere by now.
    moved: BTreeSet<String>,
    tainted: bool,
}

// === impl Story ===

impl<'a> Story<'a> {
    /// Looks at the machine while it is well.
    ///
    /// # Errors
    /// When it is off.
    pub async fn begin(site: &'a Site, machine: &str) -> Result<Self> {
        let boot_id = site.boot_id(machine).await?;
        let pods = site.placed_on(machine).into_iter().map(|Placed { name, uid, .. }| (name, uid)).collect();
        let death = Death { machine: machine.to_owned(), boot_id, silent: truth::now_ns()?, pods };
        Ok(Self {
            site,
            death,
            heard: site.watch.position(),
            told: BTreeSet::new(),
            incident: None,
            moved: BTreeSet::new(),
            tainted: false,
        })
    }

    /// Tells what is done to the machine, does it, and counts from the true instant of it: when its power began to go,
    /// when it hung, or when its cable was cut.
    ///
    /// # Errors
    /// When it cannot be done.
    pub async fn harm(&mut self, what: &str, act: impl AsyncFnOnce(&Site, &str) -> Result<()>) -> Result<()> {
        let workloads: Vec<&str> = self.death.pods.iter().map(|(name, _)| short(name)).collect();
        let machine = self.death.machine.clone();
        self.site.tell.line(&format!("  {machine} (runs {}): {what}", workloads.join(", ")));
        self.heard = self.site.watch.position();
        let before = truth::now_ns()?;
        act(self.site, &machine).await?;
        let lines = truth::read(&self.site.plan().names.truth())?;
        let mut since =
            lines.iter().filter(|line| line.t >= before && line.machine.as_ref() == Some(&machine));
        let instant = since.find_map(|line| match line.event {
            Event::OffBegin => Some(line.t),
            Event::Frozen | Event::Cut => Some(line.detail["begin_t"].as_u64().unwrap_or(line.t)),
            Event::On | Event::OffDone | Event::Thawed | Event::Healed => None,
        });
        self.death.silent =
            instant.with_context(|| format!("the lab does not say when {machine} fell silent"))?;
        Ok(())
    }

    /// Until `done` finds what it looks for; tells everything that is heard meanwhile.
    ///
    /// # Errors
    /// When that is not the case after `patience`.
    pub async fn until<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut done: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T> {
        let tell = self.site.tell.clone();
        tell.until(what, patience, async || {
            self.hear();
            Ok(match done(self) {
                Some(found) => Look::There(found),
                None => Look::Missing(self.stands()),
            })
        })
        .await
    }

    /// Until everything that ran on the machine runs elsewhere; then gives the stages.
    ///
    /// # Errors
    /// When it does not within `patience`.
    pub async fn until_running(&mut self, patience: Duration) -> Result<Stages> {
        let what = format!("everything of {} Running elsewhere", self.death.machine);
        self.until(&what, patience, |story| story.all_moved().then_some(())).await?;
        self.stages().await
    }

    /// The stages so far.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub async fn stages(&self) -> Result<Stages> {
        Ok(Stages::of(&self.site.record().await?, &self.death))
    }

    /// For so long, during which `must_not` may find nothing.
    ///
    /// # Errors
    /// What it finds.
    pub async fn nothing_for(
        &mut self,
        span: Duration,
        mut must_not: impl FnMut(&Self) -> Option<String>,
    ) -> Result<()> {
        let end = truth::now_ns()? + u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        while truth::now_ns()? < end {
            self.hear();
            if let Some(what) = must_not(self) {
                anyhow::bail!("{what}");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// A field of the Incident's status, if it says anything.
    #[must_use]
    pub fn says(&self, field: &str) -> Option<&str> {
        let (_, object) = self.incident.as_ref()?;
        object["status"][field].as_str().filter(|text| !text.is_empty())
    }

    /// Whether its timeline has that word.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        let timeline = self.incident.as_ref().and_then(|(_, object)| object["status"]["timeline"].as_array());
        timeline.is_some_and(|lines| lines.iter().any(|line| line["what"] == word))
    }

    /// Whether the out-of-service taint was seen on the Node.
    #[must_use]
    pub fn tainted(&self) -> bool {
        self.tainted
    }

    /// Whether everything that ran there runs elsewhere.
    #[must_use]
    pub fn all_moved(&self) -> bool {
        self.moved.len() == self.death.pods.len()
    }

    /// How things stand, for somebody who waits.
    #[must_use]
    pub fn stands(&self) -> String {
        let Some(phase) = self.says("phase") else { return "no incident".to_owned() };
        let why = self.says("heldReason").or_else(|| self.says("waitingFor")).unwrap_or_default();
        format!("{phase} {why}").trim().to_owned()
    }

    /// Hears what is new, and tells it.
    pub fn hear(&mut self) {
        let news = self.site.watch.since(self.heard);
        self.heard += news.len();
        for seen in news {
            match seen.kind {
                Kind::Incident => self.hear_incident(&seen),
                Kind::Node if seen.name == self.death.machine => self.hear_node(&seen),
                Kind::Pod => self.hear_pod(&seen),
                Kind::Page if seen.object["node"] == self.death.machine.as_str() => {
                    let text = |key: &str| seen.object[key].as_str().unwrap_or_default().to_owned();
                    self.tell_once(seen.t, &format!("page {}: {}", text("reason"), text("message")));
                }
                Kind::Node | Kind::Page | Kind::Binding => {}
            }
        }
    }

    fn hear_incident(&mut self, seen: &Seen) {
        let spec = &seen.object["spec"];
        if spec["nodeName"] != self.death.machine.as_str() || spec["bootID"] != self.death.boot_id.as_str() {
            return;
        }
        for line in seen.object["status"]["timeline"].as_array().into_iter().flatten() {
            let text = |key: &str| line[key].as_str().unwrap_or_default();
            // The leader reads its clock anew with each copy; the stamp of the first copy is told.
            let at = self.site.wall_to_boottime(text("at")).unwrap_or(seen.t);
            let said = format!("{} {}", text("what"), text("detail"));
            self.tell_once(at, said.trim());
        }
        // A life may be held before and after; what counts is the incident in which it was condemned.
        let condemned = |object: &Value| {
            let timeline = object["status"]["timeline"].as_array();
            timeline.is_some_and(|lines| lines.iter().any(|line| line["what"] == "Condemned"))
        };
        let stays = self
            .incident
            .as_ref()
            .is_some_and(|(name, known)| *name != seen.name && condemned(known) && !condemned(&seen.object));
        if !stays {
            self.incident = Some((seen.name.clone(), seen.object.clone()));
        }
    }

    fn hear_node(&mut self, seen: &Seen) {
        let Some(node) = seen.node() else { return };
        if node.out_of_service && !self.tainted {
            self.tainted = true;
            self.tell_once(seen.t, "the Node carries the out-of-service taint");
        }
        if node.ready != "True" {
            self.tell_once(seen.t, &format!("Kubernetes says Ready={} of {}", node.ready, seen.name));
        }
    }

    fn hear_pod(&mut self, seen: &Seen) {
        let Some((name, old)) = self.death.pods.iter().find(|(name, _)| *name == seen.name).cloned() else {
            return;
        };
        if seen.uid == old && seen.change == Change::Gone {
            self.tell_once(seen.t, &format!("the old object of pod {} is gone", short(&name)));
        }
        let Some(pod) = seen.pod() else { return };
        if seen.uid != old
            && pod.phase == "Running"
            && pod.node != self.death.machine
            && self.moved.insert(name)
        {
            self.tell_once(seen.t, &format!("{} is Running on {}", short(&seen.name), pod.node));
        }
    }

    fn tell_once(&mut self, t: u64, text: &str) {
        if self.told.insert(text.to_owned()) {
            let tenths = (t.saturating_sub(self.death.silent) + 50_000_000) / 100_000_000;
            self.site.tell.line(&format!("  {:>4}.{} s  {text}", tenths / 10, tenths % 10));
        }
    }
}

// === impl Site ===

impl Site {
    /// The instant of a stamp of the wall clock, by the clocks as they are now.
    #[must_use]
    pub fn wall_to_boottime(&self, stamp: &str) -> Option<u64> {
        crate::oracles::clock::Clock::new(vec![Sample::now()]).of_stamp(stamp)
    }
}

/// A pod's name without its namespace.
#[must_use]
pub fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
