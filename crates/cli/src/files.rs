//! `carefree records`: the files that records are in, whole or damaged.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use carefree_lab::number::counted;
use carefree_lab::record::salvage::{self, Salvaged};
use carefree_lab::record::{self, Record, machine_name};
use carefree_lab::report::table::Table;

use crate::args::{Chosen, Records};
use crate::{complain, exit, terminal};

pub(crate) fn records(orders: &Records) -> ExitCode {
    let done = match orders {
        Records::List(chosen) => list(chosen),
        Records::Verify(chosen) => verify(chosen),
        Records::Repair(chosen) => repair(chosen),
    };
    done.unwrap_or_else(|error| {
        complain(error);
        ExitCode::from(exit::USAGE)
    })
}

fn files(chosen: &Chosen) -> Result<Vec<PathBuf>> {
    let folder = chosen.record.clone().or_else(record::default_folder);
    let mine = ["mine".to_owned()];
    let names = if chosen.records.is_empty() { &mine[..] } else { &chosen.records };
    let mut found = Vec::new();
    for name in names {
        if name == "published" && !Path::new(name).exists() {
            bail!("the published figures are in this program, and in no file");
        }
        found.extend(record::files(name, folder.as_deref())?);
    }
    if let Some(missing) = found.iter().find(|path| !path.exists()) {
        bail!("{}: there is no such file or folder", missing.display());
    }
    Ok(found)
}

/// A line for each file.
fn list(chosen: &Chosen) -> Result<ExitCode> {
    let mut table = Table::new("")
        .left(["File", "Machine", "Runtimes"])
        .right(["Samples", "Figures"])
        .left(["State"]);
    for path in files(chosen)? {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let row = match salvage::read(&path) {
            Err(error) => {
                [String::new(), String::new(), String::new(), String::new(), root(&error)]
            }
            Ok(found) => {
                let count = |of: fn(&Record) -> usize| {
                    found.records.iter().map(of).sum::<usize>().to_string()
                };
                [
                    distinct(found.records.iter().map(machine)),
                    distinct(found.records.iter().flat_map(runtimes)),
                    count(|record| record.samples.len()),
                    count(|record| record.results.len()),
                    state(&found),
                ]
            }
        };
        table.rows.push([name].into_iter().chain(row).collect());
    }
    terminal::print(&table.text())?;
    Ok(ExitCode::SUCCESS)
}

fn machine(record: &Record) -> String {
    match &record.source {
        Some(source) => source.title.clone(),
        None => machine_name(&record.environment),
    }
}

fn runtimes(record: &Record) -> Vec<String> {
    let names = record.results.iter().map(|result| &result.subject);
    names.map(|subject| format!("{} {}", subject.runtime, subject.version)).collect()
}

fn distinct(names: impl Iterator<Item = String>) -> String {
    carefree_workloads::named::distinct(names).join(", ")
}

/// `whole`, `interrupted`, `2 lines damaged`.
fn state(found: &Salvaged) -> String {
    match found.damage.len() {
        0 if found.is_cut || found.records.iter().any(|r| r.run.interrupted) => {
            "interrupted".into()
        }
        0 => "whole".into(),
        1 => "1 line damaged".into(),
        count => format!("{count} lines damaged"),
    }
}

/// The last of an error's reasons, without the file's name.
fn root(error: &anyhow::Error) -> String {
    error.root_cause().to_string()
}

/// Names each damaged line.
fn verify(chosen: &Chosen) -> Result<ExitCode> {
    let (mut whole, mut damaged) = (0_usize, 0_usize);
    let mut text = String::new();
    for path in files(chosen)? {
        let lines = match salvage::read(&path) {
            Ok(found) => {
                let cut = found.is_cut.then(|| "the last line is half there".to_owned());
                found.damage.iter().map(ToString::to_string).chain(cut).collect()
            }
            Err(error) => vec![root(&error)],
        };
        for line in &lines {
            text += &format!("{}: {line}\n", path.display());
        }
        *(if lines.is_empty() { &mut whole } else { &mut damaged }) += 1;
    }
    text += &format!("{} whole, {damaged} damaged\n", counted(whole, "file"));
    terminal::print(&carefree_lab::printable::lines(&text))?;
    Ok(if damaged == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// Writes each damaged file anew.
fn repair(chosen: &Chosen) -> Result<ExitCode> {
    let mut is_left = false;
    let mut repaired = 0_usize;
    for path in files(chosen)? {
        match salvage::read(&path) {
            Ok(found) if found.is_whole() => {}
            Ok(found) => {
                let old = set_aside(&path)?;
                repaired += 1;
                let lost = match found.damage.len() {
                    0 => "its last line, which was half there,".to_owned(),
                    count => counted(count, "damaged line"),
                };
                // At once: what comes next may fail.
                terminal::print(&format!(
                    "{}: {lost} left out; as it was: {}\n",
                    carefree_lab::printable::line(&path.display().to_string()),
                    carefree_lab::printable::line(&old.display().to_string())
                ))?;
            }
            Err(error) => {
                complain(format_args!("{error:#}; nothing of it can be saved: remove the file"));
                is_left = true;
            }
        }
    }
    terminal::print(&format!("{} repaired\n", counted(repaired, "file")))?;
    Ok(if is_left { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS })
}

/// Puts what is whole of a file in its place. The file itself gets another name, which no reader of
/// records looks at; that name is returned.
fn set_aside(path: &Path) -> Result<PathBuf> {
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let wrong = || format!("{} cannot be repaired", path.display());
    let new = beside(".repaired");
    let mut file = BufWriter::new(File::create(&new).with_context(wrong)?);
    salvage::write_whole_lines(path, &mut file).and_then(|()| file.flush()).with_context(wrong)?;
    let mut names = (1_u32..).map(|number| match number {
        1 => beside(".damaged"),
        _ => beside(&format!(".damaged-{number}")),
    });
    let old = names.find(|name| !name.exists()).expect("there are more numbers than files");
    fs::rename(path, &old).with_context(wrong)?;
    fs::rename(&new, path).with_context(wrong)?;
    Ok(old)
}
