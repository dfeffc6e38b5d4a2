//! Open files that are shared: by fibers, by several numbers, by processes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::common::*;

const WRITERS: usize = 32;
const RECORDS: usize = 10_000;
/// Does not divide a page, so many records cross into the next one.
const RECORD: usize = 100;

fn record(number: usize) -> Vec<u8> {
    let mut record = format!("{number:0width$}", width = RECORD - 1).into_bytes();
    record.push(b'\n');
    record
}

/// How often each record is among `bytes`, and the pieces that are no record.
fn counted(bytes: &[u8]) -> (BTreeMap<usize, usize>, Vec<String>) {
    let (mut times, mut torn) = (BTreeMap::new(), Vec::new());
    for piece in bytes.chunks(RECORD) {
        let text = String::from_utf8_lossy(piece).into_owned();
        match text.trim().parse::<usize>() {
            Ok(number) if record(number) == piece => *times.entry(number).or_default() += 1,
            _ => torn.push(text),
        }
    }
    (times, torn)
}

fn each_once() -> (BTreeMap<usize, usize>, Vec<String>) {
    ((0..RECORDS).map(|number| (number, 1)).collect(), Vec::new())
}

/// Writes all records, each by one call of `write`, which is told the writer's number.
fn write_records(on: On, write: impl Fn(usize, &[u8]) + Send + Sync) {
    let write = &write;
    let task = |writer: usize| -> Task<'_> {
        Box::new(move || {
            for number in (writer..RECORDS).step_by(WRITERS) {
                write(writer, &record(number));
            }
        })
    };
    on.run((0..WRITERS).map(task).collect());
}

fn write_one(file: &File, record: &[u8]) {
    assert_eq!(write(file, record.as_ptr().cast(), record.len()), Ok(RECORD as i64));
}

/// A file on a disk, and one in memory.
fn files(folder: &Folder) -> [File; 2] {
    [folder.file("records"), in_memory()]
}

#[test]
fn records_through_one_file() {
    let folder = Folder::new();
    let wrong = alike(|on| {
        files(&folder).map(|file| {
            write_records(on, |_, record| write_one(&file, record));
            (counted(&content(&file)), position(&file))
        })
    });
    let end = Ok((RECORDS * RECORD) as i64);
    assert!(wrong == [(each_once(), end), (each_once(), end)]);
}

#[test]
fn records_in_parts_through_one_file() {
    let folder = Folder::new();
    let wrong = alike(|on| {
        files(&folder).map(|file| {
            write_records(on, |_, record| {
                let (head, tail) = record.split_at(7);
                let parts = [buffer(head), buffer(&[]), buffer(tail)];
                assert_eq!(writev(&file, &parts), Ok(RECORD as i64));
            });
            (counted(&content(&file)), position(&file))
        })
    });
    assert!(wrong.iter().all(|(records, _)| *records == each_once()));
}

#[test]
fn records_through_several_numbers_of_one_file() {
    let folder = Folder::new();
    let _ = alike(|on| {
        files(&folder).map(|file| {
            let numbers: Vec<_> = (0..WRITERS).map(|_| file.try_clone().unwrap()).collect();
            write_records(on, |writer, record| write_one(&numbers[writer], record));
            assert!(counted(&content(&file)) == each_once());
            position(&file)
        })
    });
}

#[test]
fn records_appended_to_a_file_that_each_has_opened() {
    let folder = Folder::new();
    alike(|on| {
        let file = folder.file("appended");
        let path = folder.path().join("appended");
        let open = |_| OpenOptions::new().append(true).open(&path).unwrap();
        let files: Vec<_> = (0..WRITERS).map(open).collect();
        write_records(on, |writer, record| {
            // On Linux, `pwrite` to a file in append mode ignores the offset.
            if writer % 2 == 0 {
                write_one(&files[writer], record);
            } else {
                let written = pwrite(&files[writer], record.as_ptr().cast(), record.len(), 3);
                assert_eq!(written, Ok(RECORD as i64));
            }
        });
        assert!(counted(&content(&file)) == each_once());
    });
}

/// Large writes are made by threads of the pool, small ones by carriers. They do not interleave.
#[test]
fn large_and_small_writes_take_turns() {
    let folder = Folder::new();
    const LARGE: usize = 300_000;
    alike(|on| {
        files(&folder).map(|file| {
            let task = |letter: u8| -> Task<'_> {
                let file = &file;
                Box::new(move || {
                    let length = if letter % 2 == 0 { LARGE } else { 1000 };
                    for _ in 0..10 {
                        let bytes = vec![letter; length];
                        assert_eq!(write(file, bytes.as_ptr().cast(), length), Ok(length as i64));
                    }
                })
            };
            on.run((0..12).map(task).collect());
            let content = content(&file);
            assert_eq!(position(&file), Ok(content.len() as i64));
            let mut runs = [0; 12];
            for run in content.chunk_by(|one, other| one == other) {
                let letter = usize::from(run[0]);
                let length = if letter % 2 == 0 { LARGE } else { 1000 };
                assert_eq!(run.len() % length, 0, "a write of {letter} was divided");
                runs[letter] += run.len() / length;
            }
            runs
        })
    });
}

