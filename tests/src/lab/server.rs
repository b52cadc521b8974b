//! `coroner-lab serve`: the one root process that owns a lab's machines, builds it, answers on its socket, removes it.
//!
//! It says on stdout how far it is (`progress ...`), then `up` or `failed ...`. It ends on SIGTERM, on `down`, or when
//! its stdin does, if it is on a leash; whichever it is, nothing of the lab is left.
//!
//! Threads: one builds, one accepts, one for each connection and for each life of a machine. All of them pass
//! [`Gate`] before they change anything, so that none adds to what is being removed.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread::{self, sleep},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::unistd::setsid;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    build::{Hardware, build},
    cgroup::{Group, Layout},
    end::End,
    gate::Gate,
    images,
    machine::Machine,
    plan::LabConfig,
    protocol::{Listing, MachineState, Output, Request},
    teardown,
    truth::{Event, now_ns},
};

/// Ends the server when somebody rings it.
type Bell = Arc<Notify>;

/// Serves the lab that the configuration file describes, until it is to end. On a leash, the end of stdin is the end.
///
/// # Errors
/// When it could not be built, or something of it is left.
pub(super) fn serve(config: &Path, leash: bool) -> Result<()> {
    let text = std::fs::read(config).with_context(|| format!("read {}", config.display()))?;
    let config: LabConfig = serde_json::from_slice(&text).context("understand the lab's configuration")?;
    config.check()?;
    let names = super::plan::Names::new(&config.name)?;
    // Ctrl-C is for whoever started us; he tells us.
    let _ = setsid();
    let layout = Layout::detect()?;
    let hub = Group::new(&layout, &names.cgroup_of("hub"));
    hub.create()?;
    hub.join_to_be_found(std::process::id())?;

    let gate = Arc::new(Gate::default());
    let bell = Bell::default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let builder = runtime.block_on(async {
        // Before anything is built, so that a signal always finds somebody to hear it.
        let mut end = End::listen(leash)?;
        let builder = thread::Builder::new().name("build".into()).spawn({
            let (gate, layout, bell) = (Arc::clone(&gate), layout.clone(), Arc::clone(&bell));
            move || build_and_answer(&config, &layout, &gate, &bell)
        });
        let builder = builder.context("start building")?;
        tokio::select! {
            () = end.comes() => {}
            () = bell.notified() => {}
        }
        Ok::<_, anyhow::Error>(builder)
    })?;
    // Whoever is inside waits for a program of the lab; without it he fails, and leaves.
    let everything = Group::new(&layout, &names.cgroup());
    while !gate.close() {
        let _ = everything.kill_all(Duration::from_secs(1));
        sleep(Duration::from_millis(10));
    }
    let built = if builder.is_finished() {
        builder.join().unwrap_or_else(|_| Err(anyhow!("the builder panicked")))
    } else {
        Ok(())
    };
    teardown::remove(&names)?;
    built
}

/// Builds the lab, says so, and answers for ever. Returns, after ringing the bell, only if it cannot be built.
fn build_and_answer(config: &LabConfig, layout: &Layout, gate: &Arc<Gate>, bell: &Bell) -> Result<()> {
    let say = |line: &str| tell(&format!("progress {line}"));
    let built = build(config, layout, gate, &say).and_then(|lab| {
        let socket = lab.plan.names.socket();
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
        Ok((lab, listener))
    });
    match built {
        Ok((lab, listener)) => {
            tell("up");
            answer_all(&listener, &Arc::new(lab), gate, bell)
        }
        Err(error) => {
            tell(&format!("failed {}", format!("{error:#}").replace('\n', " ")));
            bell.notify_one();
            Err(error)
        }
    }
}

