//! Plays scenarios on a site, one after the other; what comes back from one does so beside the next.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{
    Case, Told,
    results::{Outcome, Results},
    returns::Return,
    settle::settle,
};
use crate::{
    lab::{
        site::{Site, SiteConfig, tell::Tell},
        writer::boottime_ns,
    },
    oracles::{Finding, ORACLES, traces::CLEAN_END},
};

/// A site and what was played on it.
pub struct Player<'a> {
    site: &'a Site,
    outcomes: Vec<Outcome>,
    /// Nodes on their way back, and to which outcome they belong.
    returning: Vec<(usize, Return)>,
    /// Nodes that did not come back as they were.
    unclean: Vec<Finding>,
    steady: bool,
}

// === impl Player ===

impl<'a> Player<'a> {
    /// On a site that runs.
    #[must_use]
    pub fn new(site: &'a Site) -> Self {
        Self { site, outcomes: Vec::new(), returning: Vec::new(), unclean: Vec::new(), steady: false }
    }

    /// Plays one. What goes wrong is its outcome, and stops nothing here.
    pub async fn play(&mut self, case: &Case) {
        let tell = &self.site.tell;
        let mut played = Ok(());
        if case.steady && !self.steady {
            tell.title("every BMC becomes steady: its word is taken quickly only after 120 s without a gap");
            played = self.site.wait_steady(&[]).await;
            self.steady = played.is_ok();
        }
        tell.title(&format!("{}: {}", case.name, case.about));
        let told = match played {
            Ok(()) => (case.play)(self.site).await.and_then(|told| self.site.bmcs.check().map(|()| told)),
            Err(error) => Err(error),
        };
        let (pass, Told { why, ms, returns }) = match told {
            Ok(told) => (true, told),
            Err(error) => (false, Told { why: format!("{error:#}"), ..Told::default() }),
        };
        tell.line(&format!("  {} {why}", tell.verdict(pass, if pass { "pass:" } else { "FAIL:" })));
        let at = self.outcomes.len();
        self.returning.extend(returns.into_iter().map(|back| (at, back)));
        self.outcomes.push(Outcome { name: case.name.to_owned(), pass, why, ms });
    }

    /// Waits until everything is back. What does not come back, or not as it was, spoils its scenario.
    pub async fn wait_returns(&mut self) {
        for (at, back) in std::mem::take(&mut self.returning) {
            let played = self.outcomes.get(at).map_or("what was played", |outcome| outcome.name.as_str());
            if let Err(error) = back.wait(self.site, played).await {
                let what = format!("{error:#}");
                self.spoil(at, &what);
                self.unclean.push(Finding { oracle: CLEAN_END.to_owned(), t: boottime_ns(), what });
            }
        }
    }

    /// Asks the oracles about everything so far.
    ///
    /// # Errors
    /// When the record cannot be read: then nothing is shown.
    pub async fn judge(self) -> Result<Results> {
        let Self { site, outcomes, unclean, .. } = self;
        let mut findings = site.findings().await?;
        findings.extend(unclean);
        tell_findings(site, &findings);
        Ok(Results::new(outcomes, findings))
    }

    fn spoil(&mut self, at: usize, why: &str) {
        if let Some(outcome) = self.outcomes.get_mut(at) {
            self.site.tell.line(&format!(
                "  {} {}: {why}",
                self.site.tell.verdict(false, "FAIL:"),
                outcome.name
            ));
            outcome.why = if outcome.pass { why.to_owned() } else { format!("{}; {why}", outcome.why) };
            outcome.pass = false;
        }
    }
}

/// Each oracle's verdict in a line.
fn tell_findings(site: &Site, findings: &[Finding]) {
    let tell = &site.tell;
    tell.title("the oracles, which read what truly happened and never what Coroner says of itself");
    let oracles = ORACLES.iter().map(|oracle| (oracle.name, oracle.holds));
    for (name, holds) in
        oracles.chain([(CLEAN_END, "whoever came back is what they were before, byte for byte")])
    {
        let found: Vec<&Finding> = findings.iter().filter(|finding| finding.oracle == name).collect();
        let verdict = tell.verdict(found.is_empty(), if found.is_empty() { "holds " } else { "BROKEN" });
        tell.line(&format!("  {verdict} {name:<24}{holds}"));
        for finding in found {
            tell.line(&format!("         {}", finding.what));
        }
    }
}

// === for tests ===

/// Names scenarios, with commas between them: only those are played.
pub const ONLY_VARIABLE: &str = "CORONER_ONLY";

/// A test: a site of its own, these scenarios, each with its way back, and the oracles' verdict. A site that does not
/// come to order after a scenario is replaced by a new one.
///
/// # Errors
/// Everything that did not go as it should, and where the logs are.
pub async fn test(config: &SiteConfig, cases: &[Case]) -> Result<()> {
    test_and(config, cases, |_| Ok(Vec::new())).await
}

/// As [`test`], and once all of them were played on one site, `also` says what else is wrong with it.
///
/// # Errors
/// As [`test`].
pub async fn test_and(
    config: &SiteConfig,
    cases: &[Case],
    also: fn(&Site) -> Result<Vec<String>>,
) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: the lab needs root");
        return Ok(());
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tell = Tell::stdout(true);
    let mut left: Vec<&Case> = cases.iter().filter(|case| wanted(case)).collect();
    let mut trouble = Vec::new();
    while !left.is_empty() {
        let site = Site::up(config.clone(), tell.clone()).await?;
        let (played, findings) = play_in_order(&site, &left).await;
        left.drain(..played.len().max(1));
        for outcome in &played {
            let Outcome { name, pass, why, ms } = outcome;
            tell.line(&format!("{} {name}: {why} {}", if *pass { "ok" } else { "FAILED" }, json!(ms)));
            if !pass {
                trouble.push(format!("{name}: {why}"));
            }
        }
        trouble.extend(findings?.into_iter().map(|finding| format!("{}: {}", finding.oracle, finding.what)));
        if played.len() == cases.len() {
            trouble.extend(also(&site)?);
        }
        site.down(!trouble.is_empty()).await?;
        if !trouble.is_empty() && !left.is_empty() {
            // The next site would take the place of this one's evidence.
            let names: Vec<&str> = left.iter().map(|case| case.name).collect();
            tell.line(&format!("not played, since the site was of no use any more: {}", names.join(", ")));
            break;
        }
    }
    ensure!(
        trouble.is_empty(),
        "{}\n(logs and records are kept in {})",
        trouble.join("\n"),
        config.evidence.display()
    );
    Ok(())
}

/// Plays as long as the site comes to order after each; what was played, and what the oracles found.
async fn play_in_order(site: &Site, cases: &[&Case]) -> (Vec<Outcome>, Result<Vec<Finding>>) {
    let mut player = Player::new(site);
    for case in cases {
        player.play(case).await;
        player.wait_returns().await;
        if let Err(error) = settle(site).await {
            player.spoil(player.outcomes.len().saturating_sub(1), &format!("and then: {error:#}"));
            break;
        }
    }
    let findings = site.findings().await;
    (player.outcomes, findings)
}

#[expect(clippy::disallowed_methods, reason = "tests that cargo starts have no command line of their own")]
fn wanted(case: &Case) -> bool {
    let only = std::env::var(ONLY_VARIABLE).unwrap_or_default();
    only.is_empty() || only.split(',').any(|name| name == case.name)
}
