//! 127.0.0.1:7464: `/healthz` and `/readyz` for the kubelet, `/metrics` for whoever scrapes the host. Read only, open,
//! bounded. Nothing here is on the beacon's path.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coroner_shared::slice::Slice;
use coroner_shared::time::{Mono, Span};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use crate::clock;
use crate::heartbeat::Pulse;

/// The beacon's thread shows itself each second; silence of this length means that it hangs.
const PULSE_WITHIN: Span = Span::from_secs(10);
/// Kubelet, scraper, and a person or two.
const CONNECTIONS_MAX: usize = 8;

/// What is shown.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) pulse: watch::Receiver<Pulse>,
    pub(crate) slice: watch::Receiver<Option<Slice>>,
    /// Why the host is not fenceable; empty if it is.
    pub(crate) not_fenceable: Arc<str>,
}

/// Serves for ever.
pub(crate) async fn serve(listener: TcpListener, shown: Shown) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    let shown = shown.clone();
                    connections.spawn(async move {
                        let service = service_fn(|request| {
                            let answer = answer(&shown, &request, clock::now());
                            async { Ok::<_, Infallible>(answer) }
                        });
                        let mut http = hyper::server::conn::http1::Builder::new();
                        http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(5)).max_buf_size(8192);
                        // A broken connection is its client's to notice.
                        let _ = http.serve_connection(TokioIo::new(stream), service).await;
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection to the health port");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Binds the port.
///
/// # Errors
/// Taken, or not this host's.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

// === helpers ===

fn answer(shown: &Shown, request: &Request<Incoming>, now: Mono) -> Response<Full<Bytes>> {
    let pulse = shown.pulse.borrow();
    let has_slice = shown.slice.borrow().is_some();
    let (status, text) =
        page(request.method(), request.uri().path(), &pulse, has_slice, &shown.not_fenceable, now);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn page(
    method: &Method,
    path: &str,
    pulse: &Pulse,
    has_slice: bool,
    not_fenceable: &str,
    now: Mono,
) -> (StatusCode, String) {
    let beats = now.since(pulse.at) <= PULSE_WITHIN;
    let unhealthy = |why: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    match (method, path) {
        (&Method::GET, "/healthz") if beats => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET, "/healthz") => unhealthy("the beacon's thread has not moved for 10 s"),
        (&Method::GET, "/readyz") if !beats => unhealthy("the beacon's thread has not moved for 10 s"),
        (&Method::GET, "/readyz") if !has_slice => unhealthy("not registered yet: no slice"),
        (&Method::GET, "/readyz") if !not_fenceable.is_empty() => {
            (StatusCode::OK, format!("registered; {not_fenceable}\n"))
        }
        (&Method::GET, "/readyz") => (StatusCode::OK, "registered\n".to_owned()),
        (&Method::GET, "/metrics") => (StatusCode::OK, metrics(pulse, not_fenceable.is_empty(), now)),
        (&Method::GET, _) => (StatusCode::NOT_FOUND, "here are /healthz, /readyz and /metrics\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
    }
}

/// The Prometheus text format, written by hand: two dozen numbers do not need a registry in every host's memory.
fn metrics(pulse: &Pulse, fenceable: bool, now: Mono) -> String {
    let view = &pulse.view;
    let mut text = String::with_capacity(4096);
    let secs = |span: Span| {
        let ms = span.as_ms();
        format!("{}.{:03}", ms / 1000, ms % 1000)
    };
    let mut put = |name: &str, kind: &str, help: &str, value: String| {
        let _ = write!(text, "# HELP coroner_agent_{name} {help}\n# TYPE coroner_agent_{name} {kind}\n");
        let _ = writeln!(text, "coroner_agent_{name} {value}");
    };
    let silent = view.subjects.iter().filter(|s| s.silent).count();
    for (name, help, value) in [
        ("fenceable", "Whether the host has a machine id.", u64::from(fenceable)),
        ("beaconing", "Whether beacons are sent.", u64::from(view.beaconing)),
        ("slice_version", "Version of the slice in use.", view.slice.unwrap_or(0)),
        ("subjects", "Hosts listened to.", view.subjects.len() as u64),
        ("subjects_silent", "Of those, reported silent.", silent as u64),
        ("observers", "Hosts that listen to this one.", view.observers as u64),
        ("observers_hearing", "Of those, said lately that they hear it.", view.observers_hearing as u64),
        ("doubts", "Reasons not to be believed.", view.doubts.len() as u64),
    ] {
        put(name, "gauge", help, value.to_string());
    }
    let counts = view.counts;
    for (name, help, value) in [
        ("beacons_sent_total", "Beacon rounds sent.", counts.beacons_sent),
        ("beacons_heard_total", "Beacons newer than those before.", counts.beacons_heard),
        ("beacons_ignored_total", "Beacons that were not.", counts.beacons_ignored),
        ("reports_sent_total", "Batches of reports sent, repeats included.", counts.reports_sent),
        ("silences_total", "Times a subject fell silent.", counts.silences),
        ("probes_sent_total", "Probes sent, on any path.", counts.probes_sent),
        ("asks_answered_total", "Questions of replicas answered.", counts.asks_answered),
        ("void_rounds_total", "Rounds voided by a late tick or a full socket.", counts.void_rounds),
        ("datagrams_sent_total", "Datagrams sent.", pulse.sent),
        ("datagrams_unsent_total", "Datagrams that the kernel did not take.", pulse.unsent),
        ("datagrams_verified_total", "Datagrams received, known and verified.", pulse.verified),
        ("datagrams_dropped_total", "Datagrams received and dropped.", pulse.dropped),
        ("kernel_drops_total", "Datagrams dropped at the full socket.", pulse.kernel_drops),
    ] {
        put(name, "counter", help, value.to_string());
    }
    put("pulse_age_seconds", "gauge", "Since the beacon's thread showed itself.", secs(now.since(pulse.at)));
    if let Some(rtt) = view.rtt_max {
        put("observer_rtt_seconds_max", "gauge", "Longest newest round trip to an observer.", secs(rtt));
    }
    if let Some(ago) = view.arbiter_contact {
        put("arbiter_contact_seconds", "gauge", "Since a replica answered or asked.", secs(ago));
    }
    let _ = writeln!(text, "# HELP coroner_agent_build_info Version of this build.");
    let _ = writeln!(text, "# TYPE coroner_agent_build_info gauge");
    let _ = writeln!(text, "coroner_agent_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, pulse_age_ms: u64, has_slice: bool, not_fenceable: &str, status: u16, part: &str) {
        let pulse = Pulse { at: Mono::from_ms(100_000), ..Pulse::default() };
        let now = Mono::from_ms(100_000 + pulse_age_ms);
        let (got, text) = page(&Method::GET, path, &pulse, has_slice, not_fenceable, now);
        assert_eq!(got.as_u16(), status, "{text}");
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn health_is_the_beacons_and_readiness_is_a_slice() {
        check("/healthz", 0, false, "", 200, "ok");
        check("/healthz", 10_001, true, "", 503, "has not moved");
        check("/readyz", 0, true, "", 200, "registered");
        check("/readyz", 0, false, "", 503, "not registered yet");
        check("/readyz", 10_001, true, "", 503, "has not moved");
        check("/readyz", 0, true, "not fenceable, because x", 200, "not fenceable, because x");
        check("/", 0, true, "", 404, "/metrics");
        let (status, _) = page(&Method::POST, "/healthz", &Pulse::default(), true, "", Mono::default());
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn metrics_are_well_formed_and_unique() {
        let text = metrics(&Pulse::default(), true, Mono::from_ms(1500));
        let mut names = std::collections::BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("coroner_agent_"), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(names.insert(name.to_owned()), "{name} twice");
        }
        assert!(text.contains("coroner_agent_pulse_age_seconds 1.500\n"), "{text}");
    }
}
