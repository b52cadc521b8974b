//! t
use super::world::{World, name};

#[test]
fn smoke() {
    for n in [2, 3, 4, 5, 6, 9, 10, 12, 20] {
        for kind in 0..3 {
            for victim in [n - 1, 1, 0] {
                let mut world = World::racks(n, 3);
                world.run(15_000);
                assert!(world.last.judged.is_empty(), "{:?}", world.last.judged);
                match kind {
                    0 => world.power_off(victim),
                    1 => world.hang(victim),
                    _ => world.pull_cord(victim),
                }
                let from = world.now;
                let mut told = Vec::new();
                for _ in 0..400 {
                    world.run(50);
                    let v = world.verdict_on(victim).cloned();
                    let s = format!("{v:?}");
                    let word: String = s.chars().take_while(|c| *c != '{').collect();
                    if told.last().map(|(_, w)| w) != Some(&word) {
                        told.push((world.now - from, word));
                    }
                }
                println!(
                    "n={n} kind={kind} victim={victim}: {told:?}  commands {:?}",
                    world
                        .commands
                        .iter()
                        .filter(|(_, c)| matches!(c, crate::command::Command::Judge(_)))
                        .map(|(t, _)| t - from)
                        .take(3)
                        .collect::<Vec<_>>()
                );
                let _ = name(0);
            }
        }
    }
}

