//! Every combination of options either means something or is refused by the name of the one that does not.

use super::Args;

const FINE: [&str; 15] = [
    "",
    "--seeds 0",
    "--from 7 --seeds 30000 --jobs 1 --json out",
    "--class liars --seeds 50",
    "--class storm --class rack --from 3",
    "--nightly 8h",
    "--nightly 90s --from 5 --jobs 2 --json out --class liars",
    "--seed 131",
    "--seed 131 --json out",
    "--mutants",
    "--mutants --only veto --kills 2 --no-stories --seeds 100 --from 3 --class liars --jobs 2 --json out",
    "--model",
    "--model --trials 2 --large --jobs 1 --json out",
    // Rows of the model are no classes of seeds; which there are, the model knows.
    "--model --class whatever",
    "--model --class death --class fault",
];

/// What is called, and two words that the refusal must have: what is wrong, and with what.
const REFUSED: [(&str, &str, &str); 38] = [
    ("--seed 1 --seeds 5", "--seeds", "--seed <SEED>"),
    ("--seed 1 --from 5", "--from", "--seed <SEED>"),
    ("--seed 1 --nightly 1h", "--nightly", "--seed <SEED>"),
    ("--seed 1 --mutants", "--mutants", "--seed <SEED>"),
    ("--seed 1 --model", "--model", "--seed <SEED>"),
    ("--seed 1 --class liars", "--class", "--seed <SEED>"),
    ("--seed 1 --jobs 1", "--jobs", "--seed <SEED>"),
    ("--seed 1 --only veto", "--only", "--mutants"),
    ("--seed 1 --trials 2", "--trials", "--model"),
    ("--nightly 1h --seeds 5", "--seeds", "--nightly"),
    ("--nightly 1h --mutants", "--mutants", "--nightly"),
    ("--nightly 1h --model", "--model", "--nightly"),
    ("--mutants --model", "--mutants", "--model"),
    ("--model --seeds 5", "--seeds", "--model"),
    ("--model --from 5", "--from", "--model"),
    ("--model --kills 2", "--kills", "--mutants"),
    ("--model --only veto", "--only", "--mutants"),
    ("--model --no-stories", "--no-stories", "--mutants"),
    ("--mutants --trials 2", "--trials", "--model"),
    ("--mutants --large", "--large", "--model"),
    ("--only veto", "--only", "--mutants"),
    ("--kills 2", "--kills", "--mutants"),
    ("--no-stories", "--no-stories", "--mutants"),
    ("--trials 2", "--trials", "--model"),
    ("--large", "--large", "--model"),
    ("--class nonsense", "--class", "\"nonsense\""),
    ("--class liars --class nonsense", "--class", "\"nonsense\""),
    ("--mutants --class nonsense", "--class", "\"nonsense\""),
    ("--jobs 0", "--jobs", "'0'"),
    ("--jobs 200000000", "--jobs", "1..=1024"),
    ("--seeds -1", "--seeds", "'-1'"),
    ("--seed -1", "--seed", "'-1'"),
    ("--from 18446744073709551615", "--from", "'18446744073709551615'"),
    ("--seeds 18446744073709551615 --from 2", "--seeds", "'18446744073709551615'"),
    ("--model --trials 18446744073709551615", "--trials", "1..=100000"),
    ("--model --trials 0", "--trials", "'0'"),
    ("--mutants --kills 0", "--kills", "'0'"),
    ("--nightly 99999999999999999h", "--nightly", "90s, 30m or 8h"),
];

fn read(line: &str) -> Result<Args, clap::Error> {
    Args::read(["hack/sim"].into_iter().chain(line.split_whitespace()))
}

#[test]
fn what_means_something_is_taken() {
    for line in FINE {
        if let Err(error) = read(line) {
            panic!("hack/sim {line}: {error}");
        }
    }
}

#[test]
fn what_would_be_ignored_is_refused_by_name() {
    for (line, one, other) in REFUSED {
        let said = match read(line) {
            Ok(args) => panic!("hack/sim {line} is taken: {args:?}"),
            // Usage, which names every option, is no part of what it says is wrong.
            Err(error) => error.to_string().split("Usage:").next().unwrap_or_default().to_owned(),
        };
        assert!(said.contains(one) && said.contains(other), "hack/sim {line}: {said}");
    }
}

/// Whatever is left out of the tables above would be an option that nobody thought about.
#[test]
fn every_option_is_refused_somewhere_or_means_something_everywhere() {
    use clap::CommandFactory as _;
    let everywhere = ["json", "help"];
    for option in Args::command().get_arguments() {
        let name = format!("--{}", option.get_long().unwrap_or_default());
        let refused = REFUSED.iter().any(|(_, one, _)| **one == name);
        let ok = refused || everywhere.contains(&name.trim_start_matches('-'));
        assert!(ok || name == "--seed", "{name} is in no row of what is refused");
    }
}
