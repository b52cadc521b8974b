//! The lives of the machines and what did not pass, from the lines of `truth.jsonl`.

use std::collections::BTreeMap;

use crate::lab::{
    Direction, Target,
    cuts::Cut,
    truth::{Event, Line},
};

/// One life of a machine: from power-on to the end of the last process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The machine.
    pub machine: String,
    /// Of this life.
    pub boot_id: String,
    /// Before the first process.
    pub on: u64,
    /// When power began to go.
    pub off_begin: Option<u64>,
    /// When nothing of it could run any more.
    pub off_done: Option<u64>,
    /// Hangs: from, and to where it went on.
    pub hangs: Vec<(u64, Option<u64>)>,
}

/// A cut, and how long it lasted.
#[derive(Clone, Debug)]
pub struct CutSpan {
    /// What did not pass.
    pub cut: Cut,
    /// From.
    pub begin: u64,
    /// To; `None`: to the end.
    pub end: Option<u64>,
}

/// What became of all machines.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    /// In the order of their power-ons.
    pub lives: Vec<Life>,
    /// In the order in which they were made.
    pub cuts: Vec<CutSpan>,
}

/// What could be said of a machine at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It ran, and its beacons could leave its rack.
    Lives,
    /// It ran, but nothing of it could be heard.
    Unheard,
    /// Nothing of it ran, and it was not over.
    Hangs,
    /// Its power was going or gone.
    Off,
}

// === impl Life ===

impl Life {
    /// Whether the life lasted at that instant.
    #[must_use]
    pub fn lasts_at(&self, t: u64) -> bool {
        self.on <= t && self.off_done.is_none_or(|end| t < end)
    }

    fn hangs_at(&self, t: u64) -> bool {
        self.hangs.iter().any(|(from, to)| *from <= t && to.is_none_or(|to| t < to))
    }
}

// === impl Lives ===

impl Lives {
    /// From the lines in their order.
    #[must_use]
    pub fn new(lines: &[Line]) -> Self {
        let mut all = Self::default();
        // A cut is found again by its target when it is healed.
        let mut open: BTreeMap<String, usize> = BTreeMap::new();
        for line in lines {
            match line.event {
                Event::On => all.lives.extend(born(line)),
                Event::OffBegin => {
                    all.with_life(line, |life| life.off_begin = life.off_begin.or(Some(line.t)));
                }
                Event::OffDone => all.with_life(line, |life| {
                    life.off_begin = life.off_begin.or(Some(line.t));
                    life.off_done = Some(line.t);
                }),
                Event::Frozen => all.with_life(line, |life| life.hangs.push((begin(line), None))),
                Event::Thawed => all.with_life(line, |life| {
                    if let Some((_, to)) = life.hangs.last_mut() {
                        *to = Some(line.t);
                    }
                }),
                Event::Cut => all.cut(line, &mut open),
                Event::Healed => {
                    if let Some(at) = target_key(line).and_then(|key| open.remove(&key)) {
                        all.cuts[at].end = Some(line.t);
                    }
                }
            }
        }
        all
    }

    /// The life of that boot.
    #[must_use]
    pub fn life(&self, machine: &str, boot_id: &str) -> Option<&Life> {
        self.lives.iter().find(|life| life.machine == machine && life.boot_id == boot_id)
    }

    /// The life that the machine had at that instant.
    #[must_use]
    pub fn life_at(&self, machine: &str, t: u64) -> Option<&Life> {
        self.lives.iter().rev().find(|life| life.machine == machine && life.lasts_at(t))
    }

    /// What could be said of a machine in that rack at that instant.
    #[must_use]
    pub fn condition(&self, machine: &str, rack: &str, t: u64) -> Condition {
        match self.life_at(machine, t) {
            None => Condition::Off,
            Some(life) if life.off_begin.is_some_and(|begin| begin <= t) => Condition::Off,
            Some(life) if life.hangs_at(t) => Condition::Hangs,
            Some(_) if self.is_cut_off(machine, rack, t) => Condition::Unheard,
            Some(_) => Condition::Lives,
        }
    }

