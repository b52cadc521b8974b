//! The network: who reaches whom, how long it takes, and what is lost on the way.

use std::collections::BTreeMap;

use coroner_shared::time::{Mono, Span};

use super::chance::Chance;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Only datagrams longer than so many bytes (0: all): a path whose MTU is smaller than its ends believe.
    pub(crate) longer_than: usize,
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
    /// So much longer than others take agents' datagrams among themselves.
    pub(crate) slow_peers: Span,
    /// Losses come in bursts: the longest good and the longest bad time of a way.
    pub(crate) bursts: Option<(Span, Span)>,
    /// Whether a way is bad now, and until when it stays as it is.
    ways: BTreeMap<(End, End), (bool, Mono)>,
    cuts: Vec<(u64, Cut)>,
    count: u64,
    chance: Chance,
    /// When the weather changed, or everything healed.
    pub(crate) changed: Mono,
    /// Cuts that came or went, and when.
    changes: Vec<(Mono, Cut)>,
}

/// A datagram on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage {
    pub(crate) after: Span,
    pub(crate) corrupt: bool,
}

/// Changes are remembered for so long.
const REMEMBERED: Span = Span::from_mins(1);
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

impl Cut {
    fn stops(&self, bytes: usize) -> bool {
        self.longer_than == 0 || bytes > self.longer_than
    }

    fn touches(&self, from: End, to: End, flow: Flow) -> bool {
        self.from.has(from) && self.to.has(to) && self.flows.as_ref().is_none_or(|f| f.contains(&flow))
    }
}

// === impl Network ===

impl Network {
    pub(crate) fn new(chance: Chance) -> Self {
        Self {
            weather: Weather::FAIR,
            slow_peers: Span::ZERO,
            bursts: None,
            ways: BTreeMap::new(),
            cuts: Vec::new(),
            count: 0,
            chance,
            changed: Mono::default(),
            changes: Vec::new(),
        }
    }

    /// Adds a cut; the number takes it away again.
    pub(crate) fn cut(&mut self, now: Mono, cut: Cut) -> u64 {
        self.count += 1;
        self.note_change(now, cut.clone());
        self.cuts.push((self.count, cut));
        self.count
    }

    pub(crate) fn heal(&mut self, now: Mono, number: u64) {
        let gone = self.cuts.iter().find(|(n, _)| *n == number).map(|(_, cut)| cut.clone());
        if let Some(cut) = gone {
            self.note_change(now, cut);
        }
        self.cuts.retain(|(n, _)| *n != number);
    }

    pub(crate) fn heal_all(&mut self, now: Mono) {
        self.changed = now;
        self.cuts.clear();
        self.weather = Weather::FAIR;
        self.storms_in_bursts(now, None);
    }

    /// From now on every way is good and bad by turns; `None`: no longer.
    pub(crate) fn storms_in_bursts(&mut self, now: Mono, bursts: Option<(Span, Span)>) {
        self.changed = now;
        self.bursts = bursts;
        self.ways.clear();
    }

    fn note_change(&mut self, now: Mono, cut: Cut) {
        self.changes.retain(|(at, _)| now.since(*at) <= REMEMBERED);
        self.changes.push((now, cut));
    }

    /// Whether nothing has come or gone on that way for so long, at most for a minute.
    pub(crate) fn is_calm(&self, now: Mono, ways: (End, End), flow: Flow, span: Span) -> bool {
        let (from, to) = ways;
        let touched =
            self.changes.iter().any(|(at, cut)| now.since(*at) <= span && cut.touches(from, to, flow));
        !touched && now.since(self.changed) > span
    }

    /// Percent of what goes that way that is lost, the weather not counted.
    pub(crate) fn loss(&self, from: End, to: End, flow: Flow) -> u64 {
        self.loss_of(from, to, flow, usize::MAX)
    }

    /// The same, of a datagram of so many bytes.
    fn loss_of(&self, from: End, to: End, flow: Flow, bytes: usize) -> u64 {
        let hits = self.cuts.iter().filter(|(_, cut)| cut.stops(bytes) && cut.touches(from, to, flow));
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

    /// Whether long datagrams have a harder time than short ones.
    pub(crate) fn is_narrow(&self) -> bool {
        self.cuts.iter().any(|(_, cut)| cut.longer_than > 0)
    }

    /// A datagram of so many bytes: none, one or two arrivals.
    pub(crate) fn datagram(
        &mut self,
        now: Mono,
        ends: (End, End),
        flow: Flow,
        bytes: usize,
    ) -> impl Iterator<Item = Passage> + use<> {
        let (from, to) = ends;
        let loss = self.loss_of(from, to, flow, bytes).max(self.weather.loss);
        let copies = if from != to && (self.chance.percent(loss) || self.in_a_burst(now, ends)) {
            0
        } else if self.chance.percent(self.weather.duplicate) {
            2
        } else {
            1
        };
        let mut arrivals = [None; 2];
        for arrival in arrivals.iter_mut().take(copies) {
            let more = if flow == Flow::Peer { self.slow_peers } else { Span::ZERO };
            let after = self.one_way() + more;
            let corrupt = from != to && self.chance.percent(self.weather.corrupt);
            *arrival = Some(Passage { after, corrupt });
        }
        arrivals.into_iter().flatten()
    }

    /// Whether that way is in a bad time.
    fn in_a_burst(&mut self, now: Mono, ways: (End, End)) -> bool {
        let Some((good, bad)) = self.bursts else { return false };
        let (mut is_bad, mut until) = self.ways.get(&ways).copied().unwrap_or((false, now));
        while until <= now {
            is_bad = !is_bad;
            let longest = if is_bad { bad } else { good };
            until = until + self.chance.span(Span::from_ms(1), longest);
        }
        self.ways.insert(ways, (is_bad, until));
        is_bad
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

#[cfg(test)]
mod tests {
    use super::super::chance::Purpose;
    use super::*;

    /// What of 100 datagrams of so many bytes passes a cut.
    fn passed(cut: Cut, bytes: usize) -> usize {
        let mut network = Network::new(Chance::new(1, Purpose::Network));
        network.cut(Mono::default(), cut);
        let way = (End::Host(0), End::Host(1));
        (0..100)
            .filter(|_| network.datagram(Mono::default(), way, Flow::Peer, bytes).next().is_some())
            .count()
    }

    fn cut(longer_than: usize) -> Cut {
        let flows = Some(vec![Flow::Peer]);
        Cut {
            name: "cut".to_owned(),
            from: Ends::Hosts(vec![0]),
            to: Ends::Any,
            flows,
            loss: 100,
            longer_than,
        }
    }

    #[test]
    fn a_cut_stops_datagrams_of_any_length_and_a_narrow_path_only_long_ones() {
        assert_eq!((passed(cut(0), 0), passed(cut(0), 1_400)), (0, 0));
        assert_eq!((passed(cut(300), 300), passed(cut(300), 301)), (100, 0));
    }

    #[test]
    fn bursts_come_and_go() {
        let mut network = Network::new(Chance::new(1, Purpose::Network));
        network.storms_in_bursts(Mono::default(), Some((Span::from_secs(1), Span::from_secs(1))));
        let way = (End::Host(0), End::Host(1));
        let passes: Vec<bool> = (0..2_000)
            .map(|n| network.datagram(Mono::from_ms(10 * n), way, Flow::Peer, 0).next().is_some())
            .collect();
        let turns = passes.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let lost = passes.iter().filter(|passed| !**passed).count();
        assert!((10..200).contains(&turns) && (500..1_500).contains(&lost), "{turns} turns, {lost} lost");
    }
}
