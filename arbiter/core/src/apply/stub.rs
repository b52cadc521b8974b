//! Stands in for the decision rule until it is there.
use crate::phase::{EvidenceClass, HeldReason};
use crate::policy::Rules;
use crate::view::{BmcRead, Pending, Verdict, View};

pub(crate) fn verdict(view: &View, rules: &Rules) -> Verdict {
    let Some(sign) = &view.last_sign else { return Verdict::Held(HeldReason::NotSeenYet) };
    if sign.age < rules.beacons.suspect {
        return Verdict::Pending(Pending::Heard);
    }
    match view.bmc.first().map(|b| &b.read) {
        Some(BmcRead::Off { .. }) => Verdict::Dead(EvidenceClass::FoundOff),
        Some(BmcRead::On) if sign.age >= rules.silent_bmc_on => Verdict::Dead(EvidenceClass::HostSilentBmcOn),
        Some(BmcRead::On) => {
            Verdict::Pending(Pending::Deadline { left: rules.silent_bmc_on.saturating_sub(sign.age) })
        }
        Some(BmcRead::Silent { .. }) => Verdict::Held(HeldReason::BmcSilent),
        Some(BmcRead::Unclear { what, .. }) => Verdict::Held(HeldReason::BmcUnclear(what.clone())),
        Some(BmcRead::NotRead) | None => Verdict::Pending(Pending::Bmc),
    }
}