/// Whoever reads it may have gone; then nobody needs to know.
fn tell(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

fn answer_all(listener: &UnixListener, lab: &Arc<Hardware>, gate: &Arc<Gate>, bell: &Bell) -> Result<()> {
    for stream in listener.incoming() {
        let stream = stream.context("accept a connection")?;
        let (lab, gate, bell) = (Arc::clone(lab), Arc::clone(gate), Arc::clone(bell));
        let spawned = thread::Builder::new().name("connection".into()).spawn(move || {
            // A client that went away ends its own connection and nothing else.
            let _ = converse(&stream, &lab, &gate, &bell);
        });
        spawned.context("start a connection's thread")?;
    }
    Ok(())
}

fn converse(stream: &UnixStream, lab: &Hardware, gate: &Gate, bell: &Notify) -> Result<()> {
    for line in BufReader::new(stream).lines() {
        let line = line.context("read a request")?;
        let request = serde_json::from_str::<Request>(&line).context("understand the request");
        let down = matches!(request, Ok(Request::Down));
        let answer = request.and_then(|request| {
            let _inside = gate.pass()?;
            perform(&request, lab)
        });
        let mut text = answer_line(answer).to_string();
        text.push('\n');
        { stream }.write_all(text.as_bytes()).context("answer")?;
        if down {
            bell.notify_one();
        }
    }
    Ok(())
}

fn answer_line(answer: Result<Value>) -> Value {
    match answer {
        Ok(Value::Object(mut body)) => {
            body.insert("ok".into(), Value::Bool(true));
            Value::Object(body)
        }
        Ok(_) => json!({"ok": true}),
        Err(error) => json!({"ok": false, "error": format!("{error:#}")}),
    }
}

fn perform(request: &Request, lab: &Hardware) -> Result<Value> {
    let power = |name: &str, act: &dyn Fn(&Arc<Machine>) -> Result<bool>| {
        let machine = lab.machine(name)?;
        let changed = act(machine)?;
        Ok(serde_json::to_value(MachineState { changed, ..machine.state()? })?)
    };
    match request {
        Request::On { machine } => power(machine, &|machine| machine.on(&lab.program)),
        Request::Off { machine } => power(machine, &|machine| machine.off()),
        Request::Shutdown { machine } => power(machine, &|machine| machine.shutdown()),
        Request::Freeze { machine } => power(machine, &|machine| machine.freeze()),
        Request::Thaw { machine } => power(machine, &|machine| machine.thaw()),
        Request::State { machine } => power(machine, &|_| Ok(false)),
        Request::List => {
            let machines =
                lab.machines.values().map(|machine| machine.state()).collect::<Result<Vec<_>>>()?;
            Ok(serde_json::to_value(Listing { machines, cuts: lab.net.cuts() })?)
        }
        Request::Cut(cut) => {
            let begin_t = now_ns()?;
            lab.net.cut(cut)?;
            lab.record(&cut.target, Event::Cut, json!({"begin_t": begin_t, "cut": cut}))
        }
        Request::Heal { target } => {
            for cut in lab.net.heal(target.as_ref())? {
                lab.record(&cut.target, Event::Healed, json!({"cut": cut}))?;
            }
            Ok(Value::Null)
        }
        Request::Exec { machine, argv } => exec(lab, machine, argv),
        Request::Import { machine, archive } => import(lab, machine.as_deref(), archive),
        Request::BmcAddress { machine, present } => {
            let plan = lab.machine(machine)?.plan();
            lab.net.bmc_address(plan, *present)?;
            let event = if *present { Event::Healed } else { Event::Cut };
            let target = super::cuts::Target::Bmc { machine: machine.clone() };
            lab.record(&target, event, json!({"bmc_address": plan.bmc_address}))
        }
        Request::Down => Ok(Value::Null),
    }
}

fn exec(lab: &Hardware, machine: &str, argv: &[String]) -> Result<Value> {
    let state = lab.machine(machine)?.state()?;
    let init = state.init.with_context(|| format!("{machine} is off"))?;
    ensure!(!state.frozen, "{machine} hangs");
    let output = Command::new(&lab.program)
        .args(["enter", &lab.plan.names.cgroup_of(machine), &init.to_string(), "--"])
        .args(argv)
        .stdin(std::process::Stdio::null())
        .output()
        .with_context(|| format!("{machine}: run {argv:?}"))?;
    Ok(serde_json::to_value(Output {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })?)
}

/// Puts an archive where power-ons find it, and into the containerd of machines that are on now.
fn import(lab: &Hardware, only: Option<&str>, archive: &Path) -> Result<Value> {
    let names = &lab.plan.names;
    let (dir, inside) = match only {
        Some(machine) => (names.machine_dir(machine).join("images"), "/lab/own-images"),
        None => (names.state().join("images"), "/lab/images"),
    };
    let file = images::keep(archive, &dir)?;
    let path = PathBuf::from(inside).join(&file);
    let machines: BTreeMap<_, _> = match only {
        Some(name) => BTreeMap::from([(name.to_owned(), Arc::clone(lab.machine(name)?))]),
        None => lab.machines.clone(),
    };
    for (name, machine) in machines {
        let state = machine.state()?;
        if state.init.is_none() || state.frozen {
            continue;
        }
        let argv = ["ctr", "-n", "k8s.io", "images", "import", &path.to_string_lossy()].map(String::from);
        let output: Output = serde_json::from_value(exec(lab, &name, &argv)?)?;
        if output.code != 0 {
            bail!("{name}: import {}: {}", archive.display(), output.stderr.trim());
        }
        let mark = names.machine_dir(&name).join("disk/containerd/coroner-lab-imported").join(&file);
        File::create(&mark).with_context(|| format!("{name}: mark the image as imported"))?;
    }
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_whether_it_is_one() {
        assert_eq!(answer_line(Ok(json!({"power": "On"}))), json!({"ok": true, "power": "On"}));
        assert_eq!(answer_line(Ok(Value::Null)), json!({"ok": true}));
        assert_eq!(
            answer_line(Err(anyhow!("inner").context("outer"))),
            json!({"ok": false, "error": "outer: inner"})
        );
    }
}
