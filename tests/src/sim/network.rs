//! The network: who reaches whom, how long it takes, and what is lost on the way.

use coroner_shared::time::{Mono, Span};

use super::chance::Chance;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A machine's data link.
    Host(usize),
    /// The API server.
    Api,
    /// A machine's BMC.
    Bmc(usize),
}

/// What is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Agents' UDP among themselves.
    Peer,
    /// Agents' UDP to replicas, and back.
    Report,
    /// TCP to replicas: Raft, what followers hear, agents' requests.
    Replica,
    /// TCP to the kubelet's port.
    Kubelet,
    /// ICMP.
    Ping,
    /// To the API server.
    Api,
    /// To BMCs.
    Bmc,
}

/// Some ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// All.
    Any,
    /// These machines' data links.
    Hosts(Vec<usize>),
    /// All machines' data links but these.
    NotHosts(Vec<usize>),
    /// The API server.
    Api,
    /// These machines' BMCs.
    Bmcs(Vec<usize>),
}

/// What does not pass, or not always.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) name: String,
    pub(crate) from: Ends,
    pub(crate) to: Ends,
    /// `None`: all of them.
    pub(crate) flows: Option<Vec<Flow>>,
    /// 100: nothing passes.
    pub(crate) loss: u64,
}

/// The weather.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Of each datagram, percent.
    pub(crate) loss: u64,
    /// Of each datagram, percent.
    pub(crate) duplicate: u64,
    /// Of each datagram, percent: its signature is then none.
    pub(crate) corrupt: u64,
    /// Least and most time on the way.
    pub(crate) delay: (Span, Span),
}

/// The network.
pub(crate) struct Network {
    pub(crate) weather: Weather,
    cuts: Vec<(u64, Cut)>,
    count: u64,
    chance: Chance,
    /// When the last cut came or went, or the weather changed.
    pub(crate) changed: Mono,
}

/// A datagram on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage {
    pub(crate) after: Span,
    pub(crate) corrupt: bool,
}

/// TCP sends again what was lost; after so many tries the connection is given up.
const TRIES: u32 = 6;
/// Between two of them.
const AGAIN: Span = Span::from_ms(200);

// === impl Weather ===

impl Weather {
    pub(crate) const FAIR: Self =
        Self { loss: 0, duplicate: 0, corrupt: 0, delay: (Span::from_ms(1), Span::from_ms(2)) };
}

// === impl Ends ===

impl Ends {
    fn has(&self, end: End) -> bool {
        match (self, end) {
            (Self::Any, _) | (Self::Api, End::Api) => true,
            (Self::Hosts(hosts), End::Host(host)) => hosts.contains(&host),
            (Self::NotHosts(hosts), End::Host(host)) => !hosts.contains(&host),
            (Self::Bmcs(bmcs), End::Bmc(bmc)) => bmcs.contains(&bmc),
            (Self::Hosts(_) | Self::NotHosts(_) | Self::Api | Self::Bmcs(_), _) => false,
        }
    }
}

// === impl Network ===

impl Network {
    pub(crate) fn new(chance: Chance) -> Self {
        Self { weather: Weather::FAIR, cuts: Vec::new(), count: 0, chance, changed: Mono::default() }
    }

    /// Adds a cut; the number takes it away again.
    pub(crate) fn cut(&mut self, now: Mono, cut: Cut) -> u64 {
        self.count += 1;
        self.changed = now;
        self.cuts.push((self.count, cut));
        self.count
    }

    pub(crate) fn heal(&mut self, now: Mono, number: u64) {
        self.changed = now;
        self.cuts.retain(|(n, _)| *n != number);
    }

    pub(crate) fn heal_all(&mut self, now: Mono) {
        self.changed = now;
        self.cuts.clear();
        self.weather = Weather::FAIR;
    }

    /// Percent of what goes that way that is lost, the weather not counted.
    pub(crate) fn loss(&self, from: End, to: End, flow: Flow) -> u64 {
        let hits = self.cuts.iter().filter(|(_, cut)| {
            cut.from.has(from) && cut.to.has(to) && cut.flows.as_ref().is_none_or(|f| f.contains(&flow))
        });
        hits.map(|(_, cut)| cut.loss).max().unwrap_or(0)
    }

    /// Whether that way is as good as it can be.
    pub(crate) fn is_whole(&self, from: End, to: End, flow: Flow) -> bool {
        from == to || self.loss(from, to, flow) == 0
    }

    fn one_way(&mut self) -> Span {
        let (low, high) = self.weather.delay;
        self.chance.span(low, high)
    }

    /// A datagram: none, one or two arrivals.
    pub(crate) fn datagram(&mut self, from: End, to: End, flow: Flow) -> Vec<Passage> {
        let loss = self.loss(from, to, flow).max(self.weather.loss);
        if from != to && self.chance.percent(loss) {
            return Vec::new();
        }
        let copies = if self.chance.percent(self.weather.duplicate) { 2 } else { 1 };
        (0..copies)
            .map(|_| Passage {
                after: self.one_way(),
                corrupt: from != to && self.chance.percent(self.weather.corrupt),
            })
            .collect()
    }

    /// A message over a connection: lost segments cost time. `None`: it never arrives.
    pub(crate) fn stream(&mut self, from: End, to: End, flow: Flow) -> Option<Span> {
        if from == to {
            return Some(Span::from_ms(0));
        }
        // An answer has to come back, or nothing goes on.
        let loss = self.loss(from, to, flow).max(self.loss(to, from, flow));
        if loss >= 100 {
            return None;
        }
        let loss = loss.max(self.weather.loss);
        let mut after = self.one_way();
        for _ in 0..TRIES {
            if !self.chance.percent(loss) {
                return Some(after);
            }
            after += AGAIN;
        }
        None
    }
}