#[test]
fn records_read_by_many_from_one_file() {
    let folder = Folder::new();
    let mut all = Vec::new();
    (0..RECORDS).for_each(|number| all.extend(record(number)));
    alike(|on| {
        for (mut file, is_cold) in files(&folder).into_iter().zip([true, false]) {
            file.write_all(&all).unwrap();
            seek(&file, 0);
            if is_cold {
                file.sync_all().unwrap();
                // SAFETY: no memory is involved.
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            }
            let got = Mutex::new(Vec::new());
            let task = |_| -> Task<'_> {
                Box::new(|| {
                    let mut own = Vec::new();
                    let mut record = [0; RECORD];
                    loop {
                        match read(&file, record.as_mut_ptr().cast(), RECORD).unwrap() {
                            0 => break,
                            length => own.extend_from_slice(&record[..length as usize]),
                        }
                    }
                    got.lock().unwrap().extend(own);
                })
            };
            on.run((0..WRITERS).map(task).collect());
            assert!(counted(&got.into_inner().unwrap()) == each_once());
            assert_eq!(position(&file), Ok(all.len() as i64));
        }
    });
}

const LINES: usize = 2_000;
const PRINT: &str = "CAREFREE_TEST_PRINT";

/// `program >log 2>&1`: both numbers are of one open file.
#[test]
fn lines_of_both_standard_streams_in_one_log() {
    if let Some(on) = std::env::var_os(PRINT) {
        let print = |on: On| {
            let task = |number: usize| -> Task<'_> {
                Box::new(move || {
                    for line in 0..LINES / 16 {
                        let line = format!("<line {number} {line}>\n");
                        let stream = 1 + (number % 2) as i32;
                        let written = write(&stream, line.as_ptr().cast(), line.len());
                        assert_eq!(written, Ok(line.len() as i64));
                    }
                })
            };
            on.run((0..16).map(task).collect());
        };
        return if on == "fibers" {
            carefree::run(|| print(On::Fibers))
        } else {
            print(On::Threads)
        };
    }
    let folder = Folder::new();
    let lines = |on: &str| {
        let log = folder.file("log");
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sharing::lines_of_both_standard_streams_in_one_log", "--nocapture"])
            .env(PRINT, on)
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log.try_clone().unwrap()))
            .status()
            .unwrap();
        let text = String::from_utf8(content(&log)).unwrap();
        assert!(status.success(), "{text}");
        // (The tests' own words may stand before one, as where there is one processor.)
        let own = |line: &str| line.find("<line ").map(|at| line[at..].to_owned());
        let mut lines: Vec<_> = text.split_inclusive('\n').filter_map(own).collect();
        lines.sort();
        lines.dedup();
        lines
    };
    let [on_threads, on_fibers] = ["threads", "fibers"].map(lines);
    assert_eq!(on_threads.len(), LINES);
    assert!(on_fibers == on_threads, "{} of {LINES} lines arrived", on_fibers.len());
}

/// A program that was started writes to the same open file.
#[test]
fn records_beside_those_of_another_process() {
    let folder = Folder::new();
    alike(|on| {
        let file = folder.file("shared");
        let script = format!(
            "i={RECORDS}; while [ $i -lt {} ]; do printf '%0{}d\\n' $i; i=$((i + 1)); done",
            RECORDS + 500,
            RECORD - 1
        );
        let mut other = Command::new("sh")
            .args(["-c", &script])
            .stdout(Stdio::from(file.try_clone().unwrap()))
            .spawn()
            .unwrap();
        write_records(on, |_, record| write_one(&file, record));
        assert!(other.wait().unwrap().success());
        let (times, torn) = counted(&content(&file));
        assert_eq!(torn, Vec::<String>::new());
        assert!(times == (0..RECORDS + 500).map(|number| (number, 1)).collect());
    });
}

/// A read returns all that it asks for, however much of it is in the page cache.
#[test]
fn a_large_read_of_a_cold_file_is_one() {
    let folder = Folder::new();
    alike(|on| {
        let text = text(3_000_000);
        let mut file = folder.file("cold");
        file.write_all(&text).unwrap();
        file.sync_all().unwrap();
        let got = Mutex::new(Vec::new());
        for length in [5_000, 100_000, 2_000_000] {
            seek(&file, 0);
            // SAFETY: no memory is involved.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            // A part of it is in the page cache.
            (&file).read_exact(&mut [0; 100]).unwrap();
            on.run(vec![Box::new(|| {
                let mut bytes = vec![0; length];
                let result = read(&file, bytes.as_mut_ptr().cast(), length);
                assert!(bytes[..] == text[100..100 + length]);
                got.lock().unwrap().push((result, position(&file)));
            })]);
        }
        got.into_inner().unwrap()
    });
}
