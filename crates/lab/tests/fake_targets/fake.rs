//! A target whose runtime is a shell under another name, and programs that do what each test wants.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carefree_lab::run::Outcome;
use carefree_lab::targets::lineup::{Field, Lineup, Wishes};
use carefree_lab::targets::{Folders, read_all};
use carefree_workloads::workload::Workload;
use tempfile::TempDir;

use crate::samples;

/// A target whose runtime is `sh` under other names, one for each version.
pub(crate) const TOML: &str = r#"schema = 1
name = "fake"
title = "Fake"
package = "apt install fake"

[find]
globs = ["HERE/versions/*/bin/fake"]
version = ["{runtime}", "version"]
after = "fake version "

[parts.rare]
probe = ["false"]
package = "apt install rare"

[programs.units]
workloads = ["alloc", "switch"]
run = ["{runtime}", "sample", "{folder}/program.sh"]
"#;

/// Its units, and what stands in the file of each beside its role.
pub(crate) const UNITS: [(&str, &str); 19] = [
    ("good", "fiber\""),
    // It says that it switched more often than the kernel knows of.
    ("kernel", "thread\"\nkernel = true\nmax_units = 1\nwhy = \"it would take all day\""),
    // Programs whose work is not proven.
    ("idle", "fiber\""),
    ("eager", "fiber\""),
    ("hasty", "fiber\""),
    ("slow", "fiber\""),
    ("restless", "fiber\""),
    ("threadless", "thread\"\nkernel = true"),
    ("few", "fiber\""),
    ("garbage", "fiber\""),
    ("crash", "fiber\""),
    ("hang", "fiber\""),
    // They leave a process behind: one that holds the sample's output, and one that has left the
    // sample's group as well.
    ("leaver", "fiber\""),
    ("runaway", "fiber\""),
    // It leaves a file where it runs.
    ("litterer", "fiber\""),
    ("evil", "fiber\""),
    ("refuse", "fiber\""),
    ("exotic", "fiber\"\nneeds = [\"rare\"]"),
    ("young", "fiber\"\nsince = \"2.0\""),
];

pub(crate) fn toml() -> String {
    let unit = |(name, rest)| format!("\n[units.{name}]\nwhat = \"a shell\"\nrole = \"{rest}\n");
    TOML.to_owned() + &UNITS.map(unit).concat()
}

/// Says which version it is, or runs a sample.
pub(crate) const RUNTIME: &str = r#"#!/bin/sh
case $1 in
version) echo "This is fake version VERSION, by nobody" ;;
sample) shift; exec sh "$@" ;;
*) exit 1 ;;
esac
"#;

pub(crate) const PROGRAM: &str = r#"
for order; do
    case $order in
    unit=*|workload=*|units=*|switches=*|rounds=*|phases=*) eval "${order%%=*}=${order#*=}" ;;
    esac
done
stop() {
    [ "$phases" = 1 ] || return 0
    echo "{\"phase\":\"$1\"}"
    read -r answer
}
made=$((units * switches))
did=$units
run=2000
echo "chatter of the runtime's own"
echo "$workload begins" >&2
case $unit in
few) did=$((units - 1)) ;;
idle) made=0 ;;
eager) made=$((made + 1)) ;;
hasty) run=0 ;;
slow) run=90000000000 ;;
garbage) echo '{"sample":{"units":"many"}}'; exit 0 ;;
crash) stop base; echo "ran out of rope" >&2; kill -SEGV $$ ;;
hang) exec sleep 600 ;;
evil)
    printf '\033[31mred\007\n' >&2
    printf '%s\n' '{"failure":{"message":"\u001b]0;mine\u0007"}}'
    exit 1 ;;
leaver) sleep 600 & echo $! > "$0.left" ;;
runaway) setsid sleep 600 & echo $! > "$0.left" ;;
litterer) pwd > "$0.place"; echo image > fake_crash.blob ;;
refuse) echo '{"failure":{"message":"not today","advice":"come back"}}'; exit 1 ;;
esac
stop base; [ "$unit" = restless ] || stop alive; stop done
more='"gc":{"on":true,"collections":3},"figures":{"wishes":2.5},"mood":"fine"'
[ "$unit" = kernel ] && more="$more,\"voluntary\":1,\"involuntary\":0"
echo "{\"sample\":{\"units\":$did,\"switches_asked\":$((units * switches)),\"switches_made\":$made,\"rounds\":[{\"create_ns\":1000,\"run_ns\":$run}],$more}}"
echo "  "
"#;

pub(crate) struct Fake {
    top: TempDir,
}

impl Fake {
    pub(crate) fn new() -> Fake {
        let fake = Fake { top: tempfile::tempdir().expect("a folder") };
        let folder = fake.at("targets/fake");
        fs::create_dir_all(&folder).expect("made");
        fake.write_toml(&toml());
        fs::write(folder.join("program.sh"), PROGRAM).expect("written");
        for version in ["1.9", "1.10"] {
            fake.install(version);
        }
        fake
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    pub(crate) fn write_toml(&self, toml: &str) {
        let toml = toml.replace("HERE", &self.top.path().display().to_string());
        fs::write(self.at("targets/fake/target.toml"), toml).expect("written");
    }

    pub(crate) fn install(&self, version: &str) {
        let bin = self.at(&format!("versions/{version}/bin"));
        fs::create_dir_all(&bin).expect("made");
        executable(&bin.join("fake"), &RUNTIME.replace("VERSION", version));
    }

    pub(crate) fn folders(&self) -> Folders {
        Folders::open_in(&self.at("cache"), &[self.at("targets")]).expect("writable")
    }

    pub(crate) fn field(&self, runtime: &str, units: &[&str]) -> Result<Field, String> {
        self.field_of(&Wishes {
            runtimes: vec![runtime.into()],
            units: units.iter().map(|&unit| unit.to_owned()).collect(),
            ..Wishes::default()
        })
    }

    pub(crate) fn field_of(&self, wishes: &Wishes) -> Result<Field, String> {
        let folders = self.folders();
        let (targets, mistakes) = read_all(folders.targets());
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let sizes = samples::sizes(&[Workload::Alloc], 5);
        let lineup = Lineup::find(wishes, &targets).map_err(|error| format!("{error:#}"))?;
        Ok(lineup.field(&sizes, &folders, &mut |_| true))
    }

    pub(crate) fn run(&self, units: &[&str], samples: u32, patience: Duration) -> Outcome {
        run(&self.field("fake", units).expect("it is there"), samples, patience)
    }
}

pub(crate) fn messages(field: &Field) -> Vec<&str> {
    field.notes.iter().map(|note| note.message.as_str()).collect()
}

pub(crate) fn executable(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

pub(crate) fn run(field: &Field, samples: u32, patience: Duration) -> Outcome {
    samples::run(field, field.kinds.clone(), samples, patience)
}

pub(crate) const LONG: Duration = Duration::from_secs(60);