    /// Whether nothing that it sends reaches another rack. What is cut between two machines, or from the API server
    /// only, or loses some packets, leaves it heard by somebody.
    fn is_cut_off(&self, machine: &str, rack: &str, t: u64) -> bool {
        self.cuts.iter().filter(|span| span.begin <= t && span.end.is_none_or(|end| t < end)).any(|span| {
            let Cut { target, direction, loss } = &span.cut;
            let hit = match target {
                Target::Link { machine: cut } => cut == machine,
                Target::Rack { rack: cut } => cut == rack,
                Target::Api { .. }
                | Target::Pair { .. }
                | Target::BmcLink { .. }
                | Target::Bmc { .. }
                | Target::BmcNetwork => false,
            };
            hit && *direction != Direction::In && loss.is_none_or(|percent| percent >= 100)
        })
    }

    fn with_life(&mut self, line: &Line, change: impl FnOnce(&mut Life)) {
        let found = self.lives.iter_mut().rev().find(|life| {
            Some(&life.machine) == line.machine.as_ref()
                && line.boot_id.as_ref().is_none_or(|boot_id| *boot_id == life.boot_id)
        });
        if let Some(life) = found {
            change(life);
        }
    }

    fn cut(&mut self, line: &Line, open: &mut BTreeMap<String, usize>) {
        let Ok(cut) = serde_json::from_value::<Cut>(line.detail["cut"].clone()) else { return };
        let Some(key) = target_key(line) else { return };
        // A cut with the same target takes the place of the older one.
        if let Some(at) = open.insert(key, self.cuts.len()) {
            self.cuts[at].end = Some(line.t);
        }
        self.cuts.push(CutSpan { cut, begin: begin(line), end: None });
    }
}

// === helpers ===

fn born(line: &Line) -> Option<Life> {
    let (machine, boot_id) = (line.machine.clone()?, line.boot_id.clone()?);
    Some(Life { machine, boot_id, on: line.t, off_begin: None, off_done: None, hangs: Vec::new() })
}

/// When it was ordered; the stamp of the line is when it was done.
fn begin(line: &Line) -> u64 {
    line.detail["begin_t"].as_u64().unwrap_or(line.t)
}

fn target_key(line: &Line) -> Option<String> {
    let target = &line.detail["cut"]["target"];
    (!target.is_null()).then(|| target.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Lines as `t machine boot event detail`.
    fn lines(text: &str) -> Vec<Line> {
        let parse = |line: &str| {
            let mut words = line.trim().splitn(5, ' ');
            let t: u64 = words.next().unwrap().parse().unwrap();
            let mut word = || words.next().filter(|w| *w != "-").map(str::to_owned);
            let (machine, boot_id, event) = (word(), word(), word().unwrap());
            let detail = word().map_or(Value::Null, |d| serde_json::from_str(&d).unwrap());
            serde_json::from_value(serde_json::json!({
                "t": t, "machine": machine, "boot_id": boot_id, "event": event, "detail": detail,
            }))
            .unwrap()
        };
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(parse).collect()
    }

    #[test]
    fn what_could_be_said_of_a_machine_at_each_instant() {
        let lives = Lives::new(&lines(
            r#"
            10 n1 a on
            20 n1 a frozen {"begin_t":18}
            30 n1 a thawed
            40 n1 a cut {"begin_t":39,"cut":{"target":{"kind":"link","machine":"n1"},"direction":"out"}}
            50 n1 a healed {"cut":{"target":{"kind":"link","machine":"n1"},"direction":"out"}}
            52 n1 a cut {"begin_t":52,"cut":{"target":{"kind":"api","machine":"n1"},"direction":"both"}}
            60 - - cut {"begin_t":60,"cut":{"target":{"kind":"rack","rack":"r1"},"direction":"both"}}
            65 - - cut {"begin_t":65,"cut":{"target":{"kind":"rack","rack":"r1"},"direction":"in"}}
            70 n1 a off_begin
            80 n1 a off_done
            90 n1 b on
            "#,
        ));
        let table = [
            (9, Condition::Off),
            (10, Condition::Lives),
            (18, Condition::Hangs),
            (30, Condition::Lives),
            (39, Condition::Unheard),
            (50, Condition::Lives),
            (55, Condition::Lives),
            (60, Condition::Unheard),
            (65, Condition::Lives),
            (70, Condition::Off),
            (85, Condition::Off),
            (90, Condition::Lives),
        ];
        for (t, want) in table {
            assert_eq!(lives.condition("n1", "r1", t), want, "at {t}");
        }
        assert_eq!(lives.life("n1", "a").unwrap().off_done, Some(80));
        assert_eq!(lives.life_at("n1", 95).unwrap().boot_id, "b");
        assert!(lives.life_at("n1", 85).is_none());
    }
}
